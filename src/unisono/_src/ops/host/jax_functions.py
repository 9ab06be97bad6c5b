"""Stands for `jax` in the bodies of everyday names that run on the host.

A body that takes another function of JAX runs with JAX instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, final

import numpy as np

from unisono._src.ops.host.working_arrays import TENSORS as Array, NeedsJax

__all__ = ["Array", "lax", "nn", "vmap"]


def __getattr__(name: str) -> NoReturn:
    raise NeedsJax(name)


def argsort_down(x: Any, axis: int) -> Any:
    """Returns the positions that put the largest first; equal ones keep their order."""
    found = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - found, axis)


@final
class SomeFunctions(type):
    """The class of groups of functions that have some of JAX's."""

    def __getattr__(cls, name: str) -> NoReturn:
        raise NeedsJax(name)


@final
class lax(metaclass=SomeFunctions):
    """Stands for `jax.lax`."""

    @staticmethod
    def div(x: Any, y: Any) -> Any:
        """Returns the quotient of integers, rounded toward zero."""
        down = np.floor_divide(x, y)
        return down + ((down < 0) & (down * y != x)).astype(x.dtype)

    @staticmethod
    def rsqrt(x: Any) -> Any:
        """Returns one divided by the square roots."""
        return np.reciprocal(np.sqrt(x))

    @staticmethod
    def complex(x: Any, y: Any) -> Any:
        """Returns complex numbers of their parts."""
        made = np.empty(x.shape, np.result_type(x, np.complex64))
        made.real, made.imag = x, y
        return made

    @staticmethod
    def stop_gradient(x: Any) -> Any:
        """Returns the array: the host has no gradients."""
        return x

    @staticmethod
    def slice(x: Any, starts: Any, ends: Any) -> Any:
        """Returns a part of an array."""
        return x[tuple(map(slice, starts, ends))]

    @staticmethod
    def top_k(x: Any, k: int) -> tuple[Any, Any]:
        """Returns the largest elements along the last axis, and their positions."""
        order = argsort_down(x, -1)[..., :k]
        return np.take_along_axis(x, order, -1), order.astype(np.int32)

    @staticmethod
    def slice_in_dim(x: Any, start: int, end: int, axis: int) -> Any:
        """Returns a part of an array along one axis."""
        return x[(slice(None),) * axis + (slice(start, end),)]


@final
class nn(metaclass=SomeFunctions):
    """Stands for `jax.nn`."""

    @staticmethod
    def one_hot(x: Any, size: int, dtype: Any, axis: int) -> Any:
        """Returns ones at positions, none for one that is not there."""
        made = x[..., None] == np.arange(size)
        return made if axis == -1 else np.moveaxis(made, -1, axis)

    @staticmethod
    def relu(x: Any) -> Any:
        """Returns the elements, zero for negative ones."""
        return np.maximum(x, np.zeros((), x.dtype))

    @staticmethod
    def sigmoid(x: Any) -> Any:
        """Returns 1 / (1 + exp(-x))."""
        one = np.ones((), x.dtype)
        return one / (one + np.exp(-x))

    @staticmethod
    def logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
        """Returns the logarithm of the sum of exponentials."""
        top = np.max(x, axis, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, np.zeros((), x.dtype))
        found = np.log(np.sum(np.exp(x - top), axis, keepdims=True)) + top
        return found if keepdims else np.squeeze(found, axis)

    @staticmethod
    def log_softmax(x: Any, axis: int) -> Any:
        """Returns the logarithms of probabilities along an axis."""
        low = x - np.max(x, axis, keepdims=True, initial=-np.inf)
        return low - np.log(np.sum(np.exp(low), axis, keepdims=True))

    @staticmethod
    def softmax(x: Any, axis: int) -> Any:
        """Returns probabilities along an axis."""
        made = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
        return made / np.sum(made, axis, keepdims=True)


def vmap(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls another for each row of its arguments."""

    def call(*arrays: Any) -> Any:
        # Only JAX knows the shape of no rows.
        if any(x is None for x in arrays) or not len(arrays[0]):
            raise NeedsJax
        return np.stack([fn(*rows) for rows in zip(*arrays, strict=True)])

    return call
