"""NumPy's numbers with TensorFlow's method `numpy`.

TensorFlow's numbers are tensors, and programs call ``.numpy()`` on them. Where this
library gives a NumPy number instead, it is one of these: the same number of the same
type to NumPy, to JAX and to Python.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from unisono._src.foundation import nest


def _numpy(self: Any) -> Any:
    """Returns the plain NumPy number."""
    return self[()]


def _repr(self: Any) -> str:
    return repr(self[()])


# NumPy's bool cannot have subclasses.
_KINDS: list[type[np.generic]] = [
    np.int8, np.int16, np.int32,
    np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64,
    np.complex64, np.complex128,
]  # fmt: skip
_WITH_NUMPY: dict[type, Any] = {
    kind: type(kind.__name__, (kind,), {"numpy": _numpy, "__repr__": _repr})
    for kind in _KINDS
}


@final
class HostInt64(np.int64):
    """An `np.int64` with the method `numpy`, for annotations."""

    def numpy(self) -> np.int64:
        """Returns the plain NumPy number."""
        return np.int64(self)

    __repr__ = _repr


_WITH_NUMPY[np.int64] = HostInt64


def with_numpy(x: Any) -> Any:
    """Returns a NumPy number with the method `numpy`, and anything else as it is.

    >>> with_numpy(np.float32(3)), with_numpy(np.float32(3)).numpy()
    (np.float32(3.0), np.float32(3.0))
    >>> with_numpy("text")
    'text'
    """
    kind = _WITH_NUMPY.get(type(x))
    return x if kind is None else kind(x)


def with_numpy_inside(x: Any) -> Any:
    """Returns `x` with the method `numpy` on every NumPy number in its structure.

    A structure without such numbers stays the same object.

    >>> with_numpy_inside({"loss": np.float32(3)})["loss"].numpy()
    np.float32(3.0)
    """
    if not nest.is_nested(x):
        return with_numpy(x)
    if any(type(leaf) in _WITH_NUMPY for leaf in nest.leaves(x)):
        return nest.map_structure(with_numpy, x)
    return x
