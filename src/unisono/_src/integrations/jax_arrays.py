"""TensorFlow's ``tensor.numpy()`` on JAX arrays, and clear errors when one is read.

Replicas return plain JAX arrays. Programs written for TensorFlow call ``.numpy()`` on
them often, and JAX's array class cannot be subclassed, so the method is added to the
class. If the class has such a method already, it stays. See docs/decisions/0007.

If a worker fails during a computation, the others find out when they read the result.
JAX then raises the error of a socket; here the read raises what happened to the worker.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax._src.array import ArrayImpl

from unisono._src.values.array_operators import unpack_scalar
from unisono._src.workers import watchdog


def _numpy(self: ArrayImpl) -> np.ndarray:
    """Return the array as a NumPy array, and a scalar as a NumPy number."""
    return unpack_scalar(np.asarray(self))


def install() -> None:
    """Add the method `numpy` and the clear errors to JAX's class of arrays."""
    # By `setattr`, because mypy refuses the assignment to a class of another package.
    if not hasattr(ArrayImpl, "numpy"):
        setattr(ArrayImpl, "numpy", _numpy)  # noqa: B010
    # `_value` is JAX's private property through which every read of an array goes. A
    # version of JAX without it has its own errors and all else as before.
    read = getattr(ArrayImpl, "_value", None)
    if isinstance(read, property) and read.fget is not None:
        setattr(ArrayImpl, "_value", property(_wrap_read(read.fget)))  # noqa: B010


def _wrap_read(read: Any) -> Any:
    """Return a getter that explains JAX's error by the failure of a worker."""

    def value(self: ArrayImpl) -> Any:
        try:
            watchdog.wait_for_result(self)
            return read(self)
        except (RuntimeError, ValueError) as error:
            watchdog.raise_explained(error)

    return value
