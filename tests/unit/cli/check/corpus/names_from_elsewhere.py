"""tf comes from modules that were not given."""
from ray_like.framework import try_import_tf
from other_library import tf as tf2  #: unknown

tf1, tf, tfv = try_import_tf()  #: unknown


def loss(logits, actions):
    chosen = tf.one_hot(actions, logits.shape[-1])
    return -tf.reduce_mean(tf.reduce_sum(chosen * tf.nn.log_softmax(logits), 1))


def other():
    return tf2.raw_ops.Relu(features=[1.0])  #: missing
