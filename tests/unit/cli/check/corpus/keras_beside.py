"""Keras is imported by its own name, after TensorFlow."""
import tensorflow as tf
import keras
from keras import layers, ops

keras.utils.set_random_seed(1)
model = keras.Sequential([keras.Input((4,)), layers.Dense(2), layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.1), loss="mse")
x = tf.random.uniform((64, 4), seed=3)
model.fit(x, ops.sum(x, axis=1), verbose=0)


@keras.saving.register_keras_serializable(package="mine")
class Twice(layers.Layer):
    def call(self, inputs):
        return 2 * inputs


old = keras.optimizers.SGD(lr=0.1)  #: differs learning_rate
print(keras.__version__, keras.backend.backend())
print(keras.layers.CuDNNGRU)  #: missing
