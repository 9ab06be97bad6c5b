"""What threads assign at once is not lost; replicas assign numbers as arrays."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import central, device_names, mirrored, on_read, variable
from tests.threads import at_once, repeated
from unisono._src.state import assignment, storage

ROW = tf.IndexedSlices(jnp.ones(1), jnp.array([0]))


def on_replicas(v):
    return lambda: mirrored(2).run(lambda: v.assign_add(jnp.full(2, 0.5)))


def on_copies(v):
    return lambda: mirrored(2).extended.update(v, lambda c: c.assign_add(jnp.ones(2)))


def on_components(v):
    return lambda: [c.assign_add(jnp.ones(2)) for c in v.values]


def in_parts(v):
    whole = tf.distribute.ShardedVariable([v, tf.Variable(jnp.zeros(2))])
    return lambda: whole.assign_add(jnp.ones(4))


def plain():
    return tf.Variable(jnp.zeros(2))


def mirror():
    return variable(mirrored(2), jnp.zeros(2), "SUM")


def split():
    strategy = tf.distribute.MirroredStrategy(
        device_names(2), state="sharded", shard_above=1
    )
    return variable(strategy, jnp.zeros(2))


CHANGES = {
    "assign_add": (plain, lambda v: lambda: v.assign_add(jnp.ones(2))),
    "assign_sub": (plain, lambda v: lambda: v.assign_sub(-jnp.ones(2))),
    "scatter_add": (plain, lambda v: lambda: v.scatter_add(ROW)),
    "a slice": (plain, lambda v: lambda: v.scatter_nd_add([[0]], [1.0])),
    "in parts": (plain, in_parts),
    "mirrored": (mirror, lambda v: lambda: v.assign_add(jnp.ones(2))),
    "mirrored scatter_add": (mirror, lambda v: lambda: v.scatter_add(ROW)),
    "replicas": (mirror, on_replicas),
    "copies": (mirror, on_copies),
    "components": (mirror, on_components),
    "on read": (lambda: on_read(mirrored(2), jnp.zeros(2)), on_replicas),
    "sharded": (split, lambda v: lambda: v.assign_add(jnp.ones(2))),
    "central": (
        lambda: variable(central(2), jnp.zeros(2)),
        lambda v: lambda: v.assign_add(jnp.ones(2)),
    ),
}


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("kind", CHANGES)
def test_eager_changes_of_threads_add_up(kind):
    make, bind = CHANGES[kind]
    v = make()
    change = bind(v)
    change()
    # The shortest changes must be tried more often.
    times = 200 if kind in ("assign_add", "assign_sub") else 20
    at_once(*[repeated(change, times)] * 3)
    assert v.numpy()[0] == 3 * times + 1


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("make", [plain, mirror])
def test_eager_changes_and_steps_of_threads_add_up(make):
    v = make()
    step = tf.function(lambda: v.assign_add(jnp.ones(2)))
    step()
    at_once(repeated(step, 200), repeated(lambda: v.assign_add(jnp.ones(2)), 200))
    assert v.numpy()[0] == 401.0


def test_a_value_that_is_assigned_beside_a_step_is_not_undone():
    v = tf.Variable(0.0)
    step = tf.function(lambda: v.assign_add(1.0))
    step()
    for _ in range(20):
        at_once(repeated(step, 3), lambda: v.assign(100.0))
        assert v.numpy() >= 100.0


def test_a_gradient_that_changes_its_variable_keeps_what_others_assign():
    v = tf.Variable(1.0)

    def loss():
        at_once(lambda: v.assign(10.0))
        return v.assign_add(1.0) * 2.0

    value, gradient = tf.value_and_grad(loss, v)()
    assert (float(value), float(gradient), float(v.numpy())) == (22.0, 2.0, 11.0)


@pytest.mark.needs_devices(2)
def test_workers_are_waited_for_without_the_lock(monkeypatch):
    v = mirror()
    cell = v.state_cell
    met = []

    def meet(cell, new):
        met.append(float(new[0]))
        # Another thread gets the lock meanwhile, and its change is not lost.
        if len(met) == 1:
            at_once(lambda: v.assign_add(jnp.full(2, 10.0)))

    monkeypatch.setattr(assignment, "check_workers", meet)
    assignment.change_whole(cell, lambda old: old + 1.0, among_workers=True)
    assert met == [1.0]
    assert v.numpy()[0] == 11.0


def test_a_change_that_fails_gives_the_lock_back():
    v = tf.Variable(1.0)
    with pytest.raises(ZeroDivisionError):
        assignment.change_copy(v.state_cell, None, lambda old: old / (1 // 0))
    at_once(lambda: v.assign_add(1.0))
    assert v.numpy() == 2.0
    assert storage.LOCK.acquire(blocking=False)
    storage.LOCK.release()


# A number of Python's takes the short way of arrays where the result is the same.
NUMBERS = {
    "float": (0.5, jnp.float32, "MEAN", 0.5),
    "int in float": (3, jnp.float32, "MEAN", 3.0),
    "int in int": (3, jnp.int32, "ONLY_FIRST_REPLICA", 3),
    "bool in float": (True, jnp.float32, "MEAN", 1.0),
    "NumPy's float": (np.float64(0.5), jnp.float32, "MEAN", 0.5),
    "unsigned": (3, jnp.uint32, "ONLY_FIRST_REPLICA", 3),
    "narrow": (0.5, jnp.bfloat16, "MEAN", 0.5),
    "large": (2.0**40, jnp.float32, "MEAN", 2.0**40),
    "not a number": (math.nan, jnp.float32, "MEAN", math.nan),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_replicas_assign_a_number_of_pythons(kind):
    given, dtype, aggregation, expected = NUMBERS[kind]
    v = variable(mirrored(2), jnp.zeros((), dtype), aggregation)
    new = mirrored(2).run(lambda: v.assign_add(given))
    assert v.dtype == dtype
    for found in (*new.values, *v.values, v):
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.asarray(found, np.float64), expected)
    mirrored(2).run(lambda: v.assign_sub(given))
    mirrored(2).run(lambda: v.assign(given))
    np.testing.assert_array_equal(np.asarray(v, np.float64), expected)


def test_replicas_that_give_different_numbers_assign_their_mean():
    v = variable(mirrored(2), 0.0, "MEAN")
    context = tf.distribute.get_replica_context
    mirrored(2).run(
        lambda: v.assign_add(float(context().replica_id_in_sync_group) + 1.0)
    )
    assert float(v.numpy()) == 1.5


@pytest.mark.parametrize(
    ("given", "value", "error"),
    [
        (0.5, jnp.zeros((), jnp.int32), TypeError),
        (2**40, jnp.zeros((), jnp.int32), OverflowError),
        (-1, jnp.zeros((), jnp.uint32), OverflowError),
        (0.5, jnp.zeros(2), ValueError),
    ],
)
def test_replicas_cannot_assign_a_number_that_does_not_fit(given, value, error):
    v = variable(mirrored(2), value, "ONLY_FIRST_REPLICA")
    with pytest.raises(error):
        mirrored(2).run(lambda: v.assign_add(given))
    assert not np.asarray(v).any()


def test_replicas_cannot_sum_one_number():
    v = variable(mirrored(2), 0.0, "SUM")
    with pytest.raises(ValueError, match="SUM"):
        mirrored(2).run(lambda: v.assign_add(1.0))


@pytest.mark.parametrize("value", [5, -5, 2**31 - 1])
def test_a_sum_of_whole_numbers_reads_as_it_was_assigned(value):
    v = on_read(mirrored(2), 0, "SUM")
    v.assign(value)
    assert int(v.numpy()) == value
    tf.function(lambda: v.assign(value))()
    assert int(v.numpy()) == value


def test_only_plain_numbers_take_the_short_way_to_a_variable():
    class Half(float):
        """A number that a program has made its own."""

    strategy = mirrored(2)
    v = variable(strategy, 1.0, aggregation="MEAN")
    for add in (v.assign_add, tf.function(v.assign_add)):
        with pytest.raises(TypeError, match="cast the value first"):
            strategy.run(add, args=(Half(0.5),))
    strategy.run(v.assign_add, args=(0.5,))
    assert float(v.numpy()) == 1.5
