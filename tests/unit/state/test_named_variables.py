"""`get_variable` makes variables as TensorFlow 1 does."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono

get_variable = unisono.compat.v1.get_variable


def test_the_default_numbers_follow_from_the_name():
    first, again = (get_variable("w", [20, 30]).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (first != get_variable("v", [20, 30]).numpy()).any()
    # Glorot's limit for 20 inputs and 30 outputs.
    limit = (6 / 50) ** 0.5
    assert limit * 0.9 < np.abs(first).max() <= limit
    kernel = get_variable("k", [5, 5, 20, 30]).numpy()
    assert limit / 5 * 0.9 < np.abs(kernel).max() <= limit / 5


def test_an_initializer_is_an_array_or_a_function_of_shape_and_type():
    given = get_variable("a", initializer=jnp.array([1, 2]))
    assert given.numpy().tolist() == [1, 2]
    made = get_variable("b", [2], jnp.int32, jnp.ones, trainable=False)
    assert made.numpy().tolist() == [1, 1]
    assert (made.name, made.trainable) == ("b:0", False)
    for initializer in (None, jnp.ones):
        with pytest.raises(ValueError, match=r"'c' needs a shape"):
            get_variable("c", initializer=initializer)


def test_a_partitioner_is_ignored_with_a_warning():
    with pytest.warns(UserWarning, match="partitioner of variable 'd' is ignored"):
        get_variable("d", [2], partitioner=object())
