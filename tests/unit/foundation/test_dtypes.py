"""TensorFlow's names of element types work wherever a type is asked for."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf

NAMES = [
    "bfloat16",
    "bool",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_type_has_tensorflow_s_name(name):
    kind = getattr(tf, name)
    assert kind == jnp.dtype(name) and kind.name == name
    assert tf.TensorSpec((), kind) == tf.TensorSpec((), name)
    assert np.zeros(2, kind).dtype == kind


def test_types_are_taken_by_variables_and_arrays():
    assert tf.Variable(0, dtype=tf.float32).dtype == tf.float32
    assert jnp.zeros(2, tf.bfloat16).dtype == tf.bfloat16


def test_types_are_taken_by_datasets():
    made = tf.data.Dataset.from_generator(
        lambda: iter([(1, "a")]), output_types=(tf.int64, tf.string)
    )
    number, text = made.element_spec
    assert (number.dtype, text.dtype) == (tf.int64, tf.string)
    assert [(int(n), t.numpy()) for n, t in made] == [(1, b"a")]
    assert tf.data.Dataset.range(2, output_type=tf.uint8).element_spec.dtype == tf.uint8


@pytest.mark.parametrize(
    "text",
    [tf.string, "string", str, bytes, np.str_, np.bytes_, np.dtype("S3"), object],
)
def test_text_has_many_names(text):
    spec = tf.TensorSpec([], text)
    assert spec == tf.TensorSpec([], tf.string) and spec.dtype == tf.string
    assert "dtype=string" in repr(spec)


def test_a_python_float_is_single_precision_and_none_is_no_type():
    assert tf.TensorSpec([], float).dtype == tf.float32
    with pytest.raises(TypeError, match="dtype must be an element type"):
        tf.TensorSpec([], None)
