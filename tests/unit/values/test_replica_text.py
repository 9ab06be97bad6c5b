"""Values of replicas are shown in the words of TensorFlow."""

import jax
import jax.numpy as jnp

from unisono._src.values import replica_text


def test_arrays_are_shown_as_tensors():
    array = jnp.array([1.0, 2.0])
    assert replica_text.describe(array) == (
        "<tf.Tensor: shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>"
    )
    assert replica_text.describe(jnp.float32(3)) == (
        "<tf.Tensor: shape=(), dtype=float32, numpy=3.0>"
    )
    assert replica_text.describe_short(array) == (
        "tf.Tensor([1. 2.], shape=(2,), dtype=float32)"
    )


def test_values_of_a_program_and_random_keys_are_shown_without_numbers():
    shown = []

    @jax.jit
    def step(x):
        shown.extend([replica_text.describe(x), replica_text.describe_short(x)])
        return x

    step(jnp.ones(2))
    assert shown == ["<tf.Tensor: shape=(2,), dtype=float32, traced>"] * 2
    key = jax.random.key(0)
    assert replica_text.describe(key).startswith("<tf.Tensor: shape=(), dtype=key<")
    assert "tf.Tensor(" not in replica_text.describe_short(key)


def test_other_values_are_shown_as_they_are_and_text_without_control_characters():
    assert replica_text.describe("a\n") == "'a\\n'"
    assert replica_text.describe_short("a\n") == "a\\n"
    assert replica_text.describe_short(3) == "3"
