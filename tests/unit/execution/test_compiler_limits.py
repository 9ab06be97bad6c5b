"""Programs on which XLA ends the process are compiled another way."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf

ROWS = np.random.RandomState(6).randn(16, 8).astype(np.float32)
CUBE = np.random.RandomState(7).randn(8, 4, 8).astype(np.float32)
IDS = np.array([[3, 0], [1, 3], [2, 3], [3, 3]])


def take(split, ids):
    return jnp.take(split(ROWS, [2, 2]), ids, axis=0)


def take_from_the_middle(split, ids):
    return jnp.take(split(CUBE, [1, 2, 2]), ids, axis=1)


def take_after_arithmetic(split, ids):
    return jnp.take(jnp.tanh(split(ROWS, [2, 2])) + 1, ids, axis=0)


def take_in_a_loop(split, ids):
    table = split(ROWS, [2, 2])
    return jax.lax.map(lambda row: jnp.take(table, row, axis=0), ids)


def take_along_an_axis(split, ids):
    rows = jnp.broadcast_to(ids[:, :1], (4, 8))
    return jnp.take_along_axis(split(ROWS, [2, 2]), rows, axis=0)


def take_for_split_results(split, ids):
    return split(jnp.take(split(ROWS, [4, 1]), ids, axis=0), [2, 1, 2])


def add_rows(split, ids):
    added = split(jnp.ones((*ids.shape, 8)), [2, 1, 2])
    return split(ROWS, [2, 2]).at[ids].add(added)


def gradient_of_take(split, ids):
    def loss(rows):
        return jnp.sum(jnp.take(split(rows, [2, 2]), ids, axis=0) ** 2)

    return jax.grad(loss)(jnp.asarray(ROWS))


@pytest.mark.needs_devices(8)
@pytest.mark.parametrize(
    "fn",
    [
        take,
        take_from_the_middle,
        take_after_arithmetic,
        take_in_a_loop,
        take_along_an_axis,
        take_for_split_results,
        add_rows,
        gradient_of_take,
    ],
    ids=lambda fn: fn.__name__,
)
def test_arrays_split_along_several_axes_can_be_indexed(fn):
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        tf.tpu.experimental.initialize_tpu_system(resolver),
        computation_shape=[2, 1, 1, 2],
        num_replicas=2,
    )
    strategy = tf.distribute.TPUStrategy(
        resolver, experimental_device_assignment=assignment
    )
    split = strategy.experimental_split_to_logical_devices
    step = tf.function(lambda ids: fn(split, ids))
    wanted = fn(lambda x, parts: jnp.asarray(x), IDS)
    for found in strategy.experimental_local_results(strategy.run(step, args=(IDS,))):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("compile_it", [tf.function, lambda fn: fn])
def test_replicas_may_have_empty_arrays(compile_it):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weights = tf.Variable(jnp.ones((0, 3)))
    outside = jnp.ones((0,))

    def replica_fn(x, y):
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", x)
        return x @ weights + y + outside.sum(), total, x

    @compile_it
    def step(x, y):
        made, total, x = strategy.run(replica_fn, args=(x, y))
        return strategy.reduce("SUM", made, axis=None), total, x

    x = tf.distribute.PerReplica((jnp.ones((2, 0)), jnp.ones((2, 0))))
    made, total, kept = step(x, jnp.ones(3))
    np.testing.assert_array_equal(made, np.full((2, 3), 2.0))
    assert [p.shape for p in strategy.experimental_local_results(total)] == [(2, 0)] * 2
    for op in ("SUM", "MEAN"):
        assert strategy.reduce(op, kept, axis=None).shape == (2, 0)
