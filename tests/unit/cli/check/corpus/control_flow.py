"""Statements on tensors in functions, and what cannot be compiled."""
import tensorflow as tf


@tf.function
def collatz(n):
    steps = tf.constant(0)
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@tf.function
def clip(x, training=False):
    if training:
        x = x * 2
    if tf.reduce_sum(x) > 10:
        return x / 10
    elif not tf.reduce_any(x > 1):
        return x
    assert tf.reduce_all(x < 100)
    for row in x:
        if tf.norm(row) > 3 and row[0] > 0:
            break
    return x


@tf.function
def roots(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(5):
            y = y - (y * y - x) / (2 * y)
        while tf.abs(y * y - x) > 1e-3:  #: missing maximum_iterations
            y = y - (y * y - x) / (2 * y)
        while tf.abs(y * y - x) > 1e-6:
            tf.autograph.experimental.set_loop_options(maximum_iterations=9)
            y = y - (y * y - x) / (2 * y)
        for _ in tf.range(tf.cast(y, tf.int32)):  #: missing maximum_iterations
            y = y + 1.0
    return tape.gradient(y, x)


@tf.function
def select(x):
    kept = tf.boolean_mask(x, x > 0)  #: missing compiled
    spots = tf.where(x > 0)  #: missing compiled
    values, _ = tf.unique(x)  #: missing compiled
    mask = tf.sequence_mask(tf.cast(x, tf.int32))  #: missing maxlen
    good = tf.sequence_mask([1, 2], maxlen=4)
    y = tf.cond(x[0] > 0, lambda: x, lambda: -x)  #: differs shapes
    tf.print("y", y)  #: differs order
    tf.summary.scalar("y", y[0], step=1)  #: differs waits
    return kept, spots, values, mask, good


def eager(x):
    if tf.reduce_sum(x) > 0:
        return tf.boolean_mask(x, x > 0)
    tf.print("none", output_stream="file:///tmp/log")
    return tf.cond(tf.constant(True), lambda: x, lambda: x[:1])


@tf.autograph.experimental.do_not_convert
def helper(x):
    return tf.while_loop(lambda i: i < 3, lambda i: (i + 1,), (tf.constant(0),), maximum_iterations=3)
