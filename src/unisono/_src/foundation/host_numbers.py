"""NumPy's numbers with TensorFlow's method `numpy`.

TensorFlow's numbers are tensors, and programs call ``.numpy()`` on them. Where this
library gives a NumPy number instead, it is one of these: the same number of the same
type to NumPy, to JAX and to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.foundation import nest


def _numpy(self: Any) -> np.generic:
    """Returns the plain NumPy number."""
    number: np.generic = self[()]
    return number


def _repr(self: Any) -> str:
    return repr(self[()])


@final
class HostBool(np.ndarray):
    """The result of comparing two numbers: NumPy's bool with the method `numpy`.

    NumPy's bool cannot have subclasses, so this is an array of shape ().
    """

    def numpy(self) -> np.bool_:
        """Returns the plain NumPy bool."""
        return np.bool_(self)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(bool(self))

    def __repr__(self) -> str:
        return repr(np.bool_(self))

    def __array_wrap__(
        self, array: np.ndarray, context: object = None, scalar: bool = False
    ) -> Any:
        # What NumPy makes of it is an ordinary array or number.
        return array[()] if array.ndim == 0 else array


def _comparison(name: str) -> Callable[[Any, object], Any]:
    """Returns a comparison of numbers whose result has the method `numpy`."""

    def compare(self: Any, other: object) -> Any:
        # `self[()]` is the plain number: the comparison of `self` is this function.
        found = getattr(self[()], name)(other)
        return np.asarray(found).view(HostBool) if type(found) is np.bool_ else found

    return compare


_METHODS: dict[str, Any] = {
    name: _comparison(name)
    for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
}
_KINDS: list[type[np.generic]] = [
    np.int8, np.int16, np.int32,
    np.uint8, np.uint16, np.uint32, np.uint64,
    np.float16, np.float32, np.float64,
    np.complex64, np.complex128,
]  # fmt: skip
_WITH_NUMPY: dict[type, Any] = {
    kind: type(
        kind.__name__,
        (kind,),
        {
            "numpy": _numpy,
            "__repr__": _repr,
            # A class that compares in its own way has no hash, unless it says so.
            "__hash__": kind.__hash__,
            **_METHODS,
        },
    )
    for kind in _KINDS
}


@final
class HostInt64(np.int64):
    """An `np.int64` with the method `numpy`, for annotations."""

    def numpy(self) -> np.int64:
        """Returns the plain NumPy number."""
        return np.int64(self)

    __repr__ = _repr
    __hash__ = np.int64.__hash__


for _name, _method in _METHODS.items():
    setattr(HostInt64, _name, _method)
_WITH_NUMPY[np.int64] = HostInt64


def to_host_number(x: object) -> Any:
    """Returns a NumPy number with the method `numpy`, and anything else as it is.

    >>> to_host_number(np.float32(3)), to_host_number(np.float32(3)).numpy()
    (np.float32(3.0), np.float32(3.0))
    >>> to_host_number("text")
    'text'
    """
    kind = _WITH_NUMPY.get(type(x))
    return x if kind is None else kind(x)


def to_host_numbers(x: object) -> Any:
    """Returns `x` with the method `numpy` on every NumPy number in its structure.

    A structure without such numbers stays the same object.

    >>> to_host_numbers({"loss": np.float32(3)})["loss"].numpy()
    np.float32(3.0)
    """
    if not nest.is_nested(x):
        return to_host_number(x)
    if any(type(leaf) in _WITH_NUMPY for leaf in nest.leaves(x)):
        return nest.map_structure(to_host_number, x)
    return x
