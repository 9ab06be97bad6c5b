"""Datasets are split as by Keras on TensorFlow 2.21."""

import numpy as np
import pytest

import unisono as tf

split = tf.keras.utils.split_dataset
TEN = tf.data.Dataset.range(10)


def numbers(*datasets):
    return [[x.tolist() for x in part.as_numpy_iterator()] for part in datasets]


@pytest.mark.parametrize(
    ("sizes", "left", "right"),
    [
        ({"left_size": 0.7}, [*range(7)], [7, 8, 9]),
        ({"left_size": 3}, [0, 1, 2], [*range(3, 10)]),
        ({"right_size": 2}, [*range(8)], [8, 9]),
        # What no part has is left out of the middle.
        ({"left_size": 2, "right_size": 3}, [0, 1], [7, 8, 9]),
        ({"left_size": 0.5, "right_size": 0.5}, [*range(5)], [*range(5, 10)]),
        ({"left_size": 0.25}, [0, 1], [*range(2, 10)]),
    ],
)
def test_the_first_examples_are_on_the_left_and_the_last_on_the_right(
    sizes, left, right
):
    parts = split(TEN, **sizes)
    assert numbers(*parts) == [left, right]
    assert [len(part) for part in parts] == [len(left), len(right)]
    assert numbers(*parts) == [left, right]


def test_examples_of_batches_are_split():
    left, right = split(TEN.batch(3), left_size=0.7)
    assert numbers(left, right) == [[[0, 1, 2], [3, 4, 5], [6]], [[7, 8, 9]]]


def test_a_seed_gives_the_order_of_keras():
    left, right = split(TEN, left_size=3, shuffle=True, seed=1)
    assert numbers(left, right) == [[6, 8, 9], [7, 5, 3, 0, 4, 1, 2]]
    assert numbers(right) == [[7, 5, 3, 0, 4, 1, 2]]


def test_structures_keep_their_form():
    whole = {"a": np.arange(6), "b": (np.arange(6), np.arange(6.0))}
    dataset = tf.data.Dataset.from_tensor_slices(whole)
    left, _ = split(dataset, left_size=0.5)
    assert left.element_spec == dataset.element_spec
    assert [e["b"][1].item() for e in left.as_numpy_iterator()] == [0.0, 1.0, 2.0]


def test_arrays_are_split_alone_and_in_lists():
    x, y = np.arange(12).reshape(6, 2), np.arange(6)
    left, right = split(x, left_size=4)
    assert numbers(left, right) == [x[:4].tolist(), x[4:].tolist()]
    for given in ((x, y), [x, y]):
        (first, number), *_ = split(given, right_size=1)[1].as_numpy_iterator()
        assert (first.tolist(), number) == ([10, 11], 5)


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({}, "At least one"),
        ({"left_size": 10}, "smaller than 10"),
        ({"left_size": 0}, "smaller than 10"),
        ({"right_size": -1}, "smaller than 10"),
        ({"left_size": 1.5}, "within the range"),
        ({"left_size": 0.5, "right_size": 0.6}, "greater than 1"),
        ({"left_size": 5, "right_size": 6}, "at most 10"),
        ({"left_size": 0.01}, "no examples"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes, told):
    with pytest.raises(ValueError, match=told):
        split(TEN, **sizes)


@pytest.mark.parametrize("size", ["a", True, np.float32(0.5)])
def test_sizes_of_other_types_are_refused(size):
    with pytest.raises(TypeError, match="int or float or None"):
        split(TEN, left_size=size)


@pytest.mark.parametrize(
    ("dataset", "error", "told"),
    [
        (TEN.repeat(), ValueError, "no end"),
        (TEN.take(0), ValueError, "empty"),
        ([], ValueError, "lengths"),
        ([np.arange(3), np.arange(4)], ValueError, "lengths"),
        ([[1, 2], [3, 4]], TypeError, "index 0"),
        ({"a": np.arange(3)}, TypeError, "dict"),
    ],
)
def test_what_cannot_be_split_is_refused(dataset, error, told):
    with pytest.raises(error, match=told):
        split(dataset, left_size=0.5)
