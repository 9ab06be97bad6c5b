"""TensorFlow's answers and ours, for the module `tensor_shape`."""

import copy
import operator
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "tensor_shape")


def test_a_shape_can_be_given_where_jax_wants_a_shape():
    shape = unisono.TensorShape([2, 3])
    assert jnp.zeros(shape).shape == shape == (2, 3)
    assert pickle.loads(pickle.dumps(shape)) == shape


def test_a_shape_is_a_tuple_that_equals_lists_too():
    shape, plain = unisono.TensorShape([2, 3]), (2, 3)
    assert isinstance(shape, tuple)
    for other in (shape, plain, [2, 3]):
        assert operator.eq(shape, other)
        assert operator.eq(other, shape)
        assert not operator.ne(shape, other)
        assert not operator.ne(other, shape)
    assert hash(shape) == hash(plain)
    assert {plain: "found"}[shape] == "found"
    assert shape != (2, 4)
    for first in ((10,), [10]):
        whole = operator.add(first, shape)
        assert isinstance(whole, unisono.TensorShape)
        assert whole == (10, 2, 3)
    assert copy.deepcopy(shape) == shape


def test_a_shape_is_one_value_in_structures():
    shape = unisono.TensorShape([2, 3])
    assert unisono.nest.flatten({"a": [shape, 1]}) == [shape, 1]
    assert jax.tree.leaves([shape]) == [shape]
    assert unisono.distribute.get_strategy().run(lambda s: s, (shape,)) is shape
    zeros = unisono.function(lambda s: unisono.zeros(s))
    assert zeros(shape).shape == zeros(unisono.TensorShape((2, 3))).shape == (2, 3)
    assert zeros.experimental_get_tracing_count() == 1


def test_jax_describes_arrays_by_plain_tuples():
    shape = unisono.TensorShape([2, 3])
    abstract = jax.ShapeDtypeStruct(shape, jnp.float32)
    assert abstract == jax.ShapeDtypeStruct((2, 3), jnp.float32)
    assert hash(abstract) == hash(jax.ShapeDtypeStruct((2, 3), jnp.float32))
    assert type(abstract.shape) is type(jax.typeof(jnp.zeros(shape)).shape) is tuple


@pytest.mark.parametrize("make", [jnp.zeros, np.zeros, unisono.zeros, tuple, len])
def test_a_shape_of_unknown_rank_is_not_taken_for_that_of_a_scalar(make):
    unknown = unisono.TensorShape(None)
    assert unknown not in ((), (None,))
    assert pickle.loads(pickle.dumps(unknown)) == copy.copy(unknown) == unknown
    with pytest.raises((TypeError, ValueError)):
        make(unknown)
