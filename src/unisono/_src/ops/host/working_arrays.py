"""Stands for `ops.tensors` in the bodies of everyday names that run on the host.

It has the functions of that module that bodies call, for arrays of NumPy's. Types of 64
bits stay what they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar, final

import jax
import numpy as np

from unisono._src.foundation import dtypes, errors, host_numbers, host_types
from unisono._src.input.plan import elements

_R = TypeVar("_R")

# NumPy's own kinds of numbers, and text. JAX computes with the other types.
_KINDS = "biufcO"
_NUMPY = (np.ndarray, np.generic)
# What Python's types and TensorFlow's names mean, where NumPy would take 64 bits.
_TYPES: dict[object, np.dtype] = {
    float: dtypes.float32,
    "float": dtypes.float32,
    int: dtypes.int32,
}


@final
class NeedsJax(AttributeError):
    """What a body raises on the host if it asks for what only JAX has."""


@final
class WorkingArray(np.ndarray):
    """An array of a body: NumPy's operators, a tensor's fixed type, JAX's `at`.

    >>> to_working(np.arange(3)).at[1].set(7).tolist()
    [0, 7, 2]
    """

    def numpy(self) -> Any:
        """Returns the plain NumPy array; this is what tells a tensor."""
        return elements.to_plain(self)

    def astype(self, dtype: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Returns the elements in another type; floats beyond its range as its limit.

        Raises:
            InvalidArgumentError: either type is text, which is not converted.
        """
        wanted = np.dtype(dtype)
        own, new = self.dtype.kind, wanted.kind
        if own == "f" and new in "iu":
            return _to_integers(self, wanted)
        if (own == "O") != (new == "O"):
            raise errors.InvalidArgumentError(
                f"Text is not cast to numbers, nor numbers to text: received an array "
                f"of type {self.dtype} for {wanted}."
            )
        if own in "fc" and wanted.itemsize < self.dtype.itemsize:
            with np.errstate(all="ignore"):  # Large numbers become infinite.
                return super().astype(wanted, **kwargs)
        return super().astype(wanted, **kwargs)

    @property
    def at(self) -> _At:
        """What replaces elements, as in JAX: ``x.at[key].set(y)``."""
        return _At(self)


@final
class _At:
    """Elements of an array that are read, or changed in a copy."""

    def __init__(self, array: WorkingArray, key: Any = None) -> None:
        self._array, self._key = array, key

    def __getitem__(self, key: Any) -> _At:
        return _At(self._array, key)

    def get(self, mode: str, fill_value: object) -> np.ndarray:
        """Returns the elements at positions that were checked."""
        return to_working(self._array[self._key])

    def set(self, values: object, **kwargs: Any) -> np.ndarray:
        """Returns the array with other elements."""
        return self._change(operator.setitem, values, **kwargs)

    def add(self, values: object, **kwargs: Any) -> np.ndarray:
        """Returns the array with values added, also twice at one position."""
        return self._change(np.add.at, values, **kwargs)

    def max(self, values: object, **kwargs: Any) -> np.ndarray:
        """Returns the array with greater values in place of elements."""
        return self._change(np.maximum.at, values, **kwargs)

    def min(self, values: object, **kwargs: Any) -> np.ndarray:
        """Returns the array with smaller values in place of elements."""
        return self._change(np.minimum.at, values, **kwargs)

    def _change(
        self, change: Callable[..., object], values: object, mode: str = "", **more: Any
    ) -> np.ndarray:
        made = self._array.copy()
        try:
            with np.errstate(all="ignore"):
                change(made, self._key, values)
        except IndexError:
            raise NeedsJax from None  # JAX leaves positions out that are not there.
        if more:
            raise NeedsJax
        return made


def _to_integers(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Returns floats as integers: cut off, within the limits of the type, 0 for NaN."""
    limits, given = np.iinfo(dtype), np.asarray(x)
    with np.errstate(all="ignore"):
        made = given.astype(dtype)
    # Exact: the limits are powers of two, or next to them.
    is_high, is_low = given >= float(limits.max) + 1.0, given <= float(limits.min) - 1.0
    is_odd = is_high | is_low | np.isnan(given)
    if is_odd.any():
        made = np.where(is_high, limits.max, np.where(is_low, limits.min, made))
        made = np.where(np.isnan(given), 0, made).astype(dtype)
    return made.view(WorkingArray)


# What `isinstance(x, jax.Array)` asks for in a body.
TENSORS: tuple[type[Any], ...] = (
    elements.HostArray,
    WorkingArray,
    host_numbers.HostBool,
    *host_numbers.CLASSES,
)


def to_working(x: Any) -> WorkingArray:
    """Returns an array, or a number of NumPy's, for a body to compute with."""
    return np.asarray(x).view(WorkingArray)


def present(result: Any) -> Any:
    """Returns what a body has computed as a user sees it: with HostArray's methods."""
    if isinstance(result, np.ndarray):
        return result.view(elements.HostArray)
    if isinstance(result, (list, tuple)):
        parts = map(present, result)
        return (
            type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        )
    # A function that the program traces with JAX itself.
    if result is None or isinstance(result, jax.core.Tracer):
        return result
    return elements.present(elements.as_array(result))


def unwrap(x: Any) -> Any:
    """Returns a value, which stands for itself on the host."""
    return x


def tensor(x: Any, dtype: Any = None) -> WorkingArray:
    """Returns the array of a value; see `ops.tensors.tensor`."""
    wanted = None if dtype is None else usable_type(dtype)
    if isinstance(x, TENSORS) and wanted is not None and x.dtype != wanted:
        raise ValueError(
            f"Tensor conversion requested dtype {wanted} for Tensor with dtype "
            f"{x.dtype}; convert it with unisono.cast."
        )
    # The most frequent case first.
    if wanted is None and isinstance(x, _NUMPY) and x.dtype.kind in "biuf":
        x = np.asarray(x)
    else:
        x = host_types.to_array(x, wanted)
        if x.dtype.kind not in _KINDS:
            raise NeedsJax
    made: WorkingArray = x.view(WorkingArray)
    return made


def renew(x: WorkingArray) -> WorkingArray:
    """Returns a copy of an array."""
    return x.copy()


def own_tensor(x: Any, dtype: Any = None) -> WorkingArray:
    """Returns what `tensor` does, in memory that the program does not change."""
    found = tensor(x, dtype)
    return found.copy() if type(x) is np.ndarray else found


def to_one_type(name: str, *values: object) -> list[WorkingArray]:
    """Returns values as arrays of one type; see `foundation.host_types`."""
    found: Sequence[np.ndarray]
    if len(values) == 2:
        found = host_types.to_one_type(name, *values)
    else:
        found = host_types.all_to_one_type(name, values)
    if found[0].dtype.kind not in _KINDS:
        raise NeedsJax
    return [x.view(WorkingArray) for x in found]


def to_numpy(x: Any, dtype: Any = None) -> np.ndarray:
    """Returns numbers as an array of TensorFlow's type."""
    return host_types.to_array(x, None if dtype is None else usable_type(dtype))


def shape_of(x: Any) -> tuple[int, ...]:
    """Returns the shape of a value's array."""
    return x.shape if isinstance(x, np.ndarray) else host_types.to_array(x).shape


def has_arrays(x: object) -> TypeGuard[Sequence[object]]:
    """Returns whether nested lists have tensors."""
    return isinstance(x, (list, tuple)) and any(
        isinstance(leaf, TENSORS) for leaf in host_types.leaves(x)
    )


def usable_type(dtype: Any) -> np.dtype:
    """Returns the element type that a program asks for."""
    found = dtype if type(dtype) is np.dtype else _TYPES.get(dtype) or np.dtype(dtype)
    if found.kind not in _KINDS:
        raise NeedsJax
    return found


canonical_type = usable_type


def call(name: str, fn: Callable[..., _R], *args: object, **kwargs: object) -> _R:
    """Returns ``fn(*args, **kwargs)``; raises TensorFlow's errors in place of NumPy's.

    Raises:
        InvalidArgumentError: shapes or numbers do not fit together.
    """
    try:
        return fn(*args, **kwargs)
    except (TypeError, ValueError, IndexError) as error:
        if isinstance(error, errors.InvalidArgumentError):
            raise
        raise errors.InvalidArgumentError(f"{name}: {error}") from error


def require_known(name: str, what: str, given: Any) -> Any:
    """Returns whole numbers as Python's; see `ops.tensors.require_known`.

    Raises:
        TypeError: a number is not whole.
    """
    if type(given) is int or given is None:
        return given
    if isinstance(given, (list, tuple)) or getattr(given, "ndim", None):
        return tuple([require_known(name, what, part) for part in given])
    if (
        isinstance(given, float)
        or getattr(given, "dtype", dtypes.int32).kind not in "iub"
    ):
        raise TypeError(f"{what} of {name} must be whole, received {given!r}.")
    return given.item() if hasattr(given, "dtype") else given


def sizes(name: str, what: str, x: Any) -> tuple[Any, ...]:
    """Returns a shape or axes as a tuple of Python's numbers."""
    found = require_known(name, what, x)
    return found if isinstance(found, tuple) else (found,)


def known_numbers(x: np.ndarray) -> np.ndarray:
    """Returns numbers, which are known on the host."""
    return x


def is_traced_tree(x: object) -> bool:
    """Returns whether a number is not known yet; on the host all are."""
    return False
