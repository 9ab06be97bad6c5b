"""Assertions raise as in TensorFlow, eagerly and when a compiled step runs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.ops import everyday_programs

debugging = unisono.debugging
InvalidArgumentError = unisono.errors.InvalidArgumentError


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "checks")


def test_the_error_tells_what_tensorflow_tells():
    with pytest.raises(InvalidArgumentError) as raised:
        debugging.assert_equal([1, 2], [1, 3], message="sizes", summarize=1)
    assert str(raised.value) == (
        "sizes\nCondition x == y did not hold.\nIndices of first 1 different values:\n"
        "[[1]]\nCorresponding x values:\n[2]\nCorresponding y values:\n[3]\n"
        "First 1 elements of x:\n[1]\nFirst 1 elements of y:\n[1]"
    )
    with pytest.raises(InvalidArgumentError, match=r"^mm : Tensor had Inf and NaN val"):
        debugging.check_numerics([np.nan, -np.inf], "mm")


@pytest.mark.needs_devices(2)
def test_a_compiled_step_raises_when_it_runs_and_changes_no_variable(caplog):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = unisono.Variable(1.0, aggregation=unisono.VariableAggregation.SUM)

    def replica(x):
        with unisono.GradientTape() as tape:
            y = debugging.check_numerics(v * x, "the loss")
        debugging.assert_less(x, 10.0, "too large")
        v.assign_add(tape.gradient(y, v))

    step = unisono.function(lambda x: strategy.run(replica, (x,)))

    def call(a, b):
        step(unisono.distribute.PerReplica((jnp.asarray(a), jnp.asarray(b))))
        return float(v.numpy())

    assert call(1.0, 2.0) == 4.0
    for bad, why in ((np.nan, "the loss : Tensor had NaN"), (11.0, "too large\nCond")):
        with pytest.raises(InvalidArgumentError, match=why):
            call(1.0, bad)
        assert float(v.numpy()) == 4.0
    assert call(1.0, 2.0) == 7.0


def test_gradients_outside_programs_are_checked_at_once():
    square = jax.grad(lambda x: debugging.check_numerics(x, "x") ** 2)
    assert float(square(3.0)) == 6.0
    with pytest.raises(InvalidArgumentError, match="x : Tensor had NaN"):
        square(np.nan)
