"""The type that operands of the host get, by TensorFlow's rule."""

import numpy as np
import pytest

from unisono._src.foundation import errors, host_types
from unisono._src.input.plan import elements


def tensor(values, dtype):
    return elements.present(np.array(values, dtype))


X = tensor([1, 2], np.float32)
U = tensor([200], np.uint8)


@pytest.mark.parametrize(
    ("x", "y", "dtype"),
    [
        (X, 1, "float32"),
        (1, X, "float32"),
        (X, True, "float32"),
        (X, [1, 2], "float32"),
        (X, np.float64(0.5), "float32"),
        (np.arange(2), X, "float32"),
        (U, 7, "uint8"),
        (U, np.int64(7), "uint8"),
        ([X[0], 1], 2, "float32"),
        (tensor([1], np.int64), 2**40, "int64"),
        (2**40, 1, "int64"),
        (1.5, 2, "float32"),
        (tensor(b"a", object), "b", "object"),
        ([], 1, "float32"),
    ],
)
def test_the_first_tensor_or_else_the_first_value_decides(x, y, dtype):
    found = host_types.to_one_type("add", x, y)
    assert [a.dtype.name for a in found] == [dtype, dtype]


@pytest.mark.parametrize(
    ("x", "y", "error"),
    [
        (X, U, errors.InvalidArgumentError),
        ([X, U], X, errors.InvalidArgumentError),
        (U, 1.5, TypeError),
        (U, [1.5], TypeError),
        (U, np.float32(1), TypeError),
        (X, 1j, TypeError),
        (X, "a", TypeError),
        (tensor(b"a", object), 1, TypeError),
        (U, 256, OverflowError),
        (U, [-1], OverflowError),
        (U, np.int64(256), OverflowError),
        (X, None, ValueError),
        (2**63, 1, ValueError),
        ([1, [2, 3]], X, ValueError),
        ([True, 2], X, ValueError),
    ],
)
def test_what_does_not_fit_is_refused(x, y, error):
    with pytest.raises(error):
        host_types.to_one_type("add", x, y)


def test_a_float_beyond_a_type_is_infinite_without_a_warning():
    x = tensor([1.0], np.float32)
    assert np.isinf(host_types.to_one_type("add", x, 1e300)[1])
    assert np.isinf(host_types.to_one_type("add", x, [1e300])[1]).all()


def test_zeros_keep_their_sign():
    assert np.signbit(host_types.to_one_type("add", X, -0.0)[1])
    assert not np.signbit(host_types.to_one_type("add", X, 0.0)[1])
