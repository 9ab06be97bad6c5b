"""Texts that functions of records take, and `decode_raw`: their bytes as numbers."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unisono._src.foundation import dtypes, errors, host_numbers
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops import bodies, element_types, tensors
from unisono._src.values import jax_traces

__all__ = [
    "decode_raw",
]


_REFUSED = (dtypes.string, dtypes.uint32, dtypes.uint64)


@everyday_name("io.decode_raw")
def decode_raw(
    input_bytes: object,
    out_type: tensors.DType,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> elements.HostArray:
    """Returns the bytes of strings as an array of numbers.

    It runs on the host: call it in `Dataset.map` or eagerly.

    Args:
        input_bytes: a string, or an array of strings of equal length.
        out_type: the dtype of the numbers.
        little_endian: whether the least significant byte of a number comes first.
        fixed_length: the number of bytes to read from each string; shorter strings are
            padded with zero bytes. None to read all bytes.
        name: accepted for compatibility with TensorFlow and ignored.

    Returns:
        A NumPy array with one more axis than `input_bytes`.

    Raises:
        InvalidArgumentError: the strings differ in length, or their length is not a
            multiple of the size of `out_type`.
        TypeError: `input_bytes` is not a string, or a function is being compiled.

    >>> decode_raw(b"abcd", np.uint8).tolist()
    [97, 98, 99, 100]
    """
    given = read("decode_raw", "input_bytes", input_bytes)
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


def read(name: str, what: str, x: object) -> bytes | np.ndarray:
    """Returns text as `bytes`, or as an array of `bytes`.

    Args:
        name: the function that was called.
        what: the argument, for messages.
        x: `bytes`, `str`, nested lists or an array of them.

    Raises:
        TypeError: it is no text, or a program is being compiled, which has none.
    """
    if not jax_traces.is_clean() and bodies.is_traced():
        raise TypeError(
            f"{name} reads bytes, and a compiled program has none. Call it in the "
            "dataset, as in dataset.map(parse), in a function without "
            "unisono.function."
        )
    if isinstance(x, bytes):
        return bytes(x)
    # A batch of a dataset, which needs no conversion.
    if isinstance(x, elements.HostArray) and x.ndim and {*map(type, x.flat)} == {bytes}:
        return x.view(np.ndarray)
    found = None if tensors.is_array(x) else elements.to_array(x)
    if isinstance(found, bytes):
        return found
    if not isinstance(found, np.ndarray) or found.dtype.kind != "O":
        # A list without elements has no text either, and is one all the same.
        if isinstance(found, np.ndarray) and not found.size:
            return found.astype(object)
        raise TypeError(f"{what} of {name} must be bytes, received {x!r}.")
    return found


def read_one(name: str, what: str, x: object) -> bytes:
    """Returns one text; the arguments are those of `read`.

    Raises:
        TypeError: it is no text, or a program is being compiled, which has none.
        InvalidArgumentError: it is an array of texts.
    """
    found = read(name, what, x)
    if isinstance(found, bytes):
        return found
    raise errors.InvalidArgumentError(
        f"{what} of {name} must be a scalar, received shape {found.shape}."
    )


def present(x: Any) -> Any:
    """Returns an array, or one text, as functions return it: as elements are."""
    if type(x) is not bytes:
        return x.view(elements.HostArray)
    return host_numbers.HostText(x)
