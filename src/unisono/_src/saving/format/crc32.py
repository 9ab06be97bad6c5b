"""CRC-32 of parts that follow each other, put together without their bytes."""

from __future__ import annotations

import functools

# The polynomial of zlib's CRC-32, with the coefficient of the highest power last.
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31


def combine(first: int, second: int, size: int) -> int:
    """Returns the CRC-32 of bytes and of `size` more that follow them.

    Args:
        first: the CRC-32 of the bytes.
        second: the CRC-32 of those that follow.
        size: how many follow.

    >>> import zlib
    >>> combine(zlib.crc32(b"one"), zlib.crc32(b"two"), 3) == zlib.crc32(b"onetwo")
    True
    """
    return _multiply(_power(8 * size), first) ^ second


def _multiply(a: int, b: int) -> int:
    """Returns the product of two polynomials, modulo that of CRC-32."""
    product, bit = 0, _ONE
    while bit:
        if a & bit:
            product ^= b
        bit >>= 1
        b = (b >> 1) ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@functools.lru_cache(maxsize=256)
def _power(exponent: int) -> int:
    """Returns x to an exponent, modulo the polynomial of CRC-32."""
    found, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            found = _multiply(found, square)
        square = _multiply(square, square)
        exponent >>= 1
    return found
