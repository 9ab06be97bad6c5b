"""No assignment changes the kind of numbers that a variable holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono


def mirrored():
    return unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def counts(scope=None):
    """Returns an integer variable of two elements, mirrored if a scope is given."""
    if scope is None:
        return unisono.Variable([7, -7], name="counts")
    with scope.scope():
        return unisono.Variable([7, -7], name="counts")


SCOPES = pytest.mark.parametrize("scope", [None, "mirrored"])


@SCOPES
@pytest.mark.parametrize("how", ["assign", "assign_add", "assign_sub"])
@pytest.mark.parametrize("given", [[1.5, 2.0], [1.0, 2.0], [np.float32(1), 2], (1j, 2)])
def test_a_list_of_floats_is_no_value_of_an_integer_variable(scope, how, given):
    v = counts(scope and mirrored())
    with pytest.raises(TypeError, match="variable 'counts' of type int32; cast the"):
        getattr(v, how)(given)
    assert v.numpy().tolist() == [7, -7]


@pytest.mark.parametrize("given", [2.7, 2.0, 1j])
def test_a_python_float_is_no_value_of_an_integer_variable(given):
    v = unisono.Variable(1, name="step")
    with pytest.raises(TypeError, match=r"Cannot assign .* to the variable 'step'"):
        v.assign(given)
    with pytest.raises(TypeError, match="Cannot assign"):
        unisono.function(lambda: v.assign_add(given))()
    assert v.numpy() == 1


@SCOPES
@pytest.mark.parametrize("module", [np, jnp])
def test_an_array_of_floats_is_no_value_of_an_integer_variable(scope, module):
    v = counts(scope and mirrored())
    given = module.asarray([1.5, 2.0], module.float32)
    with pytest.raises(ValueError, match="type float32 to the variable 'counts'"):
        v.assign(given)
    with pytest.raises(ValueError, match="type float32 to the variable 'counts'"):
        unisono.function(v.assign)(given)
    assert v.numpy().tolist() == [7, -7]


def test_replicas_cannot_assign_floats_to_an_integer_variable():
    strategy = mirrored()
    with strategy.scope():
        v = unisono.Variable(3, aggregation=unisono.VariableAggregation.SUM)
    x = unisono.distribute.PerReplica([1.5, 2.5])
    for step in (v.assign, unisono.function(v.assign)):
        with pytest.raises((TypeError, ValueError), match="of type int32"):
            strategy.run(step, args=(x,))
    assert v.numpy() == 3


def test_numbers_of_a_narrower_kind_are_assigned_as_they_are():
    whole, real, flag = (unisono.Variable(x) for x in (1, 1.0, True))
    assert whole.assign(True) == 1
    assert whole.assign(np.int64(5)) == 5
    assert real.assign(3) == 3.0
    assert real.assign(jnp.int32(4)) == 4.0
    assert not flag.assign(False)
    with pytest.raises(TypeError, match="of type bool"):
        flag.assign(1)


def test_an_object_that_gives_a_numpy_array_follows_the_rule_of_arrays():
    class Table:
        def __array__(self, dtype=None, copy=None):
            return np.asarray([1.5, 2.0], dtype)

    assert unisono.Variable([0.0, 0.0]).assign(Table()).tolist() == [1.5, 2.0]
    with pytest.raises(ValueError, match="type float64 to the variable"):
        unisono.Variable([0, 0]).assign(Table())


def test_a_first_value_must_fit_the_type_that_is_asked_for():
    with pytest.raises(TypeError, match=r"Cannot assign 2\.7 to the variable 'v'"):
        unisono.Variable(2.7, dtype=jnp.int32, name="v")
    with pytest.raises(ValueError, match="type float32 to the variable 'v'"):
        unisono.Variable(lambda: jnp.ones(2), dtype="int32", name="v")
    assert unisono.Variable([1, 2], dtype="float32").numpy().tolist() == [1.0, 2.0]


def test_no_write_leaves_an_array_of_another_type_in_a_cell():
    v = counts()
    cell = v.state_cell
    for put in (
        lambda: cell.store(jnp.ones(2)),
        lambda: unisono._src.state.frames.frame().set_whole(cell, jnp.ones(2)),
        lambda: unisono._src.state.frames.frame().set_copy(cell, None, jnp.ones(2)),
    ):
        for call in (put, unisono.function(put)):
            with pytest.raises(ValueError, match=r"'counts' .* holds int32 and would"):
                call()
    assert cell.array.dtype == jnp.int32


def test_a_compiled_step_pays_nothing_for_the_check(monkeypatch):
    v = counts()
    step = unisono.function(lambda x: v.assign_add(x))
    one = jnp.ones(2, jnp.int32)
    step(one)

    def refuse(*_):
        raise AssertionError("expected no check in a compiled call")

    monkeypatch.setattr(unisono._src.state.storage, "check_type", refuse)
    assert step(one).tolist() == [9, -5]
    assert jax.typeof(v.value()).dtype == jnp.int32
