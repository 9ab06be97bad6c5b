"""Losses, of a module that names what it exports."""
import tensorflow as tf

__all__ = ["dice", "smooth"]
smooth = 1e-6


def dice(y_true, y_pred):
    both = tf.reduce_sum(y_true * y_pred)
    return (2.0 * both + smooth) / (tf.reduce_sum(y_true) + tf.reduce_sum(y_pred) + smooth)


def hidden():
    return tf.sparse.SparseTensor([[0]], [1], [3])  #: missing
