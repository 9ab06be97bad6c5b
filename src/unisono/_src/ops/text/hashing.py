"""TensorFlow's hash of text: `Fingerprint64` of FarmHash, which is the same for ever.

The algorithm is the published one of Geoff Pike's FarmHash, in numbers of 64 bits.
"""

from __future__ import annotations

import functools

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


# Pipelines meet the same words again and again; each costs some microseconds.
@functools.lru_cache(1 << 16)
def fingerprint(text: bytes) -> int:
    """Returns the hash of a text as a number of 64 bits without a sign.

    >>> fingerprint(b"") == 0x9AE16A3B2F90404F
    True
    """
    size = len(text)
    if size > 64:
        return _hash_long(text)
    if size > 32:
        return _hash_33_to_64(text)
    if size > 16:
        return _mix(*_words_17_to_32(text)[:2], _multiplier(size))
    if size >= 8:
        mul = _multiplier(size)
        a, b = _word(text, 0) + _K2, _word(text, size - 8)
        c = _rotate(b, 37) * mul + a
        return _mix(c, (_rotate(a, 25) + b) * mul, mul)
    if size >= 4:
        first, last = (int.from_bytes(x, "little") for x in (text[:4], text[-4:]))
        return _mix(size + (first << 3), last, _multiplier(size))
    if size:
        y = text[0] + (text[size >> 1] << 8)
        z = size + (text[-1] << 2)
        return _fold(y * _K2 ^ z * _K0) * _K2 & _MASK
    return _K2


def _word(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 8], "little")


def _multiplier(size: int) -> int:
    return _K2 + size * 2


def _rotate(x: int, by: int) -> int:
    x &= _MASK
    return (x >> by | x << 64 - by) & _MASK


def _fold(x: int) -> int:
    x &= _MASK
    return x ^ x >> 47


def _mix(u: int, v: int, mul: int) -> int:
    """Returns two words as one."""
    v &= _MASK
    return _fold((v ^ _fold((u ^ v) * mul)) * mul) * mul & _MASK


def _words_17_to_32(text: bytes) -> tuple[int, int, int]:
    """Returns the two words that stand for both ends of a text, and its first one."""
    size = len(text)
    mul = _multiplier(size)
    # The first word of a longer text is multiplied by another number.
    a = _word(text, 0) * (_K1 if size <= 32 else _K2) & _MASK
    b = _word(text, 8)
    c, d = _word(text, size - 8) * mul, _word(text, size - 16) * _K2
    y = _rotate(a + b, 43) + _rotate(c, 30) + d
    return y & _MASK, a + _rotate(b + _K2, 18) + c & _MASK, a


def _hash_33_to_64(text: bytes) -> int:
    size = len(text)
    mul = _multiplier(size)
    y, other, a = _words_17_to_32(text)
    z = _mix(y, other, mul)
    e, f = _word(text, 16) * mul, _word(text, 24)
    g = (y + _word(text, size - 32)) * mul
    h = (z + _word(text, size - 24)) * mul
    return _mix(
        _rotate(e + f, 43) + _rotate(g, 30) + h, e + _rotate(f + a, 18) + g, mul
    )


def _hash_32_bytes(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Returns two words for 32 bytes and two other words."""
    w, x, y, z = (_word(text, at + i) for i in (0, 8, 16, 24))
    a += w
    b = _rotate(b + a + z, 21)
    c = a
    a += x + y
    return a + z & _MASK, b + _rotate(a, 44) + c & _MASK


_State = tuple[int, int, int, tuple[int, int], tuple[int, int]]


def _hash_long(text: bytes) -> int:
    size = len(text)
    y = 81 * _K1 + 113 & _MASK
    z = _fold(y * _K2 + 113) * _K2 & _MASK
    state: _State = (81 * _K2 + _word(text, 0) & _MASK, y, z, (0, 0), (0, 0))
    for at in range(0, (size - 1) // 64 * 64, 64):
        state = _step(text, at, state, _K1, 1)
    x, y, z, v, w = state
    mul = _K1 + ((z & 0xFF) << 1)
    first = w[0] + (size - 1 & 63)
    v = (v[0] + first, v[1])
    w = (first + v[0], w[1])
    x, y, z, v, w = _step(text, size - 64, (x, y, z, v, w), mul, 9)
    return _mix(
        _mix(v[0], w[0], mul) + _fold(y) * _K0 + z, _mix(v[1], w[1], mul) + x, mul
    )


def _step(text: bytes, at: int, state: _State, mul: int, times: int) -> _State:
    """Returns the five words after 64 more bytes."""
    x, y, z, v, w = state
    x = _rotate(x + y + v[0] + _word(text, at + 8), 37) * mul & _MASK
    y = _rotate(y + v[1] + _word(text, at + 48), 42) * mul
    x ^= w[1] * times & _MASK
    y += v[0] * times + _word(text, at + 40)
    z = _rotate(z + w[0], 33) * mul
    v = _hash_32_bytes(text, at, v[1] * mul, x + w[0])
    w = _hash_32_bytes(text, at + 32, z + w[1], y + _word(text, at + 16))
    return z & _MASK, y & _MASK, x, v, w
