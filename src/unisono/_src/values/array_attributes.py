"""Gives a JAX array an attribute of its own, while a program is traced, too.

JAX has no public way to do this for values of a program, so this module uses its
internals.
"""

from __future__ import annotations

import functools
from typing import Any

import jax


def attach(array: Any, name: str, value: Any) -> Any:
    """Returns an array with an attribute, which operations on the array do not keep.

    Args:
        array: an array that nobody else holds; or a tracer, whose twin is returned.
        name: the name of the attribute.
        value: its value.
    """
    if not isinstance(array, jax.core.Tracer):
        setattr(array, name, value)
        return array
    # A tracer has slots only. JAX tells tracers by what is in them, not by identity, so
    # a twin of a subclass with one more slot is the same value of the program.
    kind = type(array)
    twin = object.__new__(_subclass(kind, name))
    for slot in _slots(kind):
        if hasattr(array, slot):
            setattr(twin, slot, getattr(array, slot))
    setattr(twin, name, value)
    return twin


@functools.cache
def _subclass(kind: type, slot: str) -> Any:
    """Returns a class of tracers that has one more slot."""
    return type(kind)(kind.__name__, (kind,), {"__slots__": (slot,)})


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    """Returns the names of all slots of a class of tracers."""
    found: list[str] = []
    for base in kind.__mro__:
        own = vars(base).get("__slots__", ())
        found += [own] if isinstance(own, str) else own
    return tuple(slot for slot in found if not slot.startswith("__"))
