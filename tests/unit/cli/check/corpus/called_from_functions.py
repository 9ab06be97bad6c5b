"""Helpers of compiled functions are compiled, too."""
import tensorflow as tf


def helper(x):
    return tf.boolean_mask(x, x > 0)  #: missing compiled


def on_host(x):
    return tf.boolean_mask(x, x > 0)


class Model(tf.Module):
    def __init__(self, strategy):
        self.strategy = strategy or tf.distribute.MirroredStrategy()
        self.w = tf.Variable([1.0, -1.0])
        self.step = tf.function(self._step)

    def _step(self, x):
        return tf.unique(x)  #: missing compiled

    def replica_step(self, x):
        if tf.reduce_sum(x) > 0:
            x = x + self.w
        return self.count(x)

    def count(self, x):
        return tf.math.bincount(tf.cast(x, tf.int32))  #: missing

    @tf.function
    def train(self, x):
        y = helper(x)
        result = self.strategy.run(self.replica_step, args=(y,))
        return self.strategy.reduce("SUM", result, axis=None)

    def evaluate(self, x):
        return on_host(x), self.strategy.experimental_local_results(x)


@tf.function
def outer(x):
    def inner(y):
        return tf.where(y > 0)  #: missing compiled
    return tf.map_fn(lambda row: row * 2, x), inner(x)


data = tf.data.Dataset.range(10).map(on_host)  #: differs NumPy
