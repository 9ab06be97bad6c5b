"""Stands for `jax.numpy` in the bodies of everyday names that run on the host.

A function that is not here is NumPy's. These differ from NumPy's in their arguments, in
their types, or in their speed.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from unisono._src.ops.host.jax_functions import SomeFunctions, argsort_down
from unisono._src.ops.host.working_arrays import NeedsJax, WorkingArray, to_working


@final
class linalg(metaclass=SomeFunctions):
    """Stands for `jax.numpy.linalg`."""

    norm = np.linalg.norm


def __getattr__(name: str) -> Any:
    if not hasattr(np, name):
        raise NeedsJax(name)
    return getattr(np, name)


def asarray(x: Any, dtype: Any = None) -> WorkingArray:
    """Returns an array of a body."""
    return to_working(np.asarray(x, dtype))


def zeros(shape: Any, dtype: Any) -> WorkingArray:
    """Returns an array of zeros of a body."""
    return full(shape, 0, dtype)


def full(shape: Any, value: Any, dtype: Any) -> WorkingArray:
    """Returns an array with one value everywhere."""
    wanted = np.dtype(dtype)
    if isinstance(value, np.ndarray) or value:
        if wanted.kind == "O" and not isinstance(value, np.ndarray):
            raise NeedsJax  # There is no text for a number, but for zero.
        return np.full(shape, value, wanted).view(WorkingArray)
    # `np.full` takes four times as long as this.
    made = np.zeros(shape, wanted)
    if wanted.kind == "O":
        made[...] = b""
    return made.view(WorkingArray)


def floor_divide(x: Any, y: Any) -> Any:
    """Returns the quotient, rounded down; that of infinity is infinite."""
    return np.floor_divide(x, y) if x.dtype.kind in "iu" else np.floor(x / y)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Returns the mean, NaN for no elements; NumPy would warn of those."""
    if x.size:
        return x.mean(axis, keepdims=keepdims)
    return np.full_like(x.sum(axis, keepdims=keepdims), np.nan)


def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Returns the variance, NaN for no elements."""
    return x.var(axis, keepdims=keepdims) if x.size else mean(x, axis, keepdims)


def clip(x: Any, low: Any, high: Any) -> Any:
    """Returns the elements within limits; floats do not exceed whole limits."""
    if x.dtype.kind == "f":
        low, high = (_round_inward(limit, x.dtype) for limit in (low, high))
    return np.minimum(np.maximum(x, low), high)


def _round_inward(limit: int, dtype: np.dtype) -> Any:
    near = dtype.type(limit)
    return np.nextafter(near, dtype.type(0)) if abs(int(near)) > abs(limit) else near


def take(x: Any, i: Any, axis: int, mode: str, fill_value: object) -> Any:
    """Returns slices at positions, which were checked."""
    return np.take(x, i, axis)


def take_along_axis(x: Any, i: Any, axis: int, **kwargs: object) -> Any:
    """Returns elements at positions along an axis."""
    if kwargs:
        raise NeedsJax
    return np.take_along_axis(x, i, axis)


def matmul(x: Any, y: Any, preferred_element_type: Any = None) -> Any:
    """Returns the product of matrices, computed in a type."""
    if preferred_element_type is not None:
        x, y = (a.astype(preferred_element_type) for a in (x, y))
    return np.matmul(x, y)


def unstack(x: Any, axis: int) -> list[Any]:
    """Returns the parts of an array along an axis."""
    return list(np.moveaxis(x, axis, 0))


def linspace(start: Any, stop: Any, num: int, axis: int) -> Any:
    """Returns evenly spaced numbers, of the type of the ends."""
    with np.errstate(all="ignore"):
        return np.linspace(start, stop, num, axis=axis, dtype=start.dtype)


def argsort(x: Any, axis: int, descending: bool, stable: bool = True) -> Any:
    """Returns the positions that put elements in order; equal ones keep theirs."""
    if descending:
        return argsort_down(x, axis)
    return np.argsort(x, axis, kind="stable")


def sort(x: Any, axis: int, descending: bool) -> Any:
    """Returns the elements in order."""
    found = np.sort(x, axis)
    return np.flip(found, axis) if descending else found


def pad(
    x: Any, widths: Any, mode: str = "constant", constant_values: Any = False
) -> Any:
    """Returns an array with more elements around it."""
    shape, inner, is_constant = [], [], mode == "constant"
    for n, (low, high) in zip(x.shape, widths, strict=True):
        shape.append(n + low + high)
        inner.append(slice(low, low + n))
        is_constant = is_constant and low >= 0 and high >= 0
    if not is_constant:
        return np.pad(x, widths, mode=mode)  # type: ignore[call-overload]
    # `np.pad` takes ten times as long as this.
    made = full(shape, constant_values, x.dtype)
    made[tuple(inner)] = x
    return made
