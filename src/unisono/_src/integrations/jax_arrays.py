"""TensorFlow's `numpy()`, `get_shape()` and `set_shape()` on JAX arrays; clear errors.

Replicas return plain JAX arrays. Programs written for TensorFlow call these methods on
them often, and JAX's array class cannot be subclassed, so they are added to the class;
those of shapes also to the class of the arrays that a program computes. If a class has
such a method already, it stays. See docs/decisions/0007.

If a worker fails during a computation, the others find out when they read the result.
JAX then raises the error of a socket; here the read raises what happened to the worker.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax._src.array import ArrayImpl

from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape
from unisono._src.values.array_operators import unpack_scalar
from unisono._src.workers import watchdog


def _numpy(self: ArrayImpl) -> np.ndarray:
    """Return the array as a NumPy array, and a scalar as a NumPy number."""
    return unpack_scalar(np.asarray(self))


def _get_shape(self: jax.Array) -> TensorShape:
    """Return the shape of the array, which is always known."""
    return TensorShape(self.shape)


def _set_shape(self: jax.Array, shape: ShapeLike) -> None:
    """Raise `ValueError` unless the array may have a shape; its own is known."""
    TensorShape(self.shape).assert_is_compatible_with(shape)


def install() -> None:
    """Add the methods and the clear errors to JAX's classes of arrays."""
    # By `setattr`, because mypy refuses the assignment to a class of another package.
    for kind, name, method in (
        (ArrayImpl, "numpy", _numpy),
        (ArrayImpl, "get_shape", _get_shape),
        (ArrayImpl, "set_shape", _set_shape),
        (jax.core.Tracer, "get_shape", _get_shape),
        (jax.core.Tracer, "set_shape", _set_shape),
    ):
        if not hasattr(kind, name):
            setattr(kind, name, method)
    # `_value` is JAX's private property through which every read of an array goes. A
    # version of JAX without it has its own errors and all else as before.
    read = getattr(ArrayImpl, "_value", None)
    if isinstance(read, property) and read.fget is not None:
        setattr(ArrayImpl, "_value", property(_wrap_read(read.fget)))  # noqa: B010


def _wrap_read(read: Any) -> Any:
    """Return a getter that explains JAX's error by the failure of a worker."""

    def value(self: ArrayImpl) -> Any:
        try:
            # JAX's own wait cannot be interrupted (decision 0023).
            watchdog.wait_for_result(self)
            return read(self)
        except (RuntimeError, ValueError) as error:
            watchdog.raise_explained(error)

    return value
