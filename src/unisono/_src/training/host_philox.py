"""A few random numbers of TensorFlow's Philox generator, computed on the host.

They are those of `philox`, without a call of JAX: one costs more than some numbers.
"""

from __future__ import annotations

import numpy as np

from unisono._src.training import philox

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
# TensorFlow's key for the seeds of stateless operations.
_SCRAMBLE_KEY = (0x3EC8F720, 0x02461E29)


def words(state: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` random words of a state of six words.

    >>> words(np.arange(6, dtype=np.uint32), 3).tolist()
    [3290935133, 3881757242, 1203941666]
    """
    counter = int.from_bytes(state[: philox.COUNTER_WORDS].tobytes(), "little")
    key = tuple(state[philox.COUNTER_WORDS :].tolist())
    found: list[int] = []
    for number in range(-(-count // 4)):
        found += _block(counter + number, *key)
    return np.array(found[:count], np.uint32)


def _block(counter: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """Returns the four words of a counter."""
    c0, c1, c2, c3 = (counter >> shift & _WORD for shift in (0, 32, 64, 96))
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1 = second >> 32 ^ c1 ^ k0, second & _WORD
        c2, c3 = first >> 32 ^ c3 ^ k1, first & _WORD
        k0, k1 = (k0 + _STEPS[0]) & _WORD, (k1 + _STEPS[1]) & _WORD
    return c0, c1, c2, c3


def scramble(seed: np.ndarray) -> np.ndarray:
    """Returns the state that TensorFlow makes of the seed of a stateless operation.

    Args:
        seed: two integers.
    """
    halves = seed.astype(np.int64).view(np.uint32)
    mixed = words(np.array([*halves, *_SCRAMBLE_KEY], np.uint32), 4)
    return np.array([0, 0, *mixed[2:], *mixed[:2]], np.uint32)


def fractions(drawn: np.ndarray) -> np.ndarray:
    """Returns float32 numbers from 0 to 1 of a word each."""
    bits = drawn & np.uint32(0x7FFFFF) | np.uint32(0x3F800000)
    return bits.view(np.float32) - np.float32(1)
