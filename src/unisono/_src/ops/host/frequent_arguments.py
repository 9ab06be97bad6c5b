"""Short bodies of everyday names, for what functions of datasets give them most often.

Each takes the arguments of its name, and returns None for all but a few kinds of them.
Then the body of the name computes, which knows all kinds, and says what is wrong: that
takes a call for each kind of argument that it asks about, some ten microseconds in all.
"""

from __future__ import annotations

import numpy as np

from unisono._src.foundation import dtypes, host_numbers
from unisono._src.foundation.host_numbers import HostArray

_FLOATS = frozenset({dtypes.float32, dtypes.float64})
_WHOLE = "biu"
_NUMBERS = "biufc"
_INTEGERS = {int}


def cast_to_float(
    x: object, dtype: object, name: str | None = None
) -> np.ndarray | None:
    """Returns whole numbers as floats."""
    if type(x) is not HostArray or not isinstance(dtype, np.dtype):
        return None
    return x.astype(dtype) if dtype in _FLOATS and x.dtype.kind in _WHOLE else None


def reshape(
    tensor: object, shape: object, name: str | None = None
) -> np.ndarray | None:
    """Returns an array in a shape of Python's numbers."""
    if type(tensor) is not HostArray or type(shape) is not list:
        return None
    if {*map(type, shape)} != _INTEGERS or min(shape) < -1:
        return None
    try:
        return tensor.reshape(shape)
    except ValueError:
        return None


def stack_numbers(
    values: object, axis: object = 0, name: str | None = None
) -> np.ndarray | None:
    """Returns a list of numbers of one class as a vector."""
    if type(values) is not list or type(axis) is not int or axis:
        return None
    kinds = {*map(type, values)}
    dtype = host_numbers.TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is None:
        return None
    return np.fromiter(values, dtype, len(values)).view(HostArray)


def one_hot_number(
    indices: object, depth: object, *others: object, **named: object
) -> np.ndarray | None:
    """Returns a vector of zeros with a one at a position."""
    if others or named or type(indices) is not HostArray or type(depth) is not int:
        return None
    if indices.ndim or indices.dtype.kind not in "iu" or depth < 0:
        return None
    made, place = np.zeros(depth, dtypes.float32), int(indices)
    if 0 <= place < depth:
        made[place] = 1.0
    return made.view(HostArray)


def pad_with_zeros(
    tensor: object, paddings: object, *others: object, **named: object
) -> np.ndarray | None:
    """Returns an array with zeros around it; `paddings` are lists of numbers."""
    if others or named or type(tensor) is not HostArray or type(paddings) is not list:
        return None
    if not tensor.ndim == len(paddings) > 0 or tensor.dtype.kind not in _NUMBERS:
        return None
    shape, inner = [], []
    for size, pair in zip(tensor.shape, paddings, strict=True):
        if type(pair) is not list or list(map(type, pair)) != [int, int]:
            return None
        low, high = pair
        if low < 0 or high < 0:
            return None
        shape.append(low + size + high)
        inner.append(slice(low, low + size))
    made = np.zeros(shape, tensor.dtype)
    made[tuple(inner)] = tensor
    return made.view(HostArray)
