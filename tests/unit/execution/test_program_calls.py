"""The ways to call a compiled program: what is stored, what is kept, what is raised."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests import machine
from tests.parity.programs import mirrored, one_device, plain, variable


def calling(fn, x):
    """Returns `x` after the compiled step has called `fn` in Python."""
    spec = unisono.TensorSpec(())
    return unisono.numpy_function(lambda x: (fn(), x)[1], [x], spec)


def test_an_array_that_is_read_before_a_step_outlives_it():
    v = unisono.Variable([1.0, 2.0])
    step = unisono.function(lambda: v.assign_add([1.0, 1.0]))
    before = v.value()
    step()
    between = v.value()
    step()
    assert [plain(x) for x in (before, between, v)] == [[1, 2], [2, 3], [3, 4]]


def test_an_array_that_a_callback_reads_outlives_the_next_step():
    v, seen = unisono.Variable([1.0, 2.0]), []
    look = unisono.function(lambda x: calling(lambda: seen.append(v.value()), x) + v)
    change = unisono.function(lambda: v.assign_add([1.0, 1.0]))
    for _ in range(2):
        look(np.float32(0.0))
        change()
    assert [plain(x) for x in seen] == [[1, 2], [2, 3]]


def test_a_step_after_one_with_a_callback_copies_no_array_that_nobody_took():
    v = unisono.Variable(np.zeros(4, np.float32))
    look = unisono.function(lambda x: calling(lambda: None, x) + v)
    change = unisono.function(lambda: v.assign_add(np.ones(4, np.float32)))
    change()
    look(np.float32(0.0))
    old = v.state_cell.array
    change()
    # It was updated in place.
    assert old.is_deleted()


def test_a_step_whose_callback_fails_changes_nothing():
    v = unisono.Variable(1.0)

    @unisono.function
    def step(x):
        unisono.debugging.assert_less(x, jnp.float32(2.0))
        return v.assign_add(x)

    step(jnp.float32(1.0))
    with pytest.raises(unisono.errors.InvalidArgumentError):
        step(jnp.float32(5.0))
    assert float(v.numpy()) == 2.0
    step(jnp.float32(1.0))
    assert float(v.numpy()) == 3.0


def test_a_variable_that_changes_under_a_step_with_a_callback_is_an_error():
    v, arrays = unisono.Variable(1.0), [jnp.float32(7.0)]

    def change():
        # As another thread would that does not wait for the step.
        v.state_cell.array = arrays[0]

    step = unisono.function(lambda x: v.assign_add(calling(change, x)))
    with pytest.raises(RuntimeError, match="was changed while"):
        step(np.float32(1.0))
    assert float(v.numpy()) == 7.0


def test_a_step_reads_no_variable_whose_copies_differ():
    strategy = mirrored(2)
    v = variable(strategy, 1.0, name="weights")
    step = unisono.function(lambda: v * 2.0)
    assert float(step()) == 2.0
    v.values[0].assign(5.0)
    with pytest.raises(ValueError, match="weights"):
        step()


def test_arguments_of_another_device_are_moved_to_the_variables():
    strategy = one_device()
    with strategy.scope():
        v = unisono.Variable(1.0)
    step = unisono.function(lambda x: v.assign_add(x))
    x = jax.device_put(jnp.float32(2.0), machine.local_devices()[0])
    assert [float(step(x)) for _ in range(3)] == [3.0, 5.0, 7.0]


def test_variables_of_no_strategy_stay_where_they_are():
    strategy = mirrored(2)
    outside = unisono.Variable(1.0)
    with strategy.scope():
        v = unisono.Variable(2.0, aggregation=unisono.VariableAggregation.MEAN)
    before = outside.value().sharding

    @unisono.function
    def step():
        strategy.run(lambda: v.assign(v * 2.0))
        return outside.assign_add(1.0)

    step()
    step()
    assert (float(outside.numpy()), float(v.numpy())) == (3.0, 8.0)
    assert outside.value().sharding == before
