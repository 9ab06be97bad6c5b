"""Which restore has given an object its value last.

Of several restores the one that was called last decides, as in TensorFlow, also if an
object appears later and an earlier restore has a value for it, too.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

_numbers = itertools.count(1)
# For an object, or an attribute of one by its name: a reference to the object, because
# ids are used again, and the number of the restore.
_last: dict[tuple[int, str], tuple[weakref.ref[Any], int]] = {}


def next_number() -> int:
    """Returns the number of a restore that begins now."""
    return next(_numbers)


def is_due(obj: Any, name: str, number: int) -> bool:
    """Whether neither this restore nor a later one has given the value so far.

    Args:
        obj: the object that has the value.
        name: the name of the attribute that is the value; "" for the object itself.
        number: the number of the restore.
    """
    known = _last.get((id(obj), name))
    return known is None or known[0]() is not obj or known[1] < number


def note(obj: Any, name: str, number: int) -> None:
    """Records that a restore has given a value; arguments as for `is_due`."""
    key = (id(obj), name)
    try:
        # It goes with its object; a list or dict has no references of this kind.
        reference = weakref.ref(obj, lambda _: _last.pop(key, None))
    except TypeError:
        return
    _last[key] = (reference, number)
