"""TensorFlow's answers and ours, for the module `tensor_shape`."""

import pickle

import jax.numpy as jnp

import unisono
from tests.unit.ops import everyday_programs


def test_it_gives_what_tensorflow_gives():
    everyday_programs.check(unisono, "tensor_shape")


def test_a_shape_can_be_given_where_jax_wants_a_shape():
    shape = unisono.TensorShape([2, 3])
    assert jnp.zeros(shape).shape == shape == (2, 3)
    assert pickle.loads(pickle.dumps(shape)) == shape
