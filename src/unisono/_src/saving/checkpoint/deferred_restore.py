"""Deferred restores: an attribute gets its saved value when it is set.

Checkpoints and modules notice that an attribute is set. An object of another class is
given a subclass of its own class that notices, for as long as values wait for it;
afterwards it has its own class again.
"""

from __future__ import annotations

import functools
from typing import Any, cast

from unisono._src.foundation import library_hooks
from unisono._src.saving.checkpoint import state_slots


class Noticing:
    """An object that restores an attribute when it is set, if a value waits for it."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        waits = self.__dict__.get(state_slots.PENDING_ATTRIBUTE)
        if waits and name in waits:
            waits[name].restore_new_objects(self, name)


@functools.lru_cache(maxsize=256)
def _make_watching_subclass(cls: Any) -> type:
    """Returns a subclass that notices attributes and looks like the class itself."""
    fields = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    # `type(obj).__name__`, `repr` and `isinstance` tell no difference.
    return type(cls.__name__, (Noticing, cls), {**fields, "_unisono_class": cls})


def _reacts_to_subclasses(cls: type) -> bool:
    """Whether a class runs code of its own when it gets a subclass."""
    # The last class of the order is `object`, which every class inherits from.
    # Registries, for instance, would list the subclass as one of the program's.
    return any("__init_subclass__" in vars(c) for c in cls.__mro__[:-1])


def accepts_attribute(obj: Any, name: str) -> bool:
    """Whether a restore may set plain data as an attribute that an object lacks.

    The name comes from a file, so it must not replace a method of the class.
    """
    is_open = state_slots.is_user_object(obj) or hasattr(
        type(obj), "_checkpoint_takes_attributes"
    )
    is_public = name.isidentifier() and not name.startswith("_")
    return is_open and is_public and not hasattr(type(obj), name)


def watch(obj: Any, name: str, restoration: Any) -> None:
    """Calls a restoration when an attribute of an object is set.

    Objects that cannot be watched are left alone; the next `save` or `sync` restores
    their attributes.
    """
    owner = obj.owner if isinstance(obj, library_hooks.Branch) else obj
    keeper = library_hooks.keeper_of(owner)
    if keeper is not None:
        keeper.watch(owner, functools.partial(restoration.look_again, owner))
        return
    if isinstance(obj, dict | list | tuple) or not hasattr(obj, "__dict__"):
        return
    if not isinstance(obj, Noticing):
        if not state_slots.is_user_object(obj) or _reacts_to_subclasses(type(obj)):
            return
        try:
            obj.__class__ = _make_watching_subclass(cast(Any, type(obj)))
        except TypeError:  # A class with another layout, such as one with slots.
            return
    obj.__dict__.setdefault(state_slots.PENDING_ATTRIBUTE, {})[name] = restoration


def unwatch(obj: Any, name: str, restoration: Any) -> None:
    """Stops watching an attribute, which has been restored."""
    waits = getattr(obj, "__dict__", {}).get(state_slots.PENDING_ATTRIBUTE, {})
    if waits.get(name) is restoration:
        del waits[name]
    if not waits:
        forget(obj)


def forget(obj: Any) -> None:
    """Stops watching all attributes of an object and gives it its own class again."""
    if getattr(obj, "__dict__", {}).pop(state_slots.PENDING_ATTRIBUTE, None) is None:
        return
    before = vars(type(obj)).get("_unisono_class")
    if before is not None:
        obj.__class__ = before
