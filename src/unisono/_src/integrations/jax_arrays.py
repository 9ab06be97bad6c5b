"""TensorFlow's ``tensor.numpy()`` on JAX arrays.

Values that replicas return are plain JAX arrays. Programs written for TensorFlow call
``.numpy()`` on them in every other line, and JAX's array class cannot be subclassed,
so the one missing method is added to it. Nothing else of JAX is touched, and an array
class that has the method keeps its own.
"""

from __future__ import annotations

import numpy as np
from jax._src.array import ArrayImpl


def _numpy(self: ArrayImpl) -> np.ndarray:
    """The array as a NumPy array."""
    return np.asarray(self)


def install() -> None:
    """Give JAX arrays a `numpy` method, unless they have one."""
    if not hasattr(ArrayImpl, "numpy"):
        setattr(ArrayImpl, "numpy", _numpy)  # noqa: B010
