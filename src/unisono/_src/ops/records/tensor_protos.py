"""`serialize_tensor` and `parse_tensor`: arrays as TensorFlow's message of tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.foundation import dtypes, errors, messages
from unisono._src.foundation.host_numbers import HostText
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import bodies, element_types, tensors
from unisono._src.ops.records import raw_bytes

__all__ = ["parse_tensor", "serialize_tensor"]

# For each type its number in TensorFlow's messages, the field that may have its values,
# and the type of the numbers in that field: halves are there as their bits, and complex
# numbers as two parts each.
_ROWS: tuple[tuple[np.dtype, int, str, Any], ...] = (
    (dtypes.float32, 1, "float_val", np.float32),
    (dtypes.float64, 2, "double_val", np.float64),
    (dtypes.int32, 3, "int_val", np.int32),
    (dtypes.uint8, 4, "int_val", np.int32),
    (dtypes.int16, 5, "int_val", np.int32),
    (dtypes.int8, 6, "int_val", np.int32),
    (dtypes.string, 7, "string_val", object),
    (dtypes.complex64, 8, "scomplex_val", np.float32),
    (dtypes.int64, 9, "int64_val", np.int64),
    (dtypes.bool, 10, "bool_val", np.bool_),
    (dtypes.bfloat16, 14, "half_val", np.int32),
    (dtypes.uint16, 17, "int_val", np.int32),
    (dtypes.complex128, 18, "dcomplex_val", np.float64),
    (dtypes.float16, 19, "half_val", np.int32),
    (dtypes.uint32, 22, "uint32_val", np.uint32),
    (dtypes.uint64, 23, "uint64_val", np.uint64),
)
_BY_TYPE = {row[0]: row for row in _ROWS}
_BY_NUMBER = {row[1]: row for row in _ROWS}
# A message of a few bytes may stand for an array of one repeated value; of no more
# elements than this.
_MOST_REPEATED = 1 << 26


@functools.cache
def _tensor_class() -> Any:
    return messages.make_classes(
        "tensorflow",
        TensorProto="optional int32 dtype = 1; optional Shape tensor_shape = 2;"
        "optional bytes tensor_content = 4; repeated int32 half_val = 13;"
        "repeated float float_val = 5; repeated double double_val = 6;"
        "repeated int32 int_val = 7; repeated bytes string_val = 8;"
        "repeated float scomplex_val = 9; repeated int64 int64_val = 10;"
        "repeated bool bool_val = 11; repeated double dcomplex_val = 12;"
        "repeated uint32 uint32_val = 16; repeated uint64 uint64_val = 17",
        Shape="repeated Dim dim = 2; optional bool unknown_rank = 3",
        Dim="optional int64 size = 1",
    )["TensorProto"]


@everyday_name("io.serialize_tensor")
def serialize_tensor(tensor: object, name: str | None = None) -> HostText:
    r"""Converts an array to bytes for `parse_tensor`, also for that of TensorFlow.

    Args:
        tensor: an array, a number, a string, or nested lists of these.
        name: accepted for compatibility with TensorFlow and ignored.

    Returns:
        `bytes`, with the method `numpy`.

    Raises:
        TypeError: TensorFlow has no such dtype, or a compiled function computes the
            array.

    >>> serialize_tensor(np.array([1, 2], np.uint8))
    b'\x08\x04\x12\x04\x12\x02\x08\x02"\x02\x01\x02'
    """
    given = tensors.unwrap(tensor)
    if bodies.is_traced() and tensors.is_traced_tree(given):
        raise TypeError(
            "serialize_tensor makes bytes, which a compiled program does not have. "
            "Return the array from the program, and call it outside."
        )
    array = elements.as_array(elements.to_array(given))
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype not in _BY_TYPE:
        raise TypeError(f"TensorFlow has no type for an array of {array.dtype}.")
    made = _tensor_class()(dtype=_BY_TYPE[array.dtype][1])
    made.tensor_shape.SetInParent()
    for size in array.shape:
        # TensorFlow writes no zeros.
        made.tensor_shape.dim.add(**({"size": size} if size else {}))
    if array.dtype.kind == "O":
        made.string_val.extend(array.reshape(-1).tolist())
    elif array.size:
        made.tensor_content = array.astype(array.dtype.newbyteorder("<")).tobytes()
    return HostText(made.SerializeToString(deterministic=True))


@everyday_name("io.parse_tensor")
def parse_tensor(
    serialized: object, out_type: tensors.DType, name: str | None = None
) -> Any:
    """Converts bytes of `serialize_tensor`, also of TensorFlow's, to an array.

    It runs on the host: call it in `Dataset.map` or eagerly.

    Args:
        serialized: the bytes.
        out_type: the dtype of the array, which must be the one in the bytes.
        name: accepted for compatibility with TensorFlow and ignored.

    Returns:
        A NumPy array with TensorFlow's method `numpy`, or `bytes` for a single string.

    Raises:
        InvalidArgumentError: the bytes are damaged, or have another dtype.
        TypeError: `serialized` is not a string, or a function is being compiled.

    >>> parse_tensor(serialize_tensor([[1.5, 2.0]]), np.float32).tolist()
    [[1.5, 2.0]]
    """
    from google.protobuf.message import DecodeError

    record = raw_bytes.read_one("parse_tensor", "serialized", serialized)
    dtype = element_types.as_dtype(out_type)
    try:
        proto = _tensor_class().FromString(record)
    except DecodeError as e:
        raise errors.InvalidArgumentError(
            f"Could not parse `serialized` as TensorProto: the {len(record)} bytes are "
            f"damaged, or no tensor ({e})."
        ) from e
    if proto.dtype not in _BY_NUMBER:
        raise _damaged(f"there is no type with number {proto.dtype}")
    found = _BY_NUMBER[proto.dtype]
    if found[0] != dtype:
        raise errors.InvalidArgumentError(
            f"Type mismatch between parsed tensor ({_name(found[0])}) and dtype "
            f"({_name(dtype)})."
        )
    shape = tuple(dim.size for dim in proto.tensor_shape.dim)
    if any(size < 0 for size in shape):
        raise _damaged(f"its shape is {shape}")
    try:
        array = _read_values(proto, found, math.prod(shape)).reshape(shape)
    except ValueError as e:
        raise _damaged(f"its shape is {shape}: {e}") from e
    return raw_bytes.present(elements.to_plain(array) if dtype.kind == "O" else array)


def _name(dtype: np.dtype) -> str:
    return "string" if dtype == dtypes.string else str(dtype)


def _damaged(why: str) -> errors.InvalidArgumentError:
    return errors.InvalidArgumentError(f"Cannot parse tensor from proto: {why}.")


def _read_values(
    proto: Any, row: tuple[np.dtype, int, str, Any], count: int
) -> np.ndarray:
    """Returns the elements of a tensor in one axis."""
    dtype, _, field, stored = row
    content: bytes = proto.tensor_content
    if content and dtype.kind != "O":
        if len(content) != count * dtype.itemsize:
            raise _damaged(
                f"it has {len(content)} bytes for {count} elements of {dtype}"
            )
        return np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype)
    values = _from_field(getattr(proto, field), dtype, stored)[:count]
    if len(values) == count:
        return values
    if count > _MOST_REPEATED:
        raise _damaged(f"it has {len(values)} values for {count} elements")
    out = elements.blank((count,), dtype)
    out[: len(values)] = values
    if len(values):
        # As TensorFlow does: the last one stands for those that follow.
        out[len(values) :] = values[-1]
    return out


def _from_field(values: Sequence[Any], dtype: np.dtype, stored: Any) -> np.ndarray:
    """Returns the values of a field in the type that they stand for."""
    if dtype.kind == "O":
        out = np.empty(len(values), object)
        out[:] = list(values)
        return out
    numbers = np.array(values, stored)
    if dtype.kind == "c":
        # A part without the other one is left out.
        return numbers[: len(numbers) // 2 * 2].view(dtype)
    if dtype.itemsize == 2 and dtype.kind in "fV":
        return numbers.astype(np.uint16).view(dtype)
    return numbers.astype(dtype)
