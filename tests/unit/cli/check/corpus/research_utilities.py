"""Small numeric helpers, such as research code has many of."""
import functools
import tensorflow as tf
from tensorflow.math import log, reduce_logsumexp
from tensorflow.nn import relu, softmax as soft

layers = tf.keras.layers
Dense = functools.partial(layers.Dense, kernel_initializer="he_normal")


def gelu(x):
    cdf = 0.5 * (1.0 + tf.math.erf(x / tf.sqrt(2.0)))
    return x * cdf


def cosine(a, b, axis=-1):
    a, b = tf.math.l2_normalize(a, axis), tf.linalg.l2_normalize(b, axis)
    return tf.einsum("ij,kj->ik", a, b)


def resample(x, n):
    x = tf.signal.frame(x, 64, 16)  #: missing
    spectrum = tf.signal.rfft(x)  #: missing
    return tf.abs(spectrum)[:, :n]


def exp_sigmoid(x, exponent=10.0, most=2.0, threshold=1e-7):
    x = tf.cast(x, tf.float32) if not isinstance(x, tf.Tensor) else x
    return most * tf.nn.sigmoid(x) ** tf.math.log(exponent) + threshold


def kl(mean, log_var):
    return -0.5 * tf.reduce_sum(1 + log_var - mean ** 2 - tf.exp(log_var), axis=[1])


def pairs(x):
    x = tf.pad(x, [[0, 0], [1, 1]], mode="REFLECT")
    x = tf.concat([x, tf.zeros_like(x)], axis=-1)
    a, b = tf.split(x, 2, axis=-1)
    c = tf.unstack(tf.stack([a, b]), axis=0)
    top, places = tf.math.top_k(a, k=2)
    order = tf.argsort(a, direction="DESCENDING")
    return tf.tile(c[0], [1, 2]), top, tf.gather(a, order, batch_dims=1), tf.cumsum(a)


def noise(x, rate, seed=7):
    x = tf.nn.dropout(x, rate=rate)
    x = tf.nn.dropout(x, rate=rate, seed=seed)  #: differs
    return x + tf.random.stateless_normal(tf.shape(x), seed=[1, 2]) + tf.random.gamma([], 1.0, seed=1)  #: differs


@tf.custom_gradient
def reverse(x):
    return tf.identity(x), lambda dy: -dy


def spectral(w):
    s, u, v = tf.linalg.svd(tf.stop_gradient(w))
    return w / tf.reduce_max(s), log(soft(relu(u))), tf.bitwise.invert(v)  #: missing
