"""Numbers of text, and text of numbers: `to_number` and `as_string`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from unisono._src.foundation import dtypes, errors, host_numbers
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.input.plan import elements
from unisono._src.ops.tensors import DType, TensorLike
from unisono._src.ops.text import arrays
from unisono._src.ops.text.arrays import Given, TextLike

__all__ = ["as_string", "to_number"]

_HEX = re.compile(rb"\s*([+-]?)0x([0-9a-f]+)\s*", re.IGNORECASE)
TYPES = (
    dtypes.float32, dtypes.float64,
    dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64,
)  # fmt: skip
_LEAST, _GREATEST = map(float, (np.finfo("f4").tiny, np.finfo("f4").max))
_FLOAT32 = host_numbers.find_class(dtypes.float32)
_FLOAT64 = host_numbers.find_class(dtypes.float64)
_INT32 = host_numbers.find_class(dtypes.int32)
_INT64 = host_numbers.find_class(dtypes.int64)


def parse(texts: list[bytes], dtype: np.dtype) -> np.ndarray:
    """Returns the numbers that texts say, as a vector.

    Args:
        texts: the texts.
        dtype: one of `TYPES`.

    Raises:
        ValueError: a text is no number of this type.

    >>> parse([b"1", b" -2 "], np.dtype(np.int64)).tolist()
    [1, -2]
    """
    joined = b"".join(texts)
    # Python takes 1_000 for a number, and -0 for one without a sign.
    if b"_" in joined or (dtype.kind == "u" and b"-" in joined):
        raise ValueError("no numbers")
    if dtype.kind == "f":
        return _parse_floats(texts, dtype)
    try:
        return np.array(list(map(int, texts)), dtype)
    except OverflowError as e:
        raise ValueError("a number does not fit its type") from e


def is_number(text: bytes, dtype: np.dtype) -> bool:
    """Returns whether a text is a number of a type."""
    try:
        parse([text], dtype)
    except ValueError:
        return False
    return True


def _parse_floats(texts: list[bytes], dtype: np.dtype) -> np.ndarray:
    """Returns numbers as the nearest of float32 or float64."""
    try:
        wide = np.array(list(map(float, texts)), dtypes.float64)
    except ValueError:
        wide = np.array(list(map(_parse_hexadecimal, texts)), dtypes.float64)
    if dtype == dtypes.float64:
        return wide
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(dtypes.float32)
    # A double just between two of float32 may itself be rounded. It has few bits.
    few = wide.view(dtypes.int64) & 0xFFFFFFF == 0
    if few.any():
        for i in np.flatnonzero(few & (wide != narrow)).tolist():
            narrow[i] = _round(wide.item(i), narrow[i], texts[i])
    return narrow


def _read_float32(text: bytes) -> Any:
    """Returns the number of a text as the nearest of float32."""
    wide = float(text)
    # Halfway between two of float32, or out of their usual range.
    if wide and (
        math.frexp(wide)[0] * 2.0**25 % 2.0 == 1.0
        or not _LEAST <= abs(wide) <= _GREATEST
    ):
        return _FLOAT32(parse([text], dtypes.float32)[0])
    return _FLOAT32(wide)


def _parse_hexadecimal(text: bytes) -> float:
    found = _HEX.fullmatch(text)
    return float(int(found[1] + found[2], 16)) if found else float(text)


# Read one field. They take `_` within digits, and do not know hexadecimal floats.
READERS: dict[np.dtype, Callable[[bytes], Any]] = {
    dtypes.float32: _read_float32,
    dtypes.float64: lambda text: _FLOAT64(float(text)),
    dtypes.int32: lambda text: _INT32(int(text)),
    dtypes.int64: lambda text: _INT64(int(text)),
    dtypes.string: host_numbers.HostText,
}


def _round(wide: float, found: np.float32, text: bytes) -> np.float32:
    """Returns the float32 nearest to a text's number.

    Args:
        wide: the nearest double.
        found: the float32 nearest to that.
        text: the text.
    """
    near = float(found)
    if not np.isfinite(found) or _HEX.fullmatch(text):
        return found
    other = np.nextafter(found, np.float32(np.inf if wide > near else -np.inf))
    exact, middle = Fraction(text.decode().strip()), Fraction(wide)
    if wide - near != float(other) - wide or exact == middle:
        return found
    return max(found, other) if exact > middle else min(found, other)


@everyday_name("strings.to_number")
def to_number(
    input: TextLike, out_type: DType = dtypes.float32, name: str | None = None
) -> Given:
    """Converts each string to a number.

    Args:
        input: the strings; whitespace around a number is ignored.
        out_type: the dtype: float32, float64, int32, int64, uint32 or uint64.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: a string is not a number of this type, or the type is not
            supported.

    >>> to_number(["1.5", "-2"]).tolist(), to_number("7", np.int64)
    ([1.5, -2.0], np.int64(7))
    """
    wanted = np.dtype(out_type)
    if wanted not in TYPES:
        raise errors.InvalidArgumentError(
            f"to_number gives no numbers of type {wanted}. Convert those that it gives "
            "with unisono.cast."
        )
    found = arrays.read("strings.to_number", input)
    texts = [found] if isinstance(found, bytes) else found.ravel().tolist()
    try:
        made = parse(texts, wanted)
    except ValueError:
        wrong = next(x for x in texts if not is_number(x, wanted))
        raise errors.InvalidArgumentError(
            f"StringToNumberOp could not correctly convert string: {wrong!r} to "
            f"{wanted}."
        ) from None
    return arrays.give(made.reshape(() if isinstance(found, bytes) else found.shape))


@everyday_name("as_string", "strings.as_string")
def as_string(
    input: TensorLike,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Given:
    """Converts each number to a string, as `printf` of C formats it.

    Args:
        input: numbers, booleans or strings.
        precision: the number of digits after the decimal point, or of significant
            digits with `shortest`; -1 for six.
        scientific: whether to write floats with an exponent.
        shortest: whether to write floats with an exponent where that is shorter.
        width: the minimum length of a string.
        fill: a flag of `printf`: "0" pads with zeros, "-" puts the padding at the end,
            and "+" or " " is written before numbers that are not negative.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the arguments contradict each other or do not fit the
            type.

    >>> as_string(3.14159, precision=2), as_string([5, 12], width=3, fill="0").tolist()
    (b'3.14', [b'005', b'012'])
    """
    given = arrays.known("as_string", input)
    found: Any = elements.to_array(given)
    array = arrays.fill([found], ()) if isinstance(found, bytes) else np.asarray(found)
    write = _make_writer(array.dtype, precision, scientific, shortest, width, fill)
    flat = array.ravel()
    if array.dtype == dtypes.bfloat16:
        flat = flat.astype(dtypes.float32)
    made = [write(x) for x in flat.tolist()]
    return arrays.give(arrays.fill(made, array.shape))


def _make_writer(
    dtype: np.dtype,
    precision: int,
    scientific: bool,
    shortest: bool,
    width: int,
    fill: str,
) -> Callable[[Any], bytes]:
    """Returns a function that writes a number of a type.

    Raises:
        InvalidArgumentError: the arguments do not fit together or the type.
    """
    is_float = dtype.kind in "fcV"
    if not is_float and (scientific or shortest or precision >= 0):
        raise errors.InvalidArgumentError(
            f"scientific, shortest and precision of as_string are for floats, received "
            f"{dtype}."
        )
    if scientific and shortest:
        raise errors.InvalidArgumentError(
            "as_string cannot have both scientific and shortest."
        )
    if fill not in ("", "0", " ", "+", "-", "#"):
        raise errors.InvalidArgumentError(
            f'fill of as_string must be "0", " ", "+", "-" or "", received {fill!r}.'
        )
    if dtype.kind == "b":
        return lambda x: b"true" if x else b"false"
    size = str(width) if width > -1 else ""
    if not is_float:
        letter = b"s" if dtype.kind == "O" else b"d"
        form = f"%{fill}{size}".encode() + letter
        return lambda x: form % x
    digits = f".{precision}" if precision > -1 else ""
    letter_f = "e" if scientific else "g" if shortest else "f"

    def write(x: float) -> bytes:
        # C fills no zeros before what has no digits.
        flag = fill if np.isfinite(x) or fill != "0" else ""
        return (f"%{flag}{size}{digits}{letter_f}" % x).encode()

    if dtype.kind == "c":
        return lambda x: b"(" + write(x.real) + b"," + write(x.imag) + b")"
    return write
