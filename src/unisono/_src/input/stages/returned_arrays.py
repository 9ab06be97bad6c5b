"""What users' functions return: arrays that no one else will write into.

A function may fill one array again and again and return it each time. Elements wait in
buffers, so each must be a copy then. Most functions return new arrays, which are taken
as they are: no one else holds a reference to them.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from unisono._src.input.plan import elements


def settled(made: Any, given: Any) -> Any:
    """An element that a function made of another, copied where someone holds it.

    Args:
        made: what it returned, as an element. The caller keeps no reference to its
            arrays but this one.
        given: the element it was made of, whose arrays may be part of it.
    """
    if type(made) is np.ndarray:
        held = sys.getrefcount(made) > _PLAIN
        return _copied(made, held, given) if held or made.base is not None else made
    if not elements.is_structure(made):
        return made
    return elements.map_leaves(lambda x: _settled_leaf(x, given), made)


def _settled_leaf(x: Any, given: Any) -> Any:
    if type(x) is not np.ndarray:
        return x
    held = sys.getrefcount(x) > _NESTED
    return _copied(x, held, given) if held or x.base is not None else x


def _copied(x: np.ndarray, held: bool, given: Any) -> np.ndarray:
    """A copy, unless the array is one of those given, or a view that no one shares."""
    owner = x if x.base is None else x.base
    if not isinstance(owner, np.ndarray):
        # Memory of JAX, which no one writes into, or of something else.
        return x.copy() if x.flags.writeable else x
    if not held and sys.getrefcount(owner) <= _OWNER:
        return x
    if any(_owner(g) is owner for g in elements.leaves(given)):
        return x
    return x.copy()


def _owner(x: Any) -> Any:
    base = getattr(x, "base", None)
    return x if base is None else base


# How many references there are if no one else has one, counted by the same calls.


def _count_plain(made: Any) -> int:
    return sys.getrefcount(made)


def _count_nested(x: Any, given: Any) -> int:
    return sys.getrefcount(x)


def _count_owner(x: np.ndarray, held: bool, given: Any) -> int:
    owner = x if x.base is None else x.base
    return sys.getrefcount(owner)


def _measure() -> tuple[int, int, int]:
    def plain() -> int:
        made = elements.convert(np.empty(1))
        return _count_plain(made)

    def nested(count: Any, *more: Any) -> int:
        made = elements.convert((np.empty(2)[1:],))
        found = elements.map_leaves(lambda x: count(x, *more), made)
        return int(found[0])

    return plain(), nested(_count_nested, None), nested(_count_owner, False, None)


_PLAIN, _NESTED, _OWNER = _measure()
