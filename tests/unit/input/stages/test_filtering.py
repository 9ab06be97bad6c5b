"""Stages that leave elements out."""

import numpy as np

import unisono as uni

D = uni.data.Dataset


def test_arrays_of_other_shapes_with_the_same_numbers_are_not_duplicates():
    arrays = [np.int64([[1, 2]]), np.int64([[1], [2]]), np.int64([[1, 2]])]
    dataset = D.from_generator(
        lambda: iter(arrays), output_signature=uni.TensorSpec(None, np.int64)
    )
    assert [x.shape for x in dataset.unique()] == [(1, 2), (2, 1)]
