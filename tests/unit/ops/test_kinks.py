"""Gradients at kinks are TensorFlow's: numbers that it gave for the same calls."""

import jax
import numpy as np
import pytest

import unisono as tf

X, Y = np.float32([-1, 0, 2, 1]), np.float32([-1, 0, 1, 2])
EXPECTED = {
    "abs": (lambda x, y: tf.abs(x - y), [0, 0, 1, -1], [0, 0, -1, 1]),
    "maximum": (tf.maximum, [1, 1, 1, 0], [0, 0, 0, 1]),
    "minimum": (tf.minimum, [1, 1, 0, 1], [0, 0, 1, 0]),
    "of a number": (lambda x, y: tf.minimum(0.0, x) + y, [1, 0, 0, 0], [1, 1, 1, 1]),
    "clip_by_value": (
        lambda x, y: tf.clip_by_value(x, -1.0, 1.0) - y,
        [1, 1, 0, 1],
        [-1, -1, -1, -1],
    ),
    "behind clip_by_value": (
        lambda x, y: tf.acos(tf.clip_by_value(x, -3.0, 1.0) / 4) - y,
        [-0.2581989, -0.25, 0, -0.2581989],
        [-1, -1, -1, -1],
    ),
    "selu": (
        lambda x, y: tf.nn.selu(x) + y,
        [0.64676356, 1.050701, 1.050701, 1.050701],
        [1, 1, 1, 1],
    ),
    "sign": (lambda x, y: tf.sign(x) + y, [0, 0, 0, 0], [1, 1, 1, 1]),
    "pow": (tf.pow, [-1, np.nan, 1, 2], [0, 0, 1.3862944, 0]),
    "pow of constants": (
        lambda x, y: tf.pow(x, 3.0) + tf.pow(2.0, y),
        [3, 0, 12, 3],
        [0.34657359, 0.6931472, 1.3862944, 2.7725887],
    ),
    "multiply_no_nan": (tf.math.multiply_no_nan, [-1, 0, 1, 2], [-1, 0, 2, 1]),
    "multiply_no_nan by 0": (
        lambda x, y: tf.math.multiply_no_nan(x, y - y),
        [0, 0, 0, 0],
        [0, 0, 0, 0],
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_gradient_at_a_kink_is_that_of_tensorflow(name):
    fn, *wanted = EXPECTED[name]

    def gradients(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            z = fn(x, y)
        return tape.gradient(z, [x, y])

    given = tf.constant(X), tf.constant(Y)
    for found in (gradients(*given), tf.function(gradients)(*given)):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_values_stay_those_of_jax():
    given = tf.constant([np.nan, -0.0, -np.inf, 3.0])

    @tf.function
    def compute(x):
        return tf.abs(x), tf.maximum(x, 1.0), tf.minimum(1.0, x)

    wanted = np.abs(given), np.maximum(given, 1), np.minimum(given, 1)
    np.testing.assert_array_equal(compute(given), wanted)
    assert tf.abs(tf.constant([-2, 3])).tolist() == [2, 3]
    assert float(jax.grad(jax.grad(lambda x: tf.abs(x) * x))(3.0)) == 2.0


def test_a_product_with_zero_has_the_gradient_of_tensorflow():
    x, y = tf.constant([2.0, np.inf, np.nan]), tf.constant([0.0, 0.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(y)
        z = tf.math.multiply_no_nan(x, y)
    np.testing.assert_array_equal(z, [0, 0, np.nan])
    assert np.asarray(tape.gradient(z, y))[0] == 2.0
