"""Initializers outside Keras make TensorFlow's values."""

import numpy as np
import pytest

import unisono


def test_values_are_those_of_tensorflow():
    # As TensorFlow 2.21 makes them.
    normal = unisono.random_normal_initializer(seed=3)
    for _ in range(2):
        np.testing.assert_allclose(normal([2]), [-0.03357924, 0.08380252], rtol=1e-5)
    uniform = unisono.random_uniform_initializer(seed=3)([2])
    np.testing.assert_allclose(uniform, [-0.03040872, 0.04393453], rtol=1e-5)
    whole = unisono.random_uniform_initializer(1, 5, seed=3)([2], unisono.int32)
    assert whole.tolist() == [1, 4]
    unisono.random.set_seed(5)
    made = unisono.random_normal_initializer()([2])
    np.testing.assert_allclose(made, [-0.00901533, -0.04751432], rtol=1e-5)
    made = unisono.random_uniform_initializer()([2])
    np.testing.assert_allclose(made, [0.02017075, -0.04566322], rtol=1e-5)


def test_constants_take_the_shape_or_fill_it():
    make = unisono.constant_initializer
    assert make([1, 2, 3, 4])([2, 2]).tolist() == [[1, 2], [3, 4]]
    assert make([7.0])([2, 2]).tolist() == [[7.0, 7.0], [7.0, 7.0]]
    assert make(3)([2], dtype=unisono.float16).dtype == unisono.float16
    with pytest.raises(TypeError, match="3 elements"):
        make([1, 2, 3])([2, 2])
    with pytest.raises(TypeError, match="Invalid type for initial value"):
        make(unisono.constant(3))


def test_zeros_and_ones_have_the_type_that_is_asked_for():
    assert unisono.zeros_initializer()([2]).dtype == unisono.float32
    assert unisono.ones_initializer()([2], unisono.bool).tolist() == [True, True]


@pytest.mark.parametrize(
    "initializer",
    [
        unisono.random_normal_initializer(1.0, 2.0, 3),
        unisono.random_uniform_initializer(1.0, 2.0, 3),
        unisono.constant_initializer(3.0),
        unisono.ones_initializer(),
        unisono.zeros_initializer(),
    ],
)
def test_an_equal_one_is_made_of_its_arguments(initializer):
    again = type(initializer).from_config(initializer.get_config())
    assert again.get_config() == initializer.get_config()
    assert again([3]).tolist() == initializer([3]).tolist()


def test_a_part_of_an_array_is_made_by_its_own_shape():
    parts = {"partition_shape": (2, 2), "partition_offset": (0, 0)}
    assert unisono.ones_initializer()([4, 2], **parts).shape == (2, 2)
    with pytest.raises(ValueError, match="support_partition=True"):
        unisono.constant_initializer(3)([4, 2], **parts)
    with pytest.raises(TypeError, match="Received: shards"):
        unisono.ones_initializer()([4, 2], shards=2)


def test_normal_numbers_are_floats():
    with pytest.raises(ValueError, match="expected to be floating point"):
        unisono.random_normal_initializer()([2], unisono.int32)
