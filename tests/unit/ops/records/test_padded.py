"""`sparse.to_dense` returns what is dense already."""

import numpy as np
import pytest

import unisono as uni


def test_a_dense_array_is_returned_as_it_is():
    for array in (np.array([1, 0]), uni.constant([1, 0])):
        assert uni.sparse.to_dense(array) is array
        assert uni.sparse.to_dense(array, default_value=0) is array
    text = np.array([b"a", b""], object)
    assert uni.sparse.to_dense(text, default_value="") is text


def test_another_value_for_filling_up_is_refused():
    with pytest.raises(uni.errors.InvalidArgumentError, match="default_value=-1"):
        uni.sparse.to_dense(np.array([1, 0]), default_value=-1)


def test_what_is_no_array_is_refused():
    with pytest.raises(TypeError, match="no sparse tensors"):
        uni.sparse.to_dense([1, 0])
