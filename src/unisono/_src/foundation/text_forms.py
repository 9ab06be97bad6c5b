"""Conversions between text and bytes, under the names of ``tf.compat``."""

from __future__ import annotations

import os
from typing import TypeVar

_T = TypeVar("_T")


def as_bytes(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> bytes:
    """Returns text as bytes; bytes are returned unchanged.

    Args:
        bytes_or_text: text or bytes.
        encoding: the encoding of the bytes.

    Raises:
        TypeError: `bytes_or_text` is something else.

    >>> import unisono
    >>> unisono.compat.as_bytes("cat"), unisono.compat.as_bytes(b"cat")
    (b'cat', b'cat')
    """
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    if isinstance(bytes_or_text, (bytes, bytearray)):
        return bytes(bytes_or_text)
    raise _refusal(bytes_or_text)


def as_text(bytes_or_text: str | bytes | bytearray, encoding: str = "utf-8") -> str:
    """Returns bytes as text; text is returned unchanged.

    Args:
        bytes_or_text: text or bytes.
        encoding: the encoding of the bytes.

    Raises:
        TypeError: `bytes_or_text` is something else.

    >>> import unisono
    >>> unisono.compat.as_text(b"cat"), unisono.compat.as_str("cat")
    ('cat', 'cat')
    """
    if isinstance(bytes_or_text, (bytes, bytearray)):
        return bytes_or_text.decode(encoding)
    if isinstance(bytes_or_text, str):
        return str(bytes_or_text)
    raise _refusal(bytes_or_text)


def as_str_any(value: object, encoding: str = "utf-8") -> str:
    """Returns bytes as text, and anything else converted by `str`.

    >>> import unisono
    >>> unisono.compat.as_str_any(b"cat"), unisono.compat.as_str_any(3)
    ('cat', '3')
    """
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: object) -> str:
    """Returns a path as text.

    >>> import pathlib, unisono
    >>> unisono.compat.path_to_str(pathlib.PurePosixPath("runs/first"))
    'runs/first'
    """
    return as_str_any(os.fspath(path) if isinstance(path, os.PathLike) else path)


def dimension_value(dimension: _T) -> _T:
    """Returns a size of a shape unchanged: a number, or None.

    >>> import unisono
    >>> unisono.compat.dimension_value(unisono.TensorShape([None, 3])[1])
    3
    """
    return dimension


def _refusal(value: object) -> TypeError:
    return TypeError(f"Expected binary or unicode string, got {value!r}")
