"""Variables tell what they are, and are no keys."""

import copy
import operator

import jax.numpy as jnp
import pytest

import unisono
from tests.parity.programs import mirrored, variable


def test_a_variable_is_no_key_because_its_comparison_is_an_array():
    for v in (unisono.Variable(1.0), variable(mirrored(2), 1.0)):
        with pytest.raises(TypeError, match=r"unhashable.*use variable.ref\(\)"):
            hash(v)


def test_a_variable_tells_its_shape_and_that_it_has_a_value():
    for v in (unisono.Variable([1.0, 2.0]), variable(mirrored(2), [1.0, 2.0])):
        assert v.get_shape() == v.shape == (2,)
        assert v.is_initialized().tolist() is True
        assert unisono.function(v.is_initialized)().tolist() is True


@pytest.mark.parametrize("kind", ["plain", "mirrored", "on read", "sharded", "result"])
def test_a_variable_has_a_shape_with_the_methods_of_tensorflow(kind):
    first = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    v = {
        "plain": lambda: unisono.Variable(first),
        "mirrored": lambda: variable(mirrored(2), first),
        "on read": lambda: variable(mirrored(2), first, synchronization="ON_READ"),
        "sharded": lambda: unisono.distribute.ShardedVariable(
            [unisono.Variable([row]) for row in first]
        ),
        "result": lambda: variable(mirrored(2), first).assign(first),
    }[kind]()
    assert v.shape.as_list() == v.shape.dims == [2, 3]
    assert (v.shape.rank, v.shape.ndims, v.shape.num_elements()) == (2, 2, 6)
    assert v.shape.is_compatible_with([None, 3])
    assert (v.shape[0], v.shape[1:].as_list()) == (2, [3])
    assert operator.add(v.shape, [4]).as_list() == [2, 3, 4]
    assert v.shape == (2, 3) == tuple(v.shape) == jnp.zeros(v.shape).shape


def test_a_variable_made_in_a_function_has_a_value_there():
    made = []

    @unisono.function
    def step():
        if not made:
            made.append(unisono.Variable(1.0))
        return made[0].is_initialized()

    assert bool(step())


def test_the_first_value_of_a_variable_is_not_kept():
    with pytest.raises(RuntimeError, match="not supported when eager execution"):
        unisono.Variable(1.0).initial_value  # noqa: B018


def test_a_component_is_the_same_object_each_time():
    v = variable(mirrored(2), 1.0)
    for component, again in zip(v.values, v.values, strict=True):
        assert component is again


@pytest.mark.parametrize("make", [unisono.Variable, lambda x: variable(mirrored(2), x)])
def test_a_deep_copy_keeps_its_value_when_a_step_changes_the_variable(make):
    v = make(jnp.ones(2))
    twin = copy.deepcopy(v)
    # The step updates the array of the variable in place.
    unisono.function(lambda: v.assign_add(jnp.ones(2), read_value=False))()
    assert v.numpy().tolist() == [2.0, 2.0]
    assert twin.numpy().tolist() == [1.0, 1.0]


def test_wrong_arguments_are_told_by_name():
    with pytest.raises(TypeError, match=r"^Variable\(\): got an unexpected.*'foo'"):
        unisono.Variable(1.0, **{"foo": 2})


def test_a_notebook_shows_a_variable_with_its_placement_and_escapes_its_name():
    with mirrored(2).scope():
        shown = unisono.Variable([1.0, 2.0], name="w")._repr_html_()
    assert "<td>w:0</td>" in shown
    assert "<td>mirrored</td>" in shown
    assert "numpy=array([1., 2.]" in shown
    alone = unisono.Variable(3.0, name="<b>")._repr_html_()
    assert "<b>" not in alone
    assert "<td>one copy</td>" in alone
