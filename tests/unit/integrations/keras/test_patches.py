"""Random state that Keras keeps beside its variables."""

import jax
import numpy as np
import pytest

import unisono as tf

pytest.importorskip("keras")

X = np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(2, 4, 3)


def test_a_recurrent_layer_with_dropout_draws_in_a_program_what_keras_draws():
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        layer = tf.keras.layers.LSTM(2, dropout=0.5, recurrent_dropout=0.5, seed=1)
        layer.build(X.shape)
    expected = jax.jit(
        lambda trained, others: layer.stateless_call(trained, others, X, training=True)
    )
    trained = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]
    step = tf.function(lambda: strategy.run(lambda: layer(X, training=True)))
    for _ in range(2):  # The second step draws other masks.
        wanted, others = expected(trained, others)
        assert np.allclose(step(), wanted, atol=1e-6)


def test_a_layer_that_draws_with_tensorflows_names_is_told_what_to_write():
    class Noise(tf.keras.layers.Layer):
        def call(self, x):
            return x + tf.random.normal(tf.shape(x))

    told = r"seed=self\.seed\) or its like"
    with pytest.raises(tf.errors.InvalidArgumentError, match=told):
        Noise()(tf.keras.Input((4,)))
    with pytest.raises(RuntimeError, match=told):
        Noise()(tf.keras.Input(batch_shape=(2, 4)))
    assert Noise()(tf.zeros([2, 4])).shape == (2, 4)
