"""Questions about values and element types: `is_tensor` and `as_dtype`."""

from __future__ import annotations

from typing import Any, cast

import jax
import numpy as np

from unisono._src.foundation import dtypes, host_numbers, host_types
from unisono._src.foundation.tensorflow_names import everyday
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.values import array_operators
from unisono._src.values.array_operators import StandsForArray
from unisono._src.values.distributed import PerReplica
from unisono._src.values.indexed_slices import IndexedSlices

__all__ = ["DType", "Tensor", "as_dtype", "is_tensor", "newaxis"]

# What TensorFlow calls them; `None` in an index makes a new axis.
Tensor = jax.Array
newaxis = None
DType = np.dtype

_NAMES = {
    name: found for name, found in vars(dtypes).items() if isinstance(found, np.dtype)
}
# TensorFlow's other names, and Python's types where TensorFlow takes them.
_NAMES["float"] = dtypes.float32


@everyday_name("is_tensor")
def is_tensor(x: object) -> bool:
    """Returns whether a value is a JAX array, a variable or an `IndexedSlices`.

    Elements of datasets are tensors, too. A `PerReplica` is not a tensor, although
    operators accept it.

    >>> import jax.numpy as jnp
    >>> is_tensor(jnp.zeros(2)), is_tensor(np.zeros(2)), is_tensor(1.0)
    (True, False, False)
    """
    own = array_operators.find_own_variable(x)
    if isinstance(own, PerReplica):
        return False
    return isinstance(
        own, (jax.Array, StandsForArray, IndexedSlices, host_numbers.HostText)
    ) or host_types.is_tensor(own)


@everyday_name("dtypes.as_dtype", "as_dtype", difference="It returns a NumPy dtype.")
def as_dtype(type_value: object) -> np.dtype:
    """Returns the dtype for a name, or for a type of NumPy or Python.

    Args:
        type_value: a name such as ``"float32"``, a NumPy type, or `float` or `bool`.

    Raises:
        TypeError: there is no such dtype.

    >>> as_dtype("int32"), as_dtype(np.float16), as_dtype(float)
    (dtype('int32'), dtype('float16'), dtype('float32'))
    """
    if isinstance(type_value, str) and type_value in _NAMES:
        return _NAMES[type_value]
    if type_value is float:
        return dtypes.float32
    # TensorFlow refuses Python's `int`, too.
    if type_value is not None and type_value is not int:
        try:
            found = np.dtype(cast(Any, type_value))
        except TypeError:
            found = None
        # NumPy takes None for float64 when it compares.
        if found is not None and found in _NAMES.values():
            known: np.dtype = found
            return known
    raise TypeError(
        f"Cannot convert the argument `type_value`: {type_value!r} to an element type; "
        f"write one of {', '.join(sorted(set(map(str, _NAMES))))}."
    )


everyday.add(
    Tensor,
    "Tensor",
    difference=(
        "Arrays have the methods of JAX arrays, and `numpy()`, `get_shape()` and "
        "`set_shape()`."
    ),
)
everyday.add(newaxis, "newaxis")
everyday.add(
    DType,
    "dtypes.DType",
    "DType",
    difference="Types are NumPy's: write `numpy.finfo(t).max` for `t.max`.",
)
