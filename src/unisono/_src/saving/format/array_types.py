"""The element types that a checkpoint may hold, by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

_NUMPY = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_EXTENDED = (
    "bfloat16", "float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e3m4", "float8_e4m3", "float8_e8m0fnu",
    "int4", "uint4",
)  # fmt: skip
KNOWN: dict[str, np.dtype] = {
    **{name: np.dtype(name) for name in _NUMPY},
    **{
        name: np.dtype(getattr(ml_dtypes, name))
        for name in _EXTENDED
        if hasattr(ml_dtypes, name)
    },
}
_NAMES = {dtype: name for name, dtype in KNOWN.items()}
# NumPy 1 allows 32 axes, NumPy 2 allows 64.
_MAX_AXES = 32
# Sizes in bytes must fit into 64 bits; no machine holds more elements anyway.
_MAX_ELEMENTS = 2**62


def is_known(dtype: object) -> bool:
    """Whether a checkpoint can hold arrays of a type."""
    return dtype in _NAMES


def name(dtype: DTypeLike) -> str:
    """Returns the name under which a checkpoint stores a known type."""
    return _NAMES[np.dtype(dtype)]


def parse(given: object) -> np.dtype:
    """Returns the type with a name.

    Raises:
        ValueError: the name is not that of a known type.
    """
    if not isinstance(given, str) or given not in KNOWN:
        raise ValueError(f"unknown element type {given!r}")
    return KNOWN[given]


def count(shape: Sequence[Any]) -> int:
    """Returns the number of elements of a shape.

    Raises:
        ValueError: it is not a shape, or is larger than any machine could hold.
    """
    is_shape = isinstance(shape, list | tuple) and len(shape) <= _MAX_AXES
    if not is_shape or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{str(shape)[:80]} is not a shape")
    total: int = math.prod(shape)
    if total > _MAX_ELEMENTS or max(shape, default=0) > _MAX_ELEMENTS:
        raise ValueError(f"{str(shape)[:80]} is larger than any array")
    return total
