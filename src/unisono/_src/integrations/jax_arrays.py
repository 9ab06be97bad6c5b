"""TensorFlow's `numpy()`, `get_shape()`, `set_shape()` and lists on JAX arrays.

Replicas return plain JAX arrays. Programs written for TensorFlow call these methods on
them often, and JAX's array class cannot be subclassed, so they are added to the class;
those of shapes also to the class of the arrays that a program computes. If a class has
such a method already, it stays. See docs/decisions/0007.

The operators of both classes take lists and tuples of numbers as the other operand,
which JAX refuses. See docs/decisions/0035.

A function may capture an array of NumPy's. If it has a number of 64 bits that JAX would
cut, it is refused where JAX takes it into the program.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from unisono._src.foundation import ambient, jax_internals, wide_numbers
from unisono._src.foundation.tensor_shape import ShapeLike, TensorShape
from unisono._src.values import array_operators
from unisono._src.values.array_operators import take_lists, unpack_scalar

_ArrayImpl = jax_internals.ArrayImpl
# Returns the type of an array of the host in a program.
_TypeFinder = Callable[[np.ndarray | np.generic], object]


def _numpy(self: jax.Array) -> np.ndarray:
    """Return a NumPy array, which can be changed, or of a scalar a NumPy number."""
    return np.array(self) if self.ndim else unpack_scalar(np.asarray(self))


def _get_shape(self: jax.Array) -> TensorShape:
    """Return the shape of the array, which is always known."""
    return TensorShape(self.shape)


def _set_shape(self: jax.Array, shape: ShapeLike) -> None:
    """Raise `ValueError` unless the array may have a shape; its own is known."""
    TensorShape(self.shape).assert_is_compatible_with(shape)


# Those for which JAX raises `TypeError` beside a list.
OPERATORS = (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"),
    *("floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow", "matmul", "rmatmul"),
    *("and", "rand", "or", "ror", "xor", "rxor"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)


def install() -> None:
    """Add the methods to JAX's classes of arrays."""
    if jax_internals.find_missing(jax_internals.ARRAYS):
        return
    # By `setattr`, because mypy refuses the assignment to a class of another package.
    for kind, name, method in (
        (_ArrayImpl, "numpy", _numpy),
        (_ArrayImpl, "get_shape", _get_shape),
        (_ArrayImpl, "set_shape", _set_shape),
        (jax.core.Tracer, "get_shape", _get_shape),
        (jax.core.Tracer, "set_shape", _set_shape),
    ):
        if not hasattr(kind, name):
            setattr(kind, name, method)
    # Profiles and messages of JAX tell the line that has the operator, not ours.
    jax_internals.hide_file(array_operators.__file__)
    for kind in (_ArrayImpl, jax.core.Tracer):
        for name in OPERATORS:
            operator = vars(kind).get(f"__{name}__")
            if operator is not None:
                setattr(kind, f"__{name}__", take_lists(operator))
    if jax_internals.find_missing(jax_internals.CAPTURES):
        return
    # JAX asks here for the type of each array of the host that a program takes in. A
    # version of JAX without it keeps the lower bits of such numbers.
    types = jax_internals.pytype_aval_mappings
    for host in (np.ndarray, *{kind.type for kind in wide_numbers.WIDE}):
        if host in types:
            types[host] = _wrap_type(types[host])


def _wrap_type(find: _TypeFinder) -> _TypeFinder:
    """Return JAX's function of an array's type, behind a look at the numbers."""

    def find_type(x: np.ndarray | np.generic) -> object:
        if x.dtype in wide_numbers.WIDE:
            frame = ambient.current()
            # Programs that are JAX's alone go by JAX's rule.
            if frame.state is not None or frame.tape is not None:
                wide_numbers.check(x, "an array that a function uses")
        return find(x)

    return find_type
