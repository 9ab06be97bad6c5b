"""Arrays have the methods of TensorFlow's tensors that programs call most."""

import jax
import jax.numpy as jnp
import pytest

import unisono


def test_every_array_tells_its_shape_as_tensorflow_does():
    seen = []

    def note(x):
        shape = x.get_shape()
        assert isinstance(shape, unisono.TensorShape)
        if not isinstance(x, unisono.Variable):
            x.set_shape([None, 3])
            with pytest.raises(ValueError, match="are incompatible"):
                x.set_shape([2])
        seen.append((shape.as_list(), shape.ndims, shape[-1]))
        return x

    note(jnp.zeros((2, 3)))
    note(unisono.Variable(jnp.zeros((2, 3))))
    unisono.function(note)(jnp.zeros((2, 3)))
    jax.vmap(note)(jnp.zeros((4, 2, 3)))
    note(next(iter(unisono.data.Dataset.from_tensors(jnp.zeros((2, 3))))))
    with unisono.GradientTape() as tape:
        x = unisono.Variable(jnp.zeros((2, 3)))
        tape.watch(x)
        note(x * 2.0)
    assert seen == [([2, 3], 2, 3)] * 6
