"""A transformer with a schedule of its own."""
import numpy as np
import tensorflow as tf


class WarmUp(tf.keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, d_model, warmup_steps=4000):
        super().__init__()
        self.d_model = tf.cast(d_model, tf.float32)
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        arg1 = tf.math.rsqrt(step)
        arg2 = step * (self.warmup_steps ** -1.5)
        return tf.math.rsqrt(self.d_model) * tf.math.minimum(arg1, arg2)


def positions(length, depth):
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(depth)[None] / depth)
    return tf.cast(np.concatenate([np.sin(angles), np.cos(angles)], -1), tf.float32)


def look_ahead_mask(size):
    return 1 - tf.linalg.band_part(tf.ones((size, size)), -1, 0)


def attend(q, k, v, mask):
    scores = tf.matmul(q, k, transpose_b=True)
    depth = tf.cast(tf.shape(k)[-1], tf.float32)
    scores = scores / tf.math.sqrt(depth)
    if mask is not None:
        scores += mask * -1e9
    return tf.matmul(tf.nn.softmax(scores, axis=-1), v)


class Block(tf.keras.layers.Layer):
    def __init__(self, d_model, heads, **kwargs):
        super().__init__(**kwargs)
        self.heads, self.depth = heads, d_model // heads
        self.mha = tf.keras.layers.MultiHeadAttention(heads, self.depth)
        self.norm = tf.keras.layers.LayerNormalization(epsilon=1e-6)
        self.dropout = tf.keras.layers.Dropout(0.1)

    def build(self, input_shape):
        self.scale = self.add_weight(name="scale", shape=(input_shape[-1],), initializer="ones")

    def split(self, x):
        x = tf.reshape(x, (tf.shape(x)[0], -1, self.heads, self.depth))
        return tf.transpose(x, perm=[0, 2, 1, 3])

    def call(self, x, training=False):
        out = self.dropout(self.mha(x, x), training=training)
        return self.norm(x + out) * self.scale


optimizer = tf.keras.optimizers.Adam(WarmUp(128), beta_1=0.9, beta_2=0.98, epsilon=1e-9)
print(tf.keras.backend.get_value(optimizer.iterations))  #: missing numpy()
