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
