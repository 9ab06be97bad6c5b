"""Changing some rows of a variable keeps its type."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono

KINDS = ("add", "sub", "update", "min", "max", "mul", "div")


def rows(values, indices):
    return unisono.IndexedSlices(jnp.asarray(values), jnp.asarray(indices))


@pytest.mark.parametrize("in_scope", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_integers_are_divided_towards_zero(in_scope, compiled):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    if in_scope:
        with strategy.scope():
            v = unisono.Variable([-7, 6, 9])
    else:
        v = unisono.Variable([-7, 6, 9])
    divide = unisono.function(v.scatter_div) if compiled else v.scatter_div
    divide(rows([2, 3, 2], [0, 2, 2]))
    assert v.numpy().tolist() == [-3, 6, 1]
    assert v.dtype == jnp.int32
    assert v.value().dtype == jnp.int32


def test_replicas_divide_integers_towards_zero():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = unisono.Variable([-7, 90], aggregation=unisono.VariableAggregation.SUM)
    strategy.run(unisono.function(lambda: v.scatter_div(rows([4], [1]))))
    assert v.numpy().tolist() == [-7, 5]


def test_integers_cannot_be_divided_by_zero():
    with pytest.raises(unisono.errors.InvalidArgumentError, match="by zero"):
        unisono.Variable([1, 2]).scatter_div(rows([0], [1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_rows_of_floats_do_not_fit_an_integer_variable(kind, make):
    v = unisono.Variable([7, 6], name="v")
    given = unisono.IndexedSlices(make([2.5]), jnp.array([1]))
    with pytest.raises(ValueError, match="to the variable 'v' of type int32"):
        getattr(v, f"scatter_{kind}")(given)
    assert v.numpy().tolist() == [7, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_integers_fit_a_variable_of_floats(kind):
    v = unisono.Variable([8.0, 6.0])
    getattr(v, f"scatter_{kind}")(rows([2], [0]))
    want = dict(zip(KINDS, (10.0, 6.0, 2.0, 2.0, 8.0, 16.0, 4.0), strict=True))
    assert v.numpy().tolist() == [want[kind], 6.0]
