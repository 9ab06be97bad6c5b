"""TensorFlow's everyday names build functional models of Keras."""

import functools
import pickle

import numpy as np
import pytest
from jax import export

import unisono as tf
from unisono._src.foundation import public_names

pytest.importorskip("keras")

A = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(2, 4, 3)
B = np.linspace(-1.0, 2.0, 6, dtype=np.float32).reshape(2, 3)


def compute(a, b):
    """Returns results of several names, for arrays or for symbolic tensors."""
    x = tf.concat([tf.reduce_mean(a, axis=1), b], -1)
    x = tf.nn.relu(x - 0.5) * tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    x = tf.squeeze(tf.expand_dims(tf.math.exp(-x), 1), axis=[1])
    one, two = tf.split(x, num_or_size_splits=2, axis=-1)
    return {
        "x": x,
        "product": tf.matmul(one, two, transpose_b=True),
        "rows": tf.reshape(a, [-1, 12]),
        "turned": tf.transpose(a, perm=[0, 2, 1]),
        "chosen": tf.where(b > 0.0, b, tf.zeros_like(b)),
        "labels": tf.one_hot(tf.cast(b * 2.0, tf.int32), 3),
        "norm": tf.norm(b, axis=-1),
        "stack": tf.stack([one, two]),
        "most": tf.math.reduce_max(two),
        "sums": tf.einsum("bij->bi", a),
    }


@functools.cache
def make_model():
    a, b = tf.keras.Input((4, 3)), tf.keras.Input((3,))
    return tf.keras.Model([a, b], compute(a, b))


def test_a_model_computes_what_the_names_compute():
    model, wanted = make_model(), compute(tf.constant(A), tf.constant(B))
    assert model.output["product"].shape == (None, None)
    assert model.output["rows"].shape == (None, 12)
    assert model.output["labels"].dtype == "float32"
    for found in (model([A, B]), model.predict_on_batch([A, B])):
        for key, value in wanted.items():
            np.testing.assert_allclose(found[key], value, 1e-6, 1e-6, err_msg=key)


def test_gradients_go_through_it():
    x = tf.keras.Input((3,))
    y = tf.reduce_sum(tf.square(tf.keras.layers.Dense(1, kernel_initializer="ones")(x)))
    model = tf.keras.Model(x, y)
    with tf.GradientTape() as tape:
        loss = model(B)
    kernel = tape.gradient(loss, model.trainable_variables)[0]
    np.testing.assert_allclose(kernel, 2 * B.T @ B.sum(1, keepdims=True), 1e-5)


def test_a_model_is_saved_and_loaded(tmp_path):
    make_model().save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    wanted = make_model()([A, B])
    for key, found in loaded([A, B]).items():
        np.testing.assert_allclose(found, wanted[key], err_msg=key)


def test_sizes_that_are_not_known_are_told():
    x = tf.keras.Input((3,))
    with pytest.raises(ValueError, match=r"Write x\.shape"):
        tf.shape(x)
    with pytest.raises(tf.errors.InvalidArgumentError, match="matmul"):
        tf.matmul(x, tf.zeros([2, 2]))


def test_the_names_stay_what_they_were_for_arrays():
    make_model()
    assert tf.math.add is tf.add and tf.add.__name__ == "add"
    assert pickle.loads(pickle.dumps(tf.add)) is tf.add
    assert float(tf.add(1.0, y=tf.constant(2.0))) == 3.0


def test_a_name_is_described_where_it_was():
    tf.keras.Input((1,))
    found = tf.scalar_mul
    assert found is tf.math.scalar_mul and found.__module__ == "unisono.math"
    assert public_names.homes[found].startswith("unisono._src.ops")


def test_a_layer_draws_as_many_numbers_as_there_are_examples():
    keras = tf.keras

    class Sampling(keras.layers.Layer):
        def call(self, x):
            noise = tf.random.stateless_normal(tf.shape(x), seed=(1, 2))
            count = tf.shape(x)[0]
            return x + noise + tf.random.stateless_uniform((count, 2), (3, 4))

    inputs = keras.Input((2,))
    outputs = Sampling()(inputs)
    assert outputs.shape == (None, 2)
    found = keras.Model(inputs, outputs).predict(np.zeros((3, 2)), verbose=0)
    wanted = tf.random.stateless_normal((3, 2), (1, 2))
    wanted += tf.random.stateless_uniform((3, 2), (3, 4))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    # An exported program has no such numbers, and says so.
    with pytest.raises(ValueError, match="sizes that are known"):
        tf.random.stateless_normal(export.symbolic_shape("n, 2"), (1, 2))
