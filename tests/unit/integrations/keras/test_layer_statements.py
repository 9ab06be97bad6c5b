"""Statements on arrays in layers: what Keras' own steps say of them."""

import keras
import numpy as np
import pytest

import unisono as tf


class Doubling(keras.layers.Layer):
    def call(self, x):
        if tf.reduce_sum(x) > 0:
            x = x * 2
        return x


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.last = Doubling(), keras.layers.Dense(1)

    def call(self, x):
        return self.last(self.first(x))


class OwnStep(Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(x) - y))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"mse": loss}


def test_the_statement_and_what_to_write_are_named():
    given = np.ones((4, 2), np.float32)
    told = r"(?s)if tf.reduce_sum\(x\) > 0:.*`tf.reduce_sum\(x\) > 0`.*Keras' own steps"
    with pytest.raises(TypeError, match=told):
        Doubling()(keras.Input((2,)))
    model = Model()
    model.compile("sgd", "mse")
    with pytest.raises((TypeError, RuntimeError), match=told):
        model.fit(given, given[:, :1], verbose=0)
    model(given)
    with pytest.raises((TypeError, RuntimeError), match=told):
        model.fit(given, given[:, :1], verbose=0)


def test_a_step_of_the_user_converts_them():
    given = np.ones((4, 2), np.float32)
    model = OwnStep()
    model.compile("sgd")
    model(given)
    model.set_weights([np.ones((2, 1)), np.zeros(1)])
    history = model.fit(given, given[:, :1], verbose=0)
    assert history.history["mse"] == [9.0]


class Scaled(keras.layers.Layer):
    def build(self, shape):
        self.scale = tf.Variable(2.0 * np.ones(shape[-1], np.float32), trainable=False)

    def call(self, x, training=False):
        if training:
            self.scale.assign(self.scale * 0.5 + 0.1)
        return x * self.scale


def test_a_layer_of_a_functional_model_may_have_a_variable_of_ours():
    layer = Scaled()
    model = keras.Sequential([keras.Input((3,)), layer])
    x = np.ones((2, 3), np.float32)
    assert layer.scale.numpy().tolist() == [2.0, 2.0, 2.0]
    step = tf.function(lambda x: model(x, training=True))
    # TensorFlow's numbers.
    np.testing.assert_allclose(step(x)[0], 1.1)
    np.testing.assert_allclose(step(x)[0], 0.65)
    model.compile("sgd", "mse")
    with pytest.raises(RuntimeError, match=r"make it\s+with self\.add_weight"):
        model.fit(x, x, verbose=0)
