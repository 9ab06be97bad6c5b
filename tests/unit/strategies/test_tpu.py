"""`TPUStrategy`: replicas that span several logical devices, on virtual devices."""

import re
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono as tf

pytestmark = pytest.mark.needs_devices(8)

# Devices of a replica, and the shape of its block in the grid of 8.
BLOCKS = {1: [1, 1, 1, 1], 2: [1, 1, 1, 2], 4: [2, 1, 1, 2], 8: [2, 2, 1, 2]}


def make(logical, replicas=None):
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    tf.config.experimental_connect_to_cluster(resolver)
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        topology,
        computation_shape=BLOCKS[logical],
        num_replicas=replicas or 8 // logical,
    )
    return tf.distribute.TPUStrategy(
        resolver, experimental_device_assignment=assignment
    )


def compiled_text(strategy, step, *args):
    with strategy.scope():
        whole = tf.function(lambda *a: strategy.run(step, args=a))
    return whole.lowered(*args).compile().as_text()


# ------------------------------------------------------------------------- strategy


@pytest.mark.feature("T03", "K10")
def test_without_an_assignment_every_device_is_a_replica():
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.tpu.experimental.initialize_tpu_system(resolver)
    strategy = tf.distribute.TPUStrategy(resolver)
    assert strategy.num_replicas_in_sync == 8
    assert strategy.cluster_resolver is resolver
    mirrored = tf.distribute.MirroredStrategy()
    assert strategy.extended.worker_devices == mirrored.extended.worker_devices
    assert tf.distribute.TPUStrategy().num_replicas_in_sync == 8


@pytest.mark.feature("K10")
@pytest.mark.parametrize("logical", BLOCKS)
def test_an_assignment_says_how_many_replicas_there_are(logical):
    strategy = make(logical)
    assert strategy.num_replicas_in_sync == 8 // logical
    assert len(strategy.extended.worker_devices) == 8 // logical
    older = tf.distribute.experimental.TPUStrategy
    built = tf.tpu.experimental.DeviceAssignment.build(
        tf.tpu.experimental.initialize_tpu_system(), BLOCKS[logical]
    )
    strategy = older(device_assignment=built)
    assert strategy.num_replicas_in_sync == 1
    assert isinstance(strategy, older) and isinstance(strategy, tf.distribute.Strategy)
    assert not isinstance(make(logical), older)


@pytest.mark.feature("T03")
def test_one_logical_device_per_replica_makes_the_program_of_a_mirrored_strategy():
    def step(x):
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", x * 2.0)

    x = np.ones(3, np.float32)
    text = compiled_text(make(1, replicas=4), step, x)
    # The devices of the grid in the order of its rings, and of the list, are the same.
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(4)])
    wanted = compiled_text(strategy, step, x)
    assert instructions(text) == instructions(wanted)


def instructions(text):
    return re.findall(r"= (\S+ [\w-]+)\(", text)


def test_an_assignment_for_other_devices_is_refused():
    places = np.reshape(list(np.ndindex(1, 1, 1, 2)), (1, 2, 4))
    grid = tf.tpu.experimental.Topology(
        mesh_shape=[1, 1, 1, 2], device_coordinates=places
    )
    built = tf.tpu.experimental.DeviceAssignment.build(grid)
    with pytest.raises(ValueError, match=r"for 1 task\(s\) of 2 device\(s\); there"):
        tf.distribute.TPUStrategy(experimental_device_assignment=built)


# --------------------------------------------------------------------------- checks


@pytest.mark.feature("K02")
@pytest.mark.parametrize("wrong", [4, -1])
def test_a_logical_device_that_is_not_there_is_refused(wrong):
    strategy = make(4)
    match = f"Received logical device id {wrong} but there are only total of 4 logical"
    with pytest.raises(ValueError, match=match):
        strategy.experimental_assign_to_logical_device(jnp.ones([2, 4]), wrong)
    with (
        pytest.raises(ValueError, match=match),
        strategy.extended.experimental_logical_device(wrong),
    ):
        pass
    with strategy.extended.experimental_logical_device(3):
        pass


@pytest.mark.feature("K02")
def test_a_replica_names_its_logical_devices():
    strategy = make(4)

    def step(number):
        context = tf.distribute.get_replica_context()
        with context.experimental_logical_device(number):
            return jnp.ones(2) * 3

    found = strategy.run(tf.function(lambda: step(3)))
    for part in strategy.experimental_local_results(found):
        assert part.tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="only total of 4 logical"):
        strategy.run(lambda: step(4))
    alone = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert alone.run(lambda: step(0)).values[1].tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="only total of 1 logical"):
        alone.run(lambda: step(1))


@pytest.mark.feature("K05")
@pytest.mark.parametrize(
    ("shape", "parts", "match"),
    [
        (
            [2, 4],
            [1, 4, 1],
            r"Length of `partition_dimensions` must equal to the rank of "
            r"`tensor.shape` \(2\). Received len\(partition_dimensions\)=3.",
        ),
        (
            [2, 4],
            [1, 2],
            r"The product of `partition_dimensions` should be the same as the number "
            r"of logical devices \(=4\). Received `partition_dimensions`=\[1, 2\],and "
            r"their product is 2.",
        ),
        (
            [2, 3],
            [1, 4],
            r"Tensor shape at `partition_dimensions\[1\]` must be divisible by "
            r"corresponding value specified by `partition_dimensions` \(4\). "
            r"Received: 3.",
        ),
        ([2, 4], [-2, -2], r"`partition_dimensions\[0\]` must be positive"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(shape, parts, match):
    strategy = make(4)
    with pytest.raises(ValueError, match=match):
        strategy.experimental_split_to_logical_devices(jnp.ones(shape), parts)


@pytest.mark.feature("K01")
def test_other_strategies_have_no_logical_devices():
    names = ("assign_to_logical_device", "split_to_logical_devices")
    for name in (*names, "replicate_to_logical_devices"):
        assert not hasattr(tf.distribute.MirroredStrategy(), f"experimental_{name}")
        assert hasattr(tf.distribute.TPUStrategy, f"experimental_{name}")


# ----------------------------------------------------- the examples of the API pages


@pytest.mark.feature("K01", "K08", "K10")
@pytest.mark.parametrize("compiled", [True, False])
def test_the_example_of_assigning_to_a_logical_device(compiled):
    strategy = make(logical=2)
    assert strategy.num_replicas_in_sync == 4
    inputs = tf.data.Dataset.from_tensor_slices(np.arange(8.0)).batch(4)
    iterator = iter(strategy.experimental_distribute_dataset(inputs))

    def step_fn(inputs):
        output = jnp.add(inputs, inputs)
        return strategy.experimental_assign_to_logical_device(output, 0)

    step = tf.function(step_fn) if compiled else step_fn
    found = strategy.run(step, args=(next(iterator),))
    assert [float(x[0]) for x in strategy.experimental_local_results(found)] == [
        0.0, 2.0, 4.0, 6.0,
    ]  # fmt: skip


def convolution(strategy, x, kernel, parts):
    x = strategy.experimental_split_to_logical_devices(x, parts)
    y = jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(y)


@pytest.mark.feature("K04")
def test_the_example_of_a_split_input_runs_on_split_operands():
    strategy = make(logical=8)
    kernel = np.ones([3, 3, 3, 5], np.float32) / 27
    images = np.arange(2 * 16 * 16 * 3, dtype=np.float32).reshape(2, 16, 16, 3)

    @tf.function
    def step_fn(inputs):
        return convolution(strategy, inputs, kernel, [1, 2, 4, 1])

    found = strategy.run(step_fn, args=(images,))
    wanted = jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    text = compiled_text(strategy, step_fn.python_function, images)
    # Half of the height, a quarter of the width: what one device computes.
    assert re.search(r"f32\[2,8,4,5\]\S* convolution\(", text), text
    assert "f32[2,16,16,5]{3,2,1,0} convolution" not in text


@pytest.mark.feature("K04")
@pytest.mark.parametrize("logical", [2, 4])
def test_a_split_matrix_product_gathers_no_variable(logical):
    strategy = make(logical)
    with strategy.scope():
        weights = tf.Variable(np.ones([16, 32], np.float32))

    def step(x):
        x = strategy.experimental_split_to_logical_devices(x, [1, logical])
        return x @ weights

    text = compiled_text(strategy, step, np.ones([6, 16], np.float32))
    # Each device multiplies its columns by its rows; the sums meet in an all-reduce.
    assert f"f32[6,{16 // logical}]" in text
    assert re.search(r"f32\[6,32\]\S* all-reduce\(", text), text
    assert "all-gather" not in text


@pytest.mark.feature("K06")
def test_the_example_of_replicated_labels():
    strategy = make(logical=8)
    images = np.arange(2 * 8 * 8 * 3, dtype=np.float32).reshape(2, 8, 8, 3) / 100
    labels = np.array([0.5, 0.25], np.float32)
    kernel = np.ones([3, 3, 3, 4], np.float32) / 27

    def loss(images, labels):
        images = strategy.experimental_split_to_logical_devices(images, [1, 2, 4, 1])
        output = jax.lax.conv_general_dilated(
            images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        labels = strategy.experimental_replicate_to_logical_devices(labels)
        output = strategy.experimental_replicate_to_logical_devices(output)
        return jnp.mean((output.mean((1, 2, 3)) - labels) ** 2)

    compiled = strategy.run(tf.function(loss), args=(images, labels))
    np.testing.assert_allclose(compiled, loss(images, labels), rtol=1e-5)
    text = compiled_text(strategy, loss, images, labels)
    assert "all-gather" in text


@pytest.mark.feature("K04", "K08")
def test_the_pages_blocks_of_eight_run_on_sixteen_devices():
    code = """
        import jax, numpy as np, unisono as tf
        tf.config.set_virtual_devices(16)
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
        tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        for replicas in (1, 2):
            device_assignment = tf.tpu.experimental.DeviceAssignment.build(
                topology, computation_shape=[1, 2, 2, 2], num_replicas=replicas)
            strategy = tf.distribute.TPUStrategy(
                resolver, experimental_device_assignment=device_assignment)
            @tf.function()
            def step_fn(inputs):
                inputs = strategy.experimental_split_to_logical_devices(
                    inputs, [1, 2, 4, 1])
                return (inputs * 2).sum()
            found = strategy.run(step_fn, args=(np.ones([2, 4, 8, 1], np.float32),))
            print([float(x) for x in strategy.experimental_local_results(found)])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.split("\n")[:2] == ["[128.0]", "[128.0, 128.0]"]


# --------------------------------------------------------------------------- numbers


def partitions(product, rank):
    if rank == 1:
        return [[product]]
    return [
        [first, *rest]
        for first in (1, 2, 4, 8)
        if product % first == 0
        for rest in partitions(product // first, rank - 1)
    ]


X = np.random.RandomState(0).rand(16, 8).astype(np.float32)
IMAGES = np.random.RandomState(1).rand(8, 8, 8, 2).astype(np.float32)


def train(strategy, parts, compiled=True, steps=3):
    """Trains an MLP; gives the losses, the weights and the count of examples."""
    rng = np.random.RandomState(2)
    with strategy.scope():
        first = tf.Variable(rng.randn(8, 16).astype(np.float32) / 4)
        second = tf.Variable(rng.randn(16, 1).astype(np.float32) / 4)
        optimizer = tf.optimizers.Optimizer(optax.adam(1e-2), [first, second])
        seen = tf.metrics.Mean()
    data = tf.data.Dataset.from_tensor_slices(X).batch(16).repeat(steps)

    def step(x):
        def loss():
            y = strategy.experimental_split_to_logical_devices(x, parts)
            y = jnp.tanh(y @ first)
            y = strategy.experimental_replicate_to_logical_devices(y)
            return jnp.sum((y @ second - x[:, :1]) ** 2) / 16

        value, gradients = tf.value_and_grad(loss, [first, second])()
        optimizer.apply_gradients(zip(gradients, [first, second]))
        seen.update_state(x)
        return value

    step = tf.function(step) if compiled else step
    losses = [
        strategy.reduce("sum", strategy.run(step, args=(x,)), axis=None)
        for x in strategy.experimental_distribute_dataset(data)
    ]
    return np.array(losses), first.numpy(), second.numpy(), seen.result()


@pytest.fixture(scope="module")
def one_logical_device():
    return train(tf.distribute.TPUStrategy(), [1, 1])


@pytest.mark.feature("K04", "T03")
@pytest.mark.parametrize(
    ("logical", "parts"),
    [(n, p) for n in (2, 4, 8) for p in partitions(n, 2) if 16 % (8 // n * p[0]) == 0],
)
def test_training_gives_the_numbers_of_one_logical_device(
    one_logical_device, logical, parts
):
    for found, wanted in zip(train(make(logical), parts), one_logical_device):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("logical", "parts"), [(4, [2, 2]), (8, [2, 4])])
def test_training_runs_without_a_function_too(one_logical_device, logical, parts):
    found = train(make(logical), parts, compiled=False, steps=3)
    for own, wanted in zip(found, one_logical_device):
        np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.feature("K04")
@pytest.mark.parametrize(
    ("logical", "parts"),
    [
        (n, p)
        for n in (2, 4, 8)
        for p in partitions(n, 4)
        if p[3] <= 2 and not (p[3] == 2 and max(p[1:3]) > 1)
    ],
)
def test_a_convolution_and_its_gradient_are_those_of_one_logical_device(logical, parts):
    strategy = make(logical, replicas=1)
    kernel = np.random.RandomState(3).randn(3, 3, 2, 4).astype(np.float32)

    def value(x, kernel, s=strategy, parts=parts):
        return jnp.sum(convolution(s, x, kernel, parts) ** 2)

    @tf.function
    def step(x):
        return jax.value_and_grad(value, 1)(x, kernel)

    found = strategy.run(step, args=(IMAGES,))
    alone = make(1, replicas=1)
    wanted = jax.value_and_grad(lambda k: value(IMAGES, k, alone, [1] * 4))(kernel)
    for own, other in zip(found, wanted):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-4)


def attention(strategy, x, weights, parts):
    """Self-attention over heads: a split of batch, positions, heads and channels."""
    q, k, v = (jnp.einsum("bsd,dhc->bshc", x, w) for w in weights)
    q = strategy.experimental_split_to_logical_devices(q, parts)
    scores = jnp.einsum("bshc,bthc->bhst", q, k) / 2
    mixed = jnp.einsum("bhst,bthc->bshc", jax.nn.softmax(scores), v)
    return strategy.experimental_replicate_to_logical_devices(mixed)


@pytest.mark.feature("K04")
@pytest.mark.parametrize(
    ("logical", "parts"), [(n, p) for n in (2, 4, 8) for p in partitions(n, 4)]
)
def test_attention_and_its_gradient_are_those_of_one_logical_device(logical, parts):
    strategy, alone = make(logical), make(1, replicas=1)
    weights = np.random.RandomState(4).randn(3, 8, 8, 8).astype(np.float32)
    x = np.random.RandomState(5).rand(8, 8, 8).astype(np.float32)

    def value(weights, s, parts):
        return jnp.mean(attention(s, x, weights, parts) ** 2)

    step = tf.function(lambda: jax.value_and_grad(value)(weights, strategy, parts))
    wanted = jax.value_and_grad(value)(weights, alone, [1] * 4)
    for own, other in zip(strategy.run(step), wanted):
        for found in strategy.experimental_local_results(own):
            np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-5)


@pytest.mark.feature("K04")
@pytest.mark.parametrize(
    ("logical", "parts"), [(n, p) for n in (2, 4, 8) for p in partitions(n, 2)]
)
def test_an_embedding_s_table_may_be_split(logical, parts):
    strategy = make(logical)
    rows = np.random.RandomState(6).randn(16, 8).astype(np.float32)
    ids = np.array([[3, 0], [15, 3], [7, 8], [3, 3]])
    with strategy.scope():
        table = tf.Variable(rows)

    @tf.function
    def step(ids):
        def value():
            split = strategy.experimental_split_to_logical_devices(table, parts)
            return jnp.sum(jnp.take(split, ids, axis=0) ** 2)

        loss, (gradient,) = tf.value_and_grad(value, [table])()
        return loss, gradient

    loss, gradient = strategy.run(step, args=(ids,))
    wanted = np.zeros_like(rows)
    np.add.at(wanted, ids, 2 * rows[ids])
    for found in strategy.experimental_local_results(gradient):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    for found in strategy.experimental_local_results(loss):
        np.testing.assert_allclose(found, np.sum(rows[ids] ** 2), rtol=1e-5)


@pytest.mark.feature("K04")
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("parts", [[1, 2, 2, 1], [2, 2, 1, 1], [1, 4, 1, 1]])
def test_a_kernel_s_gradient_is_right_over_replicas_of_any_batch(parts, even):
    strategy = make(4)
    kernel = np.random.RandomState(3).randn(3, 3, 2, 4).astype(np.float32)
    middle = 4 if even else 6
    x = tf.distribute.PerReplica(
        (jnp.asarray(IMAGES[:middle]), jnp.asarray(IMAGES[middle:]))
    )

    def value(kernel, x, s=strategy, parts=parts):
        return jnp.sum(convolution(s, x, kernel, parts) ** 2)

    step = tf.function(lambda x: jax.grad(value)(kernel, x))
    found = strategy.reduce("sum", strategy.run(step, args=(x,)), axis=None)
    alone = make(1, replicas=1)
    wanted = jax.grad(value)(kernel, IMAGES, alone, [1] * 4)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.feature("K04")
@pytest.mark.parametrize(
    ("logical", "replicas", "parts"),
    [(4, 1, [1, 1, 2, 2]), (4, 2, [1, 2, 1, 2]), (8, 1, [1, 2, 2, 2])],
)
def test_a_split_whose_gradient_xla_gets_wrong_is_refused(logical, replicas, parts):
    strategy = make(logical, replicas)
    kernel = np.ones([3, 3, 2, 4], np.float32)

    def value(kernel, x):
        return jnp.sum(convolution(strategy, x, kernel, parts))

    forward = tf.function(lambda x: value(kernel, x))
    found = strategy.experimental_local_results(strategy.run(forward, args=(IMAGES,)))
    wanted = value(kernel, IMAGES)
    np.testing.assert_allclose(found, [wanted] * replicas, rtol=1e-5)
    backward = tf.function(lambda x: jax.grad(value)(kernel, x))
    with pytest.raises(ValueError, match="gradient of the kernel wrongly if both"):
        strategy.run(backward, args=(IMAGES,))


# ------------------------------------------------------------------- values and state


@pytest.mark.parametrize("logical", [2, 4, 8])
def test_variables_behave_as_those_of_a_mirrored_strategy(logical):
    strategy = make(logical)
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        shared = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
        own = tf.Variable(
            0.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    def step():
        index = tf.distribute.get_replica_context().replica_id_in_sync_group
        own.assign_add(jnp.asarray(index, jnp.float32) + 1.0)
        shared.assign_add(1.0)
        return index

    wanted = sum(range(1, replicas + 1))
    for calls, fn in enumerate([tf.function(step), step], start=1):
        found = strategy.run(fn)
        ids = [int(i) for i in strategy.experimental_local_results(found)]
        assert ids == list(range(replicas))
        assert float(own.read_value()) == calls * wanted
        assert float(shared.read_value()) == 1.0 + calls
    shared.assign(5.0)
    own.assign(8.0)
    assert (float(shared.read_value()), float(own.read_value())) == (5.0, 8.0)
    assert len(shared.state_cell.array.sharding.device_set) == 8


def test_a_variable_of_another_tpu_strategy_is_refused_by_name():
    ours, other = make(1), make(2)
    with other.scope():
        v = tf.Variable(1.0, name="theirs")
    for step in (lambda: v + 1, tf.function(lambda: v + 1)):
        with pytest.raises(
            RuntimeError, match=r"'theirs' belongs .* pass the value in"
        ):
            ours.run(step)
    value = v.numpy()
    found = ours.experimental_local_results(ours.run(lambda: jnp.add(value, 1)))
    assert [float(x) for x in found] == [2.0] * ours.num_replicas_in_sync


@pytest.mark.parametrize("logical", [2, 4, 8])
def test_uneven_batches_are_right_when_replicas_span_devices(logical):
    strategy = make(logical)
    data = tf.data.Dataset.from_tensor_slices(np.arange(11.0)).batch(8)

    @tf.function
    def step(x):
        return x * 2

    found = [
        strategy.gather(strategy.run(step, args=(x,)), axis=0)
        for x in strategy.experimental_distribute_dataset(data)
    ]
    np.testing.assert_array_equal(np.concatenate(found), np.arange(11.0) * 2)


@pytest.mark.parametrize("logical", [2, 8])
def test_collectives_and_merge_calls_are_between_replicas(logical):
    strategy = make(logical)
    replicas = strategy.num_replicas_in_sync
    values = strategy.experimental_distribute_values_from_function(
        lambda c: jnp.array([c.replica_id_in_sync_group, 1.0], jnp.float32)
    )

    def step(x):
        context = tf.distribute.get_replica_context()
        gathered = context.all_gather(x, axis=0)
        total = context.merge_call(
            lambda s, v: s.extended.reduce_to("sum", v, v), args=(x,)
        )
        return context.all_reduce("mean", x), gathered, total

    for fn in (step, tf.function(step)):
        found = strategy.run(fn, args=(values,))
        mean, gathered, total = (
            strategy.experimental_local_results(x)[-1] for x in found
        )
        np.testing.assert_allclose(mean, [(replicas - 1) / 2, 1.0])
        assert gathered.shape == (2 * replicas,)
        np.testing.assert_allclose(total, [replicas * (replicas - 1) / 2, replicas])


def test_a_checkpoint_moves_between_numbers_of_logical_devices(tmp_path):
    saved, restored = make(4), make(2)
    with saved.scope():
        v = tf.Variable(np.arange(8.0, dtype=np.float32))
    path = tf.train.Checkpoint(v=v).save(str(tmp_path / "c"))
    with restored.scope():
        w = tf.Variable(np.zeros(8, np.float32))
    tf.train.Checkpoint(v=w).restore(path).assert_consumed()
    np.testing.assert_array_equal(w.numpy(), np.arange(8.0))
    assert w.state_cell.array.sharding == w.state_cell.sharding


@pytest.mark.parametrize("logical", [1, 2, 4])
def test_a_tape_gives_the_gradients_of_replicas_on_logical_devices(logical):
    strategy = make(logical)
    replicas = strategy.num_replicas_in_sync
    start = np.random.default_rng(0).normal(size=(8, 8)).astype("f")
    with strategy.scope():
        w = tf.Variable(start)
    x = np.random.default_rng(1).normal(size=(replicas, 4, 8)).astype("f")
    parts = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(x[context.replica_id_in_sync_group])
    )

    def loss_fn(x, w):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    def replica_fn(x):
        if logical > 1:
            x = strategy.experimental_split_to_logical_devices(x, [1, logical])
        with tf.GradientTape() as tape:
            loss = loss_fn(x, w.value())
        return tape.gradient(loss, w)

    with strategy.scope():
        found = tf.function(lambda a: strategy.run(replica_fn, args=(a,)))(parts)
    for part, own in zip(x, found.values, strict=True):
        wanted = jax.grad(loss_fn, 1)(part, start)
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-5)
