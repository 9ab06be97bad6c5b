"""A type that JAX does not have is told once, at the line that asks for it."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from unisono._src.foundation import jax_types

MIRRORED = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
SHARDED = tf.distribute.MirroredStrategy(
    ["CPU:0", "CPU:1"], state="sharded", shard_above=2
)


def scoped(strategy, initial):
    with strategy.scope():
        return tf.Variable(initial, dtype=tf.float64)


def made_in_a_function():
    kept = []

    @tf.function
    def step():
        if not kept:
            kept.append(tf.Variable(1, dtype=tf.int64))
        return kept[0] + 1

    return step()


def called_by_signature():
    spec = tf.TensorSpec([None], tf.int64)
    return tf.function(lambda x: x + 1, input_signature=[spec])([1, 2])


@pytest.mark.parametrize(
    "program",
    [
        lambda: tf.Variable(1, dtype=tf.int64),
        lambda: tf.Variable(1.0, dtype="float64"),
        lambda: scoped(MIRRORED, 1.0),
        lambda: scoped(SHARDED, lambda: jnp.zeros(8)),
        lambda: tf.metrics.Mean(dtype=np.float64),
        lambda: tf.compat.v1.get_variable("wide", [2], tf.float64),
        made_in_a_function,
        called_by_signature,
    ],
)
def test_a_warning_about_64_bits_names_the_line_of_the_program(program):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        program()
    assert told
    for warning in told:
        assert "is not available, and will be truncated to" in str(warning.message)
        assert warning.filename == __file__


def test_a_metric_is_warned_about_when_it_is_made_and_not_again():
    with pytest.warns(UserWarning, match="dtype float64 is not available"):
        mean = tf.metrics.Mean(dtype=tf.float64)
    mean.update_state([1.0, 2.0], sample_weight=[1, 3])
    assert float(mean.result()) == 1.75


KEY = jax.random.key(0).dtype


@pytest.mark.parametrize(
    "kind", [None, float, int, bool, "float32", np.int8, jnp.bfloat16, KEY]
)
def test_a_type_that_jax_has_stays_as_it_was_given(kind):
    assert jax_types.usable_type(kind) is kind
