"""`if`, `and`, `or`, `not`, conditional expressions and `assert` on traced values."""
# ruff: noqa: SIM108

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf


def test_a_name_that_one_branch_defines_is_an_error_with_the_line():
    @tf.function
    def f(x):
        if x > 0:
            y = 1
        return y

    said = r"test_branches.py, line 18: 'y' must also be initialized in the else branch"
    with pytest.raises(ValueError, match=said):
        f(jnp.asarray(1.0))


def test_a_name_that_is_not_read_later_may_differ():
    @tf.function
    def f(x):
        if x > 0:
            t = jnp.zeros(3)
            y = x + t.sum()
        else:
            y = -x
        return y

    assert float(f(jnp.asarray(-2.0))) == 2.0


def test_types_and_shapes_that_differ_are_errors_with_the_name():
    @tf.function
    def types(x):
        if x > 0:
            y: Any = 1
        else:
            y = 2.5
        return y

    @tf.function
    def shapes(x):
        if x > 0:
            y = tf.zeros([2])
        else:
            y = tf.zeros([3])
        return y

    x = jnp.asarray(1.0)
    said = "'y' has dtype int32 in the main branch, but dtype float32 in the else"
    with pytest.raises(TypeError, match=said):
        types(x)
    with pytest.raises(ValueError, match=r"'y' has shape \(2,\) in the main branch"):
        shapes(x)


def test_a_function_that_returns_in_one_branch_only_is_an_error():
    @tf.function
    def f(x):
        if x > 0:
            return x

    with pytest.raises(TypeError, match=r"the return value is float32.* but is None"):
        f(jnp.asarray(1.0))


def test_a_condition_with_several_elements_is_refused():
    @tf.function
    def f(x):
        y = x
        if not x > 0:
            y = -x
        return y

    with pytest.raises(ValueError, match=r"more than one element|reduce_all"):
        f(jnp.asarray([1.0, 2.0]))


def test_early_returns_of_structures_work():
    @tf.function
    def f(x):
        if x > 10:
            return {"a": x, "b": (x, 1)}
        y = x * 2
        if y > 10:
            return {"a": y, "b": (x, 2)}
        return {"a": -y, "b": (y, 3)}

    found = [f(jnp.asarray(v)) for v in (11.0, 6.0, 1.0)]
    assert [float(r["a"]) for r in found] == [11.0, 12.0, -2.0]
    assert [int(r["b"][1]) for r in found] == [1, 2, 3]


def test_objects_that_both_branches_leave_alike_stay_what_they_are():
    v = tf.Variable(3.0)

    @tf.function
    def f(x):
        name, value = "none", None
        if x > 0:
            name, chosen = "some", v
        else:
            name, chosen = "some", v
        assert name == "some"
        assert value is None
        chosen.assign_add(x)
        return chosen.read_value()

    assert float(f(jnp.asarray(2.0))) == 5.0


def test_objects_that_differ_are_an_error():
    @tf.function
    def f(x):
        if x > 0:
            name = "a"
        else:
            name = "b"
        return name

    with pytest.raises(TypeError, match="'name' is a in the main branch, but is b"):
        f(jnp.asarray(2.0))


def test_an_assertion_is_checked_when_the_step_runs():
    v = tf.Variable(0.0)

    @tf.function
    def f(x):
        v.assign_add(1.0)
        assert x > 0, "it must be positive"
        return x

    assert float(f(jnp.asarray(2.0))) == 2.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="it must be positive"):
        f(jnp.asarray(-2.0))
    assert float(v) == 1.0


def test_known_values_decide_as_in_python():
    seen = []

    @tf.function
    def f(x, flag):
        if flag and x > 0:
            seen.append("both")
            x = x + 1
        return x if flag or x > 100 else -x

    assert float(f(jnp.asarray(2.0), False)) == -2.0
    assert not seen
    assert float(f(jnp.asarray(2.0), True)) == 3.0


def test_a_tape_inside_and_outside_of_a_branch_agree_with_jax():
    w = tf.Variable(2.0)

    @tf.function
    def f(x):
        with tf.GradientTape(persistent=True) as outer:
            with tf.GradientTape() as inner:
                if x * w > 3:
                    y = w * w * w * x
                else:
                    y = w
            first = inner.gradient(y, w)
        return y, first, outer.gradient(first, w)

    def plain(w, x):
        return jnp.where(x * w > 3, w**3 * x, w)

    for x in (1.0, 5.0):
        wanted = [
            g(2.0, x) for g in (plain, jax.grad(plain), jax.grad(jax.grad(plain)))
        ]
        np.testing.assert_allclose([float(v) for v in f(jnp.asarray(x))], wanted)


@pytest.mark.needs_devices(2)
def test_replicas_take_different_branches():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable(
            1.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )

    @tf.function
    def step(x):
        if x > 0:
            v.assign_add(x)
            y = x
        else:
            y = x * 10
        return y

    x = tf.distribute.PerReplica((jnp.asarray(2.0), jnp.asarray(-3.0)))
    found = strategy.run(step, args=(x,))
    assert [float(part) for part in found.values] == [2.0, -30.0]
    assert float(v.read_value()) == 4.0


@pytest.mark.needs_devices(2)
def test_a_branch_in_cross_replica_context_may_run_a_step():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def train(x):
        if x > 0:
            strategy.run(lambda: v.assign_add(x))
        return v.read_value()

    assert float(train(jnp.asarray(2.0))) == 3.0
    assert float(train(jnp.asarray(-2.0))) == 3.0


def returns_in_a_block(x):
    with tf.name_scope("block"):
        if x > 3:
            return x * 2
        elif x > 1:
            return x
        return x - 5


def returns_in_a_try(x):
    try:
        if x > 1:
            return x * 2
        else:
            return x
    finally:
        tf.identity(x)


def returns_unless_an_error_is_suppressed(x):
    with contextlib.suppress(ValueError):
        int("no number")
        if x > 5:
            return x
        else:
            return x * 2
    return x + 1


def leaves_a_loop_in_a_block(x):
    for _ in tf.range(4):
        with tf.name_scope("turn"):
            if x > 5:
                return x
            else:
                x = x + 2
    return -x


@pytest.mark.parametrize(
    "program",
    [
        returns_in_a_block,
        returns_in_a_try,
        returns_unless_an_error_is_suppressed,
        leaves_a_loop_in_a_block,
    ],
)
def test_a_return_in_every_branch_of_a_block_leaves_the_function(program):
    for x in (-2, 1, 2, 4, 9):
        assert int(tf.function(program)(tf.constant(x))) == program(x)
