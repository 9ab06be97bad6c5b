"""Keras and Flax models whose weights and slots are split over devices."""

import importlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests import machine
from tests.integration.programs import difference, examples, scope
from unisono._src.execution import late_gathers

keras = pytest.importorskip("keras")
pytest.importorskip("flax")
layers = keras.layers

CLOSE = 5e-6
BLOCKS = {2: [1, 1, 1, 2], 4: [2, 1, 1, 2]}


def over_replicas(replicas):
    names = machine.names(replicas)
    return uni.distribute.MirroredStrategy(names, state="sharded", shard_above=32)


def over_logical_devices(logical, **options):
    built = uni.tpu.experimental.DeviceAssignment.build(
        uni.tpu.experimental.initialize_tpu_system(),
        computation_shape=BLOCKS[logical],
        num_replicas=2,
    )
    return uni.distribute.TPUStrategy(experimental_device_assignment=built, **options)


def network(strategy, optimizer, image=False):
    with scope(strategy):
        keras.utils.set_random_seed(3)
        middle = [layers.BatchNormalization()]
        if image:
            reshaped = layers.Reshape((4, 4, 3))
            middle = [reshaped, layers.Conv2D(8, 3, padding="same"), layers.Flatten()]
        first = [layers.Input((5,)), layers.Dense(48, use_bias=False)]
        model = keras.Sequential([*first, *middle, layers.ReLU(), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer(), loss, metrics=["accuracy"])
    return model


def fitted(strategy, optimizer, image=False):
    model = network(strategy, optimizer, image)
    x, y = examples(19)
    history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, shuffle=False)
    found = {
        "history": history.history,
        "evaluate": model.evaluate(x, y, batch_size=8, verbose=0),
        "predict": model.predict(x, batch_size=8, verbose=0),
        "weights": model.get_weights(),
        "optimizer": [np.array(v) for v in model.optimizer.variables],
    }
    return model, found


def adam():
    return keras.optimizers.Adam(0.01)


def clipped():
    return keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.5)


def parts(variable):
    array = variable._unisono_variable.state_cell.array
    return {s.data.shape for s in array.addressable_shards}


@pytest.mark.feature("V01", "T01")
def test_fit_gives_the_numbers_of_one_device_in_part_of_the_memory():
    _, wanted = fitted(None, clipped)
    model, found = fitted(over_replicas(4), clipped)
    assert difference(found, wanted) < CLOSE
    kernel = model.layers[0].kernel
    slots = [v for v in model.optimizer.variables if v.shape == kernel.shape]
    assert [parts(v) for v in (kernel, *slots)] == [{(5, 12)}] * (1 + len(slots))
    rows = model.distribute_strategy.describe(model).rows
    large = [r for r in rows if np.prod(r.shape) >= 32]
    assert {r.placement for r in large} == {"sharded"}
    assert all(r.bytes_per_device == np.prod(r.shape) for r in large)


@pytest.mark.needs_devices(8)
@pytest.mark.feature("V01", "T03")
@pytest.mark.parametrize(
    ("logical", "options"),
    [(2, {}), (4, {"state": "sharded", "shard_above": 32})],
    ids=["whole", "split"],
)
def test_fit_runs_on_replicas_that_span_devices(logical, options):
    _, wanted = fitted(None, adam, image=True)
    model, found = fitted(over_logical_devices(logical, **options), adam, image=True)
    assert difference(found, wanted) < CLOSE
    assert parts(model.layers[0].kernel) == {(5, 48 // logical if options else 48)}


class Steps:
    """Keeps the steps that Keras compiles, and the shapes of their first call."""

    def __init__(self, monkeypatch):
        trainer = importlib.import_module("keras.src.backend.jax.trainer")
        outer = trainer.jit
        self.called = {}

        def jit(fn, **options):
            jitted = outer(fn, **options)

            def call(*args):
                shapes = jax.tree.map(describe, args)
                self.called.setdefault(fn.__name__, (jitted, shapes))
                return jitted(*args)

            return call

        monkeypatch.setattr(trainer, "jit", jit)
        # Layers are small here: without this, all would share one gather.
        monkeypatch.setattr(late_gathers, "SHARED", 0)

    def compiled(self, name):
        jitted, shapes = self.called[name]
        return jitted.lower(*shapes).compile()


def describe(x):
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def shapes(text, name):
    """The shapes of what the operations of a name give."""
    lines = re.findall(rf"= (\(.*?\)|\S+) {name}(?:-start)?\(", text)
    return [x for line in lines for x in re.findall(r"\w+\[[\d,]*\]", line)]


def count(text, name):
    return len(shapes(text, name))


LAYERS, SIZE = 6, 64


def deep(strategy):
    with strategy.scope():
        keras.utils.set_random_seed(3)
        dense = [
            layers.Dense(SIZE, activation="tanh", use_bias=False) for _ in range(LAYERS)
        ]
        model = keras.Sequential([layers.Input((SIZE,)), *dense])
        model.compile("adam", "mse")
    return model


@pytest.mark.needs_devices(8)
@pytest.mark.feature("V01", "T01")
@pytest.mark.parametrize("replicas", [2, 8])
def test_fit_holds_a_few_layers_and_not_the_whole_model(monkeypatch, replicas):
    steps = Steps(monkeypatch)
    names = machine.names(replicas)
    options = {"state": "sharded", "shard_above": 64}
    strategy = uni.distribute.MirroredStrategy(names, **options)
    model = deep(strategy)
    x = np.random.default_rng(0).normal(size=(32, SIZE)).astype(np.float32)
    wanted = deep(uni.distribute.MirroredStrategy(names))
    given = {"batch_size": 16, "verbose": 0, "shuffle": False, "epochs": 2}
    history = wanted.fit(x, x, validation_data=(x, x), **given).history
    steps.called.clear()
    assert model.fit(x, x, validation_data=(x, x), **given).history == history
    model.predict(x, batch_size=16, verbose=0)
    with model.distribute_strategy.scope():
        found = {name: steps.compiled(name) for name in steps.called}
    held = found["train_step"].memory_analysis().temp_size_in_bytes
    assert held < 3.5 * SIZE * SIZE * 4
    text = found["train_step"].as_text()
    # The gradient of the input is not asked for, so the first weight is read once.
    assert count(text, "all-gather") == 2 * LAYERS - 1
    assert count(text, "reduce-scatter") == LAYERS
    for name in ("test_step", "predict_step"):
        assert count(found[name].as_text(), "all-gather") == LAYERS
        held = found[name].memory_analysis().temp_size_in_bytes
        assert held < 2.5 * SIZE * SIZE * 4


def convolutions():
    conv = [
        layers.Conv2D(16, 3, strides=2, padding="same", activation="tanh"),
        layers.Conv2DTranspose(8, 3, strides=2),
        layers.Conv2D(8, 3, dilation_rate=2, use_bias=False),
    ]
    return [layers.Reshape((4, 4, 4)), *conv, layers.Flatten(), layers.Dense(1)]


def lookups():
    table = layers.Embedding(16, 8)
    return [layers.Lambda(lambda x: x.astype(int) % 16), table, layers.Flatten()]


@pytest.mark.needs_devices(4)
@pytest.mark.feature("V01", "T01")
@pytest.mark.parametrize(
    ("make", "scatters"),
    [
        (convolutions, ["f32[3,3,2,8]", "f32[3,3,4,4]", "f32[3,3,8,4]"]),
        (lookups, ["f32[4,8]"]),
    ],
)
def test_fit_cuts_gradients_of_convolutions_and_lookups(monkeypatch, make, scatters):
    def fit(**options):
        strategy = uni.distribute.MirroredStrategy(machine.names(4), **options)
        with strategy.scope():
            keras.utils.set_random_seed(3)
            model = keras.Sequential([layers.Input((SIZE,)), *make()])
            model.compile(keras.optimizers.SGD(0.01), "mse")
        rng = np.random.default_rng(0)
        x, y = rng.uniform(0, 99, size=(19, SIZE)), rng.normal(size=(19, 1))
        given = {"batch_size": 8, "verbose": 0, "shuffle": False, "epochs": 2}
        history = model.fit(x.astype(np.float32) / 9, y, **given).history
        return model, [history["loss"], *model.get_weights()]

    steps = Steps(monkeypatch)
    _, wanted = fit()
    steps.called.clear()
    model, found = fit(state="sharded", shard_above=100)
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)
    with model.distribute_strategy.scope():
        text = steps.compiled("train_step").as_text()
    assert sorted(shapes(text, "reduce-scatter")) == scatters
    # Biases, and the loss; no kernel, nor the table.
    sums = [re.findall(r"\d+", x)[1:] for x in shapes(text, "all-reduce")]
    assert all(np.prod([int(n) for n in x]) < 100 for x in sums)


def test_fit_gathers_before_the_step_if_that_is_asked_for(monkeypatch):
    steps = Steps(monkeypatch)
    options = {"state": "sharded", "shard_above": 64, "gather": "step"}
    model = deep(uni.distribute.MirroredStrategy(machine.names(2), **options))
    x = np.ones((8, SIZE), np.float32)
    model.fit(x, x, verbose=0)
    with model.distribute_strategy.scope():
        text = steps.compiled("train_step").as_text()
    assert count(text, "all-gather") == LAYERS


def trained(strategy, optimizer):
    """A custom loop; gives what came out, and the text of the program."""
    model = network(strategy, optimizer)
    count = strategy.num_replicas_in_sync

    def replica_step(x, y):
        def loss_fn():
            losses = keras.losses.sparse_categorical_crossentropy(
                y, model(x, training=True), from_logits=True
            )
            return jnp.sum(losses) / (len(y) * count)

        weights = model.trainable_variables
        loss, gradients = uni.value_and_grad(loss_fn, weights)()
        model.optimizer.apply_gradients(zip(gradients, weights))
        return loss

    @uni.function
    def step(x, y):
        found = strategy.run(replica_step, args=(x, y))
        return strategy.reduce("SUM", found, axis=None)

    data = uni.data.Dataset.from_tensor_slices(examples(16)).batch(8)
    batches = list(strategy.experimental_distribute_dataset(data))
    losses = [float(step(*batch)) for batch in batches]
    slots = [np.array(v) for v in model.optimizer.variables]
    text = step.lowered(*batches[0]).as_text()
    return (losses, model.get_weights(), slots), text


@pytest.mark.feature("V01")
def test_a_custom_loop_updates_parts():
    names = [f"CPU:{i}" for i in range(4)]
    wanted, _ = trained(uni.distribute.MirroredStrategy(names), clipped)
    found, text = trained(over_replicas(4), clipped)
    assert difference(found, wanted) < CLOSE
    # Weights are gathered, to compute with them; no slot is.
    gathered = re.findall(r"stablehlo.all_gather.* -> tensor<(\w+)xf32>", text)
    assert sorted(gathered) == ["48"] * 4 + ["48x3", "5x48"]
    assert text.count("stablehlo.reduce_scatter") == 4


def test_rules_of_a_model_hold_for_its_slots_and_are_checked_by_fit():
    def model(rules):
        names = machine.names(4)
        options = {"state": "sharded", "shard_above": 32, "shard_rules": rules}
        return network(uni.distribute.MirroredStrategy(names, **options), adam)

    x, y = examples(8)
    with pytest.raises(ValueError, match=r"'karnel' of shard_rules.*/kernel'"):
        model({"karnel": 0}).fit(x, y, verbose=0)
    kept = model({r"dense(_\d+)?/kernel": None})
    with kept.distribute_strategy.scope():
        kept.optimizer.build(kept.trainable_variables)
    kernel = kept.layers[0].kernel
    slots = [v for v in kept.optimizer.variables if v.shape == kernel.shape]
    assert [parts(v) for v in (kernel, *slots)] == [{(5, 48)}] * 3


def test_kernels_are_made_part_by_part():
    seen = []

    def initial(shape, dtype=None):
        seen.append(jax.random.normal(jax.random.key(0), shape, dtype))
        return seen[-1]

    with over_replicas(4).scope():
        dense = layers.Dense(8, kernel_initializer=initial)
        dense.build((None, 16))
    assert [isinstance(x, jax.core.Tracer) for x in seen] == [True]
    assert parts(dense.kernel) == {(4, 8)}
    wanted = jax.random.normal(jax.random.key(0), (16, 8))
    np.testing.assert_allclose(dense.kernel, wanted, rtol=1e-6)


def test_flax_modules_train_with_the_same_numbers():
    from tests.integration.test_flax import loop

    names = ["CPU:0", "CPU:1"]
    wanted = loop(uni.distribute.MirroredStrategy(names), count=16)
    sharded = uni.distribute.MirroredStrategy(names, state="sharded", shard_above=8)
    assert difference(loop(sharded, count=16), wanted) < CLOSE


def flax_step(strategy, tx):
    """A step of a Flax model, its batch, and everything that it trains."""
    import flax.nnx as nnx

    with strategy.scope():
        rngs = nnx.Rngs(0)
        model = nnx.Sequential(
            nnx.Linear(16, 32, rngs=rngs), jnp.tanh, nnx.Linear(32, 8, rngs=rngs)
        )
        optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    @uni.function
    def step(x):
        def replica(x):
            value, gradients = nnx.value_and_grad(lambda m: jnp.mean(m(x) ** 2))(model)
            optimizer.update(model, gradients, value=jnp.float32(1))
            return value

        return strategy.reduce("MEAN", strategy.run(replica, args=(x,)), axis=None)

    rows = np.random.default_rng(0).normal(size=(8, 2, 16)).astype(np.float32)
    batch = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(rows[context.replica_id_in_sync_group])
    )
    return step, batch, lambda: jax.tree.leaves(nnx.state((model, optimizer)))


@pytest.mark.feature("T01")
@pytest.mark.parametrize("name", ["adam", "clipped", "adafactor"])
def test_flax_optimizers_update_parts(name):
    optax = pytest.importorskip("optax")
    tx = {
        "adam": optax.adam(0.01),
        "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.1, 0.9)),
        "adafactor": optax.adafactor(0.01, min_dim_size_to_factor=4),
    }[name]

    def found(strategy):
        step, batch, state = flax_step(strategy, tx)
        losses = [float(step(batch)) for _ in range(3)]
        return (losses, [np.asarray(v) for v in state()]), step.lowered(batch).as_text()

    names = machine.names(4)
    wanted, _ = found(uni.distribute.MirroredStrategy(names))
    own, text = found(over_replicas(4))
    assert difference(own, wanted) < CLOSE
    if name != "adafactor":
        # Two kernels and a bias. No slot is gathered.
        assert text.count("stablehlo.reduce_scatter") == 3
        gathered = re.findall(r"stablehlo.all_gather.* -> tensor<(\w+)xf32>", text)
        assert sorted(gathered) == ["16x32", "32", "32x8"]


@pytest.mark.feature("T01")
def test_an_estimator_minimizes_with_the_same_numbers(tmp_path):
    optax = pytest.importorskip("optax")
    x, y = examples(24)
    x, y = x.astype(np.float32), y.astype(np.float32)[:, None]

    def model_fn(features, labels, mode):
        kernel = uni.compat.v1.get_variable("kernel", (5, 8), initializer=ones)
        loss = jnp.mean((jnp.sum(features @ kernel, 1, keepdims=True) - labels) ** 2)
        train = uni.estimator.minimize(optax.adam(0.01), loss)
        return uni.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    def ones(shape, dtype=None, **_):
        return jnp.ones(shape, dtype)

    def batches():
        return uni.data.Dataset.from_tensor_slices((x, y)).batch(6)

    def kernel(kind, strategy):
        config = uni.estimator.RunConfig(train_distribute=strategy)
        made = uni.estimator.Estimator(model_fn, str(tmp_path / kind), config)
        made.train(batches)
        return made.get_variable_value("kernel")

    mirrored = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    wanted = kernel("mirrored", mirrored)
    np.testing.assert_allclose(kernel("sharded", over_replicas(2)), wanted, rtol=1e-5)
    assert abs(wanted - 1).max() > 0.01
