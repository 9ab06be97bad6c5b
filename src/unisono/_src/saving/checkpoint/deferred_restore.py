"""Objects that wait for attributes: what is restored into them when these are set.

Checkpoints and modules notice an attribute being set. An object of another class gets,
as long as it waits, a subclass of its own class that notices; afterwards it is of its
own class again.
"""

from __future__ import annotations

import functools
from typing import Any, cast

from unisono._src.foundation import library_hooks
from unisono._src.saving.checkpoint import state_slots


class Noticing:
    """An object that notices when an attribute it waits for is set."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        waits = self.__dict__.get(state_slots.PENDING_ATTRIBUTE)
        if waits and name in waits:
            waits[name].restore_new_objects(self, name)


@functools.lru_cache(maxsize=256)
def _watching_subclass(cls: Any) -> type:
    fields = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(cls.__name__, (Noticing, cls), {**fields, "_unisono_class": cls})


def _reacts_to_subclasses(cls: type) -> bool:
    """Whether a class does something when it gets a subclass."""
    return any("__init_subclass__" in vars(c) for c in cls.__mro__[:-1])


def accepts_attribute(obj: Any, name: str) -> bool:
    """Whether plain data may be set as an attribute that an object lacks.

    The name comes from a file: it must not hide anything of the class.
    """
    is_open = state_slots.is_user_object(obj) or hasattr(
        type(obj), "_checkpoint_takes_attributes"
    )
    is_public = name.isidentifier() and not name.startswith("_")
    return is_open and is_public and not hasattr(type(obj), name)


def watch(obj: Any, name: str, restoration: Any) -> None:
    """Let `restoration` know when an attribute is set."""
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
            obj.__class__ = _watching_subclass(cast(Any, type(obj)))
        except TypeError:
            return
    obj.__dict__.setdefault(state_slots.PENDING_ATTRIBUTE, {})[name] = restoration


def unwatch(obj: Any, name: str, restoration: Any) -> None:
    """The attribute has been restored."""
    waits = getattr(obj, "__dict__", {}).get(state_slots.PENDING_ATTRIBUTE, {})
    if waits.get(name) is restoration:
        del waits[name]
    if not waits:
        forget(obj)


def forget(obj: Any) -> None:
    """Wait for nothing any more."""
    if getattr(obj, "__dict__", {}).pop(state_slots.PENDING_ATTRIBUTE, None) is None:
        return
    before = vars(type(obj)).get("_unisono_class")
    if before is not None:
        obj.__class__ = before
