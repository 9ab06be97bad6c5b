"""`sparse.to_dense`, for arrays that are dense in place of sparse tensors."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from unisono._src.foundation import errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import tensors

__all__ = ["to_dense"]

_T = TypeVar("_T")


@everyday_name(
    "sparse.to_dense",
    difference=(
        "It takes a dense array, as VarLenFeature gives it, and returns it unchanged."
    ),
)
def to_dense(
    sp_input: _T,
    default_value: object = None,
    validate_indices: bool = True,
    name: str | None = None,
) -> _T:
    """Returns the array of a `VarLenFeature` unchanged, because it is already dense.

    Args:
        sp_input: the array.
        default_value: None, or the value that pads such arrays: 0 or an empty string.
        validate_indices: accepted for compatibility with TensorFlow and ignored.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `sp_input` is not an array.
        InvalidArgumentError: `default_value` is another value.

    >>> to_dense(np.array([3, 0])).tolist()
    [3, 0]
    """
    if not isinstance(sp_input, np.ndarray) and not tensors.is_array(sp_input):
        raise TypeError(
            "sparse.to_dense takes an array that VarLenFeature has given, received "
            f"{sp_input!r}. There are no sparse tensors; use dense arrays."
        )
    if default_value is not None and default_value not in (0, "", b""):
        raise errors.InvalidArgumentError(
            f"The array is filled up with 0 or empty text already, not with "
            f"{default_value!r}. In place of VarLenFeature write "
            "FixedLenSequenceFeature([], dtype, allow_missing=True, default_value="
            f"{default_value!r})."
        )
    return sp_input
