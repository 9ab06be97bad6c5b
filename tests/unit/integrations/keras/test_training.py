"""Loops of Keras' models that were made in a scope."""

import gc

import keras
import numpy as np
import pytest

import unisono as tf
from tests.unit.state import test_copy_checks
from unisono._src.values import array_operators


def make(strategy):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.Input((3,)), keras.layers.Dense(1)]
        model = keras.Sequential(layers)
        model.compile("sgd", "mse")
    return model


def test_a_loop_in_an_open_tape_is_the_loop_outside_it():
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x, y = np.ones((8, 3), "f4"), np.zeros((8, 1), "f4")
    plain, taped = make(strategy), make(strategy)
    plain.fit(x, y, verbose=0)
    with tf.GradientTape() as tape:
        before = tf.reduce_sum(taped.trainable_variables[0] ** 2)
        taped.fit(x, y, verbose=0)
        loss = taped.evaluate(x, y, verbose=0)
        shown = taped.predict(x, verbose=0)
    assert loss == pytest.approx(plain.evaluate(x, y, verbose=0))
    np.testing.assert_allclose(shown, plain.predict(x, verbose=0))
    # The block goes on after the loops: it was the tape's before and is it again.
    kernel = make(strategy).trainable_variables[0]
    gradient = tape.gradient(before, taped.trainable_variables[0])
    np.testing.assert_allclose(gradient, 2 * np.asarray(kernel), rtol=1e-5)


def test_copies_of_weights_that_differ_are_found_in_fit(monkeypatch):
    test_copy_checks.begin(monkeypatch, 4)
    model = make(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    x, y = np.ones((16, 3), "f4"), np.zeros((16, 1), "f4")
    model.fit(x, y, batch_size=2, verbose=0)
    kernel = array_operators.find_own_variable(model.weights[0])
    test_copy_checks.flip(kernel, 1)
    with pytest.raises(tf.errors.WorkerMismatchError, match="kernel' differ before"):
        model.fit(x, y, batch_size=2, epochs=4, verbose=0)
    # Other tests look at all variables that still live.
    kernel.assign(np.ones(kernel.shape, "f4"))
    gc.collect()  # Keras' list of callbacks has a thread, which ends with the list.
