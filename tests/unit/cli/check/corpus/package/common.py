"""What all modules of the package share."""
import logging
import numpy as np
import tensorflow as tf
from tensorflow import keras

K = keras.backend
FLOAT = tf.float32
log = logging.getLogger(__name__)


def to_float(x):
    return tf.cast(x, FLOAT)


def tokens(x):
    return tf.strings.unicode_decode(x, "UTF-8")  #: missing


class Base(keras.Model):
    def rate(self):
        return self.optimizer.learning_rate

    def set_up(self, folder):
        self.folder = folder
        self.ckpt = tf.train.Checkpoint(model=self)
