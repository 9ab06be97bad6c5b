"""The seed of the program, from which seeds follow that a program does not give.

The rules are those of ``tf.random.set_seed``, and so are the numbers.
"""

from __future__ import annotations

import random
from typing import Any, final

# TensorFlow's seeds are below it.
_MOST = 2**31 - 1
# TensorFlow's global seed for operations that have a seed while the program has none.
_DEFAULT = 87654321


@final
class _Seed:
    """The global seed.

    Attributes:
        given: the seed, or None.
        sequence: makes the seeds of operations that have none.
    """

    given: int | None = None
    sequence: random.Random = random.Random()


def set_seed(seed: int | None) -> None:
    """Sets the seed, and begins its sequence of seeds; None for no seed."""
    _Seed.given, _Seed.sequence = seed, random.Random(seed)


def get_seed() -> int | None:
    """Returns the seed, cut to the size that is used; None if none was set."""
    return None if _Seed.given is None else _Seed.given % _MOST


def get_state() -> object:
    """Returns the seed and the place in its sequence, for `set_state`."""
    return _Seed.given, _Seed.sequence, _Seed.sequence.getstate()


def set_state(state: Any) -> None:
    """Goes back to what `get_state` has returned."""
    _Seed.given, _Seed.sequence, place = state
    _Seed.sequence.setstate(place)


def make_pair(own: int | None) -> tuple[int, int]:
    """Returns the two seeds of an operation.

    Args:
        own: the seed that the program gives the operation, or None. Without one, the
            next seed of the sequence is taken; without a global seed, both are drawn.

    >>> set_seed(1234)
    >>> make_pair(5), make_pair(None), make_pair(None)
    ((1234, 5), (1234, 1892932127), (1234, 501869158))
    """
    if _Seed.given is not None:
        if own is None:
            own = _Seed.sequence.randint(0, _MOST)
        pair = _Seed.given % _MOST, own % _MOST
    elif own is not None:
        pair = _DEFAULT, own % _MOST
    else:
        system = random.SystemRandom()
        pair = system.getrandbits(63), system.getrandbits(63)
    # TensorFlow takes two zeros for "no seed", and avoids them so.
    return pair if pair != (0, 0) else (0, _MOST)


def draw() -> int:
    """Returns a seed of 63 bits for an operation without one, such as a shuffle."""
    first, second = make_pair(None)
    return (first << 32 ^ second) & (2**63 - 1)
