"""TensorFlow's ``tensor.numpy()`` on JAX arrays.

Values that replicas return are plain JAX arrays. Programs written for TensorFlow call
``.numpy()`` on them in every other line, and JAX's array class cannot be subclassed,
so the one missing method is added to it. An array
class that has the method keeps its own.

An array whose computation another worker has broken raises what happened to that
worker when it is read, instead of what a socket said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax._src.array import ArrayImpl

from unisono._src.workers import watchdog


def _numpy(self: ArrayImpl) -> np.ndarray:
    """The array as a NumPy array."""
    return np.asarray(self)


def install() -> None:
    """Give JAX arrays a `numpy` method, unless they have one, and clear errors."""
    if not hasattr(ArrayImpl, "numpy"):
        setattr(ArrayImpl, "numpy", _numpy)  # noqa: B010
    read = getattr(ArrayImpl, "_value", None)
    if isinstance(read, property) and read.fget is not None:
        setattr(ArrayImpl, "_value", property(_explaining(read.fget)))  # noqa: B010


def _explaining(read: Any) -> Any:
    def value(self: ArrayImpl) -> Any:
        try:
            return read(self)
        except (RuntimeError, ValueError) as error:
            watchdog.raise_explained(error)

    return value
