"""`decode_raw`: the bytes of a text as numbers."""

from __future__ import annotations

import sys

import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import element_types, tensors
from unisono._src.ops.records import texts

__all__ = ["decode_raw"]

_REFUSED = (dtypes.string, dtypes.uint32, dtypes.uint64)


@everyday_name("io.decode_raw")
def decode_raw(
    input_bytes: object,
    out_type: tensors.DType,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> elements.HostArray:
    """Returns the bytes of texts as an array of numbers.

    It is a function of the host: call it in `Dataset.map`, or eagerly.

    Args:
        input_bytes: one text, or an array of texts of one length.
        out_type: the type of the numbers.
        little_endian: whether the lowest byte of a number comes first.
        fixed_length: the number of bytes to read of each text; a shorter one is filled
            up with zero bytes. None for all bytes.
        name: accepted for TensorFlow's sake.

    Returns:
        A NumPy array with one axis more than `input_bytes`.

    Raises:
        InvalidArgumentError: the texts differ in length, or are no whole numbers.
        TypeError: `input_bytes` is no text, or a program is being compiled.

    >>> decode_raw(b"abcd", np.uint8).tolist()
    [97, 98, 99, 100]
    """
    given = texts.read("decode_raw", "input_bytes", input_bytes)
    dtype = element_types.as_dtype(out_type)
    if dtype in _REFUSED:
        raise errors.InvalidArgumentError(
            f"decode_raw makes no numbers of type {dtype}."
        )
    # One text is the most frequent case, once for every record.
    if isinstance(given, bytes):
        shape: tuple[int, ...] = ()
        rows = [given]
    else:
        shape, rows = given.shape, given.reshape(-1).tolist()
    if fixed_length is not None:
        _check_length(fixed_length, dtype)
        rows = [row[:fixed_length].ljust(fixed_length, b"\0") for row in rows]
    size = len(rows[0]) if rows else fixed_length or 0
    if {*map(len, rows)} > {size}:
        other = next(i for i, row in enumerate(rows) if len(row) != size)
        raise errors.InvalidArgumentError(
            "decode_raw requires input strings to all be the same size, but element "
            f"{other} has size {len(rows[other])} != {size}. Write fixed_length= to "
            "cut or fill them up."
        )
    if size % dtype.itemsize:
        raise errors.InvalidArgumentError(
            f"Input to decode_raw has length {size} that is not a multiple of "
            f"{dtype.itemsize}, the size of {dtype}."
        )
    flat = rows[0] if len(rows) == 1 else b"".join(rows)
    found = _read_numbers(flat, dtype, little_endian)
    return found.reshape(*shape, size // dtype.itemsize).view(elements.HostArray)


def _check_length(length: int, dtype: np.dtype) -> None:
    """Raises `InvalidArgumentError` unless numbers can have so many bytes."""
    if length <= 0 or length % dtype.itemsize:
        raise errors.InvalidArgumentError(
            f"fixed_length ({length}) must be greater than zero and a multiple of "
            f"{dtype.itemsize}, the size of {dtype}."
        )


def _read_numbers(flat: bytes, dtype: np.dtype, is_little_endian: bool) -> np.ndarray:
    """Returns the numbers that bytes stand for."""
    if dtype == dtypes.bool:
        # NumPy takes the byte of a bool for 0 or 1 without looking.
        return np.not_equal(np.frombuffer(flat, np.uint8), 0)
    found = np.frombuffer(flat, dtype)
    is_native = is_little_endian == (sys.byteorder == "little")
    return found if is_native else found.byteswap()
