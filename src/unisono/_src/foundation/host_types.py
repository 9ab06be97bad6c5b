"""TensorFlow's rule of types for arrays of NumPy's: which type operands get.

An element of a dataset, or what a function of datasets computes, stands for a tensor:
it has the method `numpy`, keeps its type, and decides on the type of the numbers beside
it. Numbers of Python, lists and plain arrays of NumPy's are values, which become that
type if it can hold their kind of numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeGuard, final

import numpy as np

from unisono._src.foundation import dtypes, errors

_TEXT = np.dtype(object)
# A kind includes the numbers of those before it; text is beside them.
_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_PYTHON: dict[type, np.dtype] = {
    bool: dtypes.bool,
    int: dtypes.int32,
    float: dtypes.float32,
    complex: dtypes.complex128,
}
_NUMBERS: dict[type, int] = {bool: 0, int: 1, float: 2, complex: 3}
# Every type of floats has numbers of this size.
_SMALL = 6e4


def is_tensor(x: object) -> TypeGuard[np.ndarray]:
    """Returns whether a value of the host keeps its type, as a tensor does."""
    return isinstance(x, (np.ndarray, np.generic)) and hasattr(x, "numpy")


@functools.cache
def rank_of(dtype: np.dtype) -> int:
    """Returns the place of a type's kind among bool, integer, float, complex.

    It is -1 for text, and 2 for types of floats that NumPy itself does not have.
    """
    if dtype.kind in "OSU":
        return -1
    return _RANKS.get(dtype.kind, 2)


def can_hold(wanted: np.dtype, given: np.dtype) -> bool:
    """Returns whether the numbers of one type keep their meaning in another type.

    >>> can_hold(np.dtype("float32"), np.dtype("int64"))
    True
    >>> can_hold(np.dtype("int32"), np.dtype("float32"))
    False
    """
    mine, other = rank_of(wanted), rank_of(given)
    return other <= mine and (other >= 0 or mine < 0)


def to_one_type(name: str, x: object, y: object) -> tuple[np.ndarray, np.ndarray]:
    """Returns two operands as arrays of one type.

    The first tensor decides on the type, or else the first value.

    Args:
        name: the name of the function that takes them.
        x: a tensor, an array, a number, text, or nested lists of these.
        y: the same.

    Raises:
        InvalidArgumentError: they are tensors of different types.
        TypeError: a number is of a kind that does not fit that type.
        OverflowError: a whole number is out of the range of that type.

    >>> x, y = to_one_type("add", [1.5], 2)
    >>> x.dtype.name, y.dtype.name
    ('float32', 'float32')
    """
    # The most frequent cases: two tensors of one type, and a tensor beside a number.
    if isinstance(x, np.ndarray) and hasattr(x, "numpy"):
        if isinstance(y, np.ndarray) and x.dtype == y.dtype:
            return x, y
        if type(y) in _PYTHON:
            return x, _to_number(y, x.dtype)
    one, other = all_to_one_type(name, (x, y))
    return one, other


def all_to_one_type(name: str, values: Sequence[object]) -> list[np.ndarray]:
    """Returns values as arrays of one type, as `to_one_type` does for two."""
    dtype: np.dtype | None = None
    given: list[Any] = list(values)
    for index, value in enumerate(given):
        if isinstance(value, (list, tuple)) and any(map(is_tensor, leaves(value))):
            given[index] = value = _Packed(_pack(name, value))
        if dtype is None and (is_tensor(value) or isinstance(value, _Packed)):
            dtype = value.dtype
    if dtype is None:
        given[0] = to_array(given[0])
        dtype = given[0].dtype
    return [_fit(name, value, dtype) for value in given]


@final
class _Packed:
    """A list of tensors that has become one array, which keeps its type."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.dtype = array.dtype


def _fit(name: str, x: Any, dtype: np.dtype) -> np.ndarray:
    """Returns a value as an array of a type."""
    kind = type(x)
    if kind is _Packed:
        x, is_kept = x.array, True
    elif kind in _PYTHON:
        return _to_number(x, dtype)
    else:
        is_kept = is_tensor(x)
    found: Any = getattr(x, "dtype", None)
    if found == dtype:
        # NumPy takes a class of `bytes` for a number.
        return to_text(x) if isinstance(x, bytes) else np.asanyarray(x)
    if is_kept:
        raise errors.InvalidArgumentError(
            f"{name} takes arrays of one type, received {_name(dtype)} and "
            f"{_name(found)}. Convert one of them first, as in unisono.cast(x, "
            f"unisono.{_name(dtype)})."
        )
    if isinstance(x, (np.ndarray, np.generic)) and not can_hold(dtype, x.dtype):
        raise TypeError(
            f"{name} takes arrays of one type, received {_name(dtype)} and a NumPy "
            f"array of type {_name(x.dtype)}. Convert it first, as in unisono.cast(x, "
            f"unisono.{_name(dtype)})."
        )
    return to_array(x, dtype)


def _to_number(x: Any, dtype: np.dtype) -> np.ndarray:
    """Returns a Python number as an array of a type and of shape ()."""
    if rank_of(dtype) < _NUMBERS[type(x)]:
        raise _kind_error(x, dtype)
    if type(x) is not float or -_SMALL < x < _SMALL:
        return np.asarray(x, dtype)
    with np.errstate(over="ignore"):  # A float32 of 1e300 is infinite.
        return np.asarray(x, dtype)


def to_array(x: Any, dtype: np.dtype | None = None) -> np.ndarray:
    """Returns a value as an array of TensorFlow's type.

    Args:
        x: a tensor, an array, a number, text, or nested lists of these.
        dtype: the type of the array. By default the array's own, int32 for Python's
            integers (int64 if they are large) and float32 for its floats.

    Raises:
        TypeError: a number is of a kind that does not fit `dtype`.
        OverflowError: a whole number is out of the range of `dtype`.
        ValueError: it is none of these, or a list whose parts differ in shape.

    >>> (
    ...     to_array([1, 2]).dtype.name,
    ...     to_array(2**40).dtype.name,
    ...     to_array(1.5).dtype.name,
    ... )
    ('int32', 'int64', 'float32')
    """
    if type(x) in _PYTHON and (dtype is not None or type(x) is not int or _is_32(x)):
        return _to_number(x, _PYTHON[type(x)] if dtype is None else dtype)
    if isinstance(x, (list, tuple)) and any(map(is_tensor, leaves(x))):
        x = _pack("stack", x)
    if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind not in "OSU":
        found = np.asanyarray(x)
        natural = found.dtype
    elif _is_text(x):
        found, natural = to_text(x), _TEXT
    else:
        found = _read(x)
        natural = _natural_type(x, found)
    if dtype is None:
        dtype = natural
    if found.size and not can_hold(dtype, natural):
        raise _kind_error(x, dtype)
    if found.dtype == dtype:
        return found
    if rank_of(dtype) == 1 and found.size and found.dtype.kind in "iu":
        _check_range(found, dtype)
    with np.errstate(over="ignore"):
        return found.astype(dtype)


def leaves(x: Iterable[object]) -> Iterator[object]:
    """Yields the numbers and arrays of nested lists."""
    for part in x:
        if isinstance(part, (list, tuple)):
            yield from leaves(part)
        else:
            yield part


def to_text(x: Any) -> np.ndarray:
    """Returns text, or nested lists of text, as an array of `bytes` objects.

    Raises:
        TypeError: something in it is no text.
    """
    given = np.empty((), _TEXT) if isinstance(x, (str, bytes)) else np.asarray(x, _TEXT)
    if isinstance(x, (str, bytes)):
        given[()] = x
    out = np.empty(given.shape, _TEXT)
    for index in np.ndindex(given.shape):
        value = given[index]
        if not isinstance(value, (str, bytes)):
            raise TypeError(f"Expected text, received {value!r} in {x!r}.")
        out[index] = value.encode() if isinstance(value, str) else bytes(value)
    return out


def _is_text(x: object) -> bool:
    if isinstance(x, (list, tuple)):
        x = next(leaves(x), None)
    if isinstance(x, (np.ndarray, np.generic)):
        return x.dtype.kind in "OSU"
    return isinstance(x, (str, bytes))


def _pack(name: str, parts: Sequence[object]) -> np.ndarray:
    """Returns the array of nested lists in which some leaves are tensors."""
    dtype = next(leaf.dtype for leaf in leaves(parts) if is_tensor(leaf))
    made = [
        _pack(name, part)
        if isinstance(part, (list, tuple)) and any(map(is_tensor, leaves(part)))
        else _fit(name, part, dtype)
        for part in parts
    ]
    try:
        found = np.stack(made)
    except ValueError as error:
        raise errors.InvalidArgumentError(f"{name}: {error}") from error
    return found


def read_rows(x: object) -> np.ndarray:
    """Returns numbers, or nested lists of them, as NumPy reads them.

    Raises:
        ValueError: rows differ in length, or there are bools among the numbers.
    """
    try:
        found = np.asarray(x)
    except ValueError as error:
        raise ValueError(
            f"Can't convert non-rectangular Python sequence to Tensor: received {x!r}."
        ) from error
    # NumPy would take True for 1. Objects and text are no numbers at all.
    if (
        isinstance(x, (list, tuple))
        and found.dtype.kind not in "bOSU"
        and any(isinstance(leaf, (bool, np.bool_)) for leaf in leaves(x))
    ):
        raise ValueError(
            f"Can't convert Python sequence with mixed types to Tensor: received {x!r}."
        )
    return found


def _read(x: object) -> np.ndarray:
    """Returns numbers, or nested lists of numbers, as NumPy reads them."""
    found = read_rows(x)
    if found.dtype.kind not in "biufc" and found.dtype != dtypes.bfloat16:
        raise ValueError(
            f"Attempt to convert a value ({x!r}) with an unsupported type ({type(x)}) "
            "to a Tensor."
        )
    return found


def _natural_type(x: object, found: np.ndarray) -> np.dtype:
    """Returns TensorFlow's type for numbers that are not an array of NumPy's."""
    parts = list(leaves(x)) if isinstance(x, (list, tuple)) else [x]
    told = [part.dtype for part in parts if isinstance(part, (np.ndarray, np.generic))]
    if told and (len(told) == len(parts) or found.dtype.kind not in "iuf"):
        return np.result_type(*told)
    if found.dtype.kind == "f":
        return dtypes.float32
    if found.dtype.kind in "iu" and fits(found, dtypes.int32):
        return dtypes.int32
    if found.dtype == dtypes.uint64:
        raise ValueError(
            f"Can't convert Python sequence with out-of-range integer to Tensor: "
            f"received {x!r}."
        )
    return found.dtype


def _is_32(x: int) -> bool:
    return -(2**31) <= x < 2**31


def fits(x: np.ndarray, dtype: np.dtype) -> bool:
    """Returns whether integers are in the range of a type of integers."""
    limits = np.iinfo(dtype)
    return not x.size or bool(x.min() >= limits.min and x.max() <= limits.max)


def _check_range(x: np.ndarray, dtype: np.dtype) -> None:
    if not fits(x, dtype):
        raise OverflowError(
            f"The integers {x.min()} to {x.max()} are out of the range of "
            f"{_name(dtype)}; convert them first, as in unisono.cast(x, "
            f"unisono.{_name(dtype)})."
        )


def _kind_error(x: object, dtype: np.dtype) -> TypeError:
    return TypeError(f"Cannot convert {x!r} to a tensor of type {_name(dtype)}.")


def _name(dtype: np.dtype) -> str:
    return "string" if dtype == _TEXT else dtype.name
