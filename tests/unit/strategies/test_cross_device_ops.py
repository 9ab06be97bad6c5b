"""Programs may call the cross-device operations, and give a strategy their own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf

pytestmark = pytest.mark.needs_devices(2)

D = tf.distribute
NAMES = ["CPU:0", "CPU:1"]
OPS = [
    D.ReductionToOneDevice(),
    D.ReductionToOneDevice("CPU:1"),
    D.ReductionToOneDevice(accumulation_fn=sum),
    D.NcclAllReduce(),
    D.HierarchicalCopyAllReduce(2),
]


def values(*numbers):
    """Per-replica values on a device each."""
    placed = jax.device_put([jnp.asarray(n) for n in numbers], jax.devices()[:2])
    return D.PerReplica(placed)


def device_of(x):
    return next(iter(x.sharding.device_set))


@pytest.mark.parametrize("ops", OPS, ids=repr)
def test_values_are_reduced_where_the_destination_says(ops):
    x = values(1.0, 5.0)
    total = ops.reduce("SUM", x, "CPU:1")
    assert (float(total), device_of(total)) == (6.0, jax.devices()[1])
    mean = ops.reduce(D.ReduceOp.MEAN, x, x)
    assert isinstance(mean, D.Mirrored)
    assert [(float(v), device_of(v)) for v in mean.values] == [
        (3.0, d) for d in jax.devices()[:2]
    ]


@pytest.mark.parametrize("ops", OPS, ids=repr)
def test_pairs_are_reduced_together(ops):
    x, y = values(1.0, 2.0), values([1.0, 2.0], [3.0, 4.0])
    a, b = ops.batch_reduce("SUM", [(x, "CPU:0"), (y, y)])
    assert float(a) == 3.0
    assert [v.tolist() for v in b.values] == [[4.0, 6.0]] * 2


@pytest.mark.parametrize("ops", OPS, ids=repr)
def test_values_are_gathered_and_broadcast(ops):
    x = values([1, 2], [3])
    assert ops.gather(x, "CPU:0", axis=0).tolist() == [1, 2, 3]
    assert [v.tolist() for v in ops.gather(x, x, axis=0).values] == [[1, 2, 3]] * 2
    assert [v.tolist() for v in ops.broadcast(jnp.arange(2), x).values] == [[0, 1]] * 2
    assert device_of(ops.broadcast(jnp.arange(2), "CPU:1")) == jax.devices()[1]


def test_slices_are_concatenated_and_never_gathered():
    parts = [tf.IndexedSlices(jnp.ones((1, 2)), jnp.array([i]), (3, 2)) for i in (0, 2)]
    ops = D.NcclAllReduce()
    found = ops.reduce("SUM", D.PerReplica(parts), "CPU:0")
    assert found.indices.tolist() == [0, 2]
    with pytest.raises(NotImplementedError, match="IndexedSlices"):
        ops.gather(D.PerReplica(parts), "CPU:0", axis=0)


def test_one_value_that_is_there_stays_as_it_is():
    found = D.NcclAllReduce().reduce("SUM", jnp.asarray(3.0), "CPU:0")
    assert float(found) == 3.0


def test_a_variable_names_the_devices_of_its_copies():
    strategy = D.MirroredStrategy(NAMES)
    with strategy.scope():
        v = tf.Variable(0.0)
    found = D.NcclAllReduce().reduce("SUM", values(1.0, 2.0), v)
    assert [float(x) for x in found.values] == [3.0, 3.0]
    assert float(v.numpy()) == 0.0


@pytest.mark.parametrize("where", [None, 3, ["CPU:0"]])
def test_destinations_that_are_no_place_are_refused(where):
    with pytest.raises(ValueError, match="destinations must be one of"):
        D.NcclAllReduce().reduce("SUM", values(1.0, 2.0), where)


def test_wrong_calls_are_refused():
    make: Any = D.CrossDeviceOps
    ops = D.NcclAllReduce()
    with pytest.raises(ValueError, match="destinations can not be empty"):
        ops.broadcast(jnp.ones(1), "")
    with pytest.raises(ValueError, match="should be a tuple of size 2"):
        ops.batch_reduce("SUM", [values(1.0, 2.0)])
    with pytest.raises(NotImplementedError, match="implemented in descendants"):
        make().reduce("SUM", values(1.0, 2.0), "CPU:0")
    strategy = D.MirroredStrategy(NAMES)
    with pytest.raises(RuntimeError, match="cross-replica context"):
        strategy.run(lambda: ops.broadcast(jnp.ones(1), "CPU:0"))


class Noted(D.NcclAllReduce):
    """Adds twice the values, and notes what it is asked for."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, opts):
        self.asked.append("reduce")
        twice = D.PerReplica([2 * x for x in per_replica_value.values])
        return super().reduce_implementation(reduce_op, twice, destinations, opts)

    def batch_reduce_implementation(self, reduce_op, pairs, opts):
        self.asked.append(f"batch of {len(pairs)}")
        return super().batch_reduce_implementation(reduce_op, pairs, opts)

    def broadcast_implementation(self, tensor, destinations):
        self.asked.append("broadcast")
        return super().broadcast_implementation(tensor, destinations)

    def _gather_implementation(self, value, destinations, axis, opts):
        self.asked.append("gather")
        return super()._gather_implementation(value, destinations, axis, opts)


def test_a_strategy_combines_by_the_program_s_own_class():
    ops = Noted()
    strategy = D.MirroredStrategy(NAMES, cross_device_ops=ops)
    x = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.full(1, float(context.replica_id_in_sync_group + 1))
    )
    assert strategy.reduce("SUM", x, axis=None).tolist() == [6.0]
    assert ops.asked == ["reduce", "broadcast"]
    assert float(strategy.reduce("MEAN", x, axis=0)) == 1.5  # Of 12 and 8.
    ops.asked.clear()
    assert strategy.extended.reduce_to("MEAN", x, x).values[1].tolist() == [3.0]
    pairs = [(x, x), (x, "CPU:0")]
    found = strategy.extended.batch_reduce_to("SUM", pairs)
    assert [float(jnp.squeeze(v)) for v in found] == [6.0, 6.0]
    assert "batch of 2" in ops.asked
    ops.asked.clear()
    assert strategy.gather(x, axis=0).tolist() == [1.0, 2.0]
    assert ops.asked == ["gather", "broadcast"]
    ops.asked.clear()
    strategy.extended.broadcast_to(jnp.ones(1), x)
    assert ops.asked == ["broadcast"]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("n", [2, 8])
def test_replicas_reduce_by_the_program_s_own_class(compiled, n):
    ops = Noted()
    strategy = D.MirroredStrategy([f"CPU:{i}" for i in range(n)], ops)

    def step(x):
        context = D.get_replica_context()

        def loss(y):
            return jnp.sum(context.all_reduce("SUM", y * y))

        return context.all_reduce("SUM", {"x": x})["x"], jax.grad(loss)(x)

    x = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.full(2, float(context.replica_id_in_sync_group))
    )
    run = tf.function(step) if compiled else step
    total, gradient = strategy.run(run, args=(x,))
    expected = 2.0 * sum(range(n))
    for i, (t, g) in enumerate(
        zip(
            strategy.experimental_local_results(total),
            strategy.experimental_local_results(gradient),
            strict=True,
        )
    ):
        np.testing.assert_allclose(t, expected)
        # Each replica's loss counts each value twice: 2 * n times the derivative 2 x.
        np.testing.assert_allclose(g, 2.0 * n * 2.0 * i)
    assert "batch of 1" in ops.asked


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_s_gradients_are_summed_by_the_program_s_own_class(compiled):
    optax = pytest.importorskip("optax")
    ops = Noted()
    strategy = D.MirroredStrategy(NAMES, ops)
    with strategy.scope():
        v = tf.Variable([1.0, 1.0])
        optimizer = tf.optimizers.Optimizer(optax.sgd(0.1), [v])

    def step():
        _, (gradient,) = tf.value_and_grad(lambda: jnp.sum(v * v), [v])()
        optimizer.apply_gradients([(gradient, v)])

    strategy.run(tf.function(step) if compiled else step)
    # The gradient is 2 on each of two replicas, and the sum counts it twice.
    np.testing.assert_allclose(v.numpy(), 1 - 0.1 * 8, rtol=1e-6)


def test_an_accumulation_function_adds_the_values():
    seen = []

    def largest(parts):
        seen.append(len(parts))
        return jnp.stack(parts).max(axis=0)

    ops = D.ReductionToOneDevice(accumulation_fn=largest)
    strategy = D.MirroredStrategy(NAMES, ops)
    x = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.asarray(float(context.replica_id_in_sync_group + 4))
    )
    assert float(strategy.reduce("SUM", x, axis=None)) == 5.0
    assert float(strategy.reduce("MEAN", x, axis=None)) == 2.5
    assert seen == [2, 2]
