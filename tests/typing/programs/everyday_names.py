"""The everyday names have signatures and types, although they load on first use."""

from typing import assert_type

import jax
import numpy as np

import unisono as tf

v = tf.Variable([1.0, 2.0])
x = tf.constant([[1.0, 2.0]], dtype=tf.float32)

assert_type(tf.reduce_sum(x, axis=-1, keepdims=True), jax.Array)
assert_type(tf.math.log(v), jax.Array)
assert_type(tf.linalg.matmul(x, [[1.0], [2.0]], transpose_a=False), jax.Array)
assert_type(tf.nn.relu(np.ones(3)), jax.Array)
assert_type(tf.split(x, 2, axis=1), list[jax.Array])
assert_type(tf.nn.moments(x, axes=[0]), tuple[jax.Array, jax.Array])
assert_type(tf.math.top_k(x, k=1).values, jax.Array)
tf.add(x, y=1, name="sum")
tf.reshape(x, [tf.shape(x)[0], -1])
tf.reduce_sum(x, axes=0)  # type: ignore[call-arg]
