"""Deferred restores: an attribute gets its saved value when it is set.

Checkpoints and modules notice that an attribute is set. An object of another class is
given a subclass of its own class that notices, for as long as values wait for it;
afterwards it has its own class again.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Protocol, TypeVar, cast

from unisono._src.foundation import library_hooks
from unisono._src.saving.checkpoint import object_graph

# Which restore has given an object its value last. Of several restores the one that was
# called last decides, as in TensorFlow, also if an object appears later and an earlier
# restore has a value for it, too. For an object, or an attribute of one by its name: a
# reference to the object, because ids are used again, and the number of the restore.
_last_restores: dict[tuple[int, str], tuple[weakref.ref[object], int]] = {}


class PendingRestoration(Protocol):
    """A restoration with values for attributes that are not there yet."""

    number: int
    is_over: bool

    def restore_new_objects(
        self, owner: object = None, name: str | None = None
    ) -> None:
        """Restores an attribute that was set."""

    def look_again(self, owner: object) -> None:
        """Restores what is new below an object."""

    def replaces(self, other: Any) -> bool:
        """Whether another restoration has nothing to give that this one has not."""


_W = TypeVar("_W", bound=PendingRestoration)


class DeferredRestoreMixin:
    """An object that restores an attribute when it is set, if a value waits for it."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        waits = self.__dict__.get(object_graph.PENDING_ATTRIBUTE)
        if waits and name in waits:
            for restoration in waits[name]:
                restoration.restore_new_objects(self, name)


@functools.lru_cache(maxsize=256)
def _make_watching_subclass(cls: Any) -> type:
    """Returns a subclass that notices attributes and looks like the class itself."""
    fields = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    # `type(obj).__name__`, `repr` and `isinstance` tell no difference.
    return type(
        cls.__name__, (DeferredRestoreMixin, cls), {**fields, "_unisono_class": cls}
    )


def _reacts_to_subclasses(cls: type) -> bool:
    """Whether a class runs code of its own when it gets a subclass."""
    # The last class of the order is `object`, which every class inherits from.
    # Registries, for instance, would list the subclass as one of the program's.
    return any("__init_subclass__" in vars(c) for c in cls.__mro__[:-1])


def accepts_attribute(obj: object, name: str) -> bool:
    """Whether a restore may set plain data as an attribute that an object lacks.

    The name comes from a file, so it must not replace a method of the class.
    """
    is_open = object_graph.is_user_object(obj) or hasattr(
        type(obj), "_checkpoint_takes_attributes"
    )
    is_public = name.isidentifier() and not name.startswith("_")
    return is_open and is_public and not hasattr(type(obj), name)


def owners(obj: Any) -> list[Any]:
    """Returns the objects whose attributes are the children of a node."""
    if isinstance(obj, library_hooks.Branch):
        return [obj.owner]
    # A checkpoint's children are its own attributes and those of its root.
    is_rooted = hasattr(type(obj), "_checkpoint_hidden")
    root = object_graph.find_root(obj) if is_rooted else None
    return [obj] if root is None else [obj, *owners(root)]


def watch(owner: Any, name: str, restoration: PendingRestoration) -> None:
    """Calls a restoration when an attribute of an object is set.

    Objects that cannot be watched are left alone; the next `save` or `sync` restores
    their attributes.
    """
    finder = library_hooks.state_finder_of(owner)
    if finder is not None:
        finder.watch(owner, functools.partial(restoration.look_again, owner))
        return
    if isinstance(owner, dict | list | tuple) or not hasattr(owner, "__dict__"):
        return
    if not isinstance(owner, DeferredRestoreMixin):
        if not object_graph.is_user_object(owner) or _reacts_to_subclasses(type(owner)):
            return
        try:
            owner.__class__ = _make_watching_subclass(cast(Any, type(owner)))
        except TypeError:  # A class with another layout, such as one with slots.
            return
    waits = owner.__dict__.setdefault(object_graph.PENDING_ATTRIBUTE, {})
    waits[name] = merge([restoration, *waits.get(name, ())])


def merge(restorations: list[_W]) -> list[_W]:
    """Returns those of several restorations that can still restore, newest first.

    One that a later restoration replaces is left out.
    """
    found = {r.number: r for r in restorations if not r.is_over}
    return [
        found[number]
        for number in sorted(found, reverse=True)
        if not any(r.replaces(found[number]) for r in found.values())
    ]


def unwatch(owner: object, name: str, restoration: PendingRestoration) -> None:
    """Stops watching an attribute for a restoration.

    An object whose attributes nothing waits for gets its own class again.
    """
    waits = getattr(owner, "__dict__", {}).get(object_graph.PENDING_ATTRIBUTE)
    if waits is None:
        return
    waits[name] = [r for r in waits.get(name, ()) if r is not restoration]
    if not waits[name]:
        del waits[name]
    if waits:
        return
    del owner.__dict__[object_graph.PENDING_ATTRIBUTE]
    before = vars(type(owner)).get("_unisono_class")
    if before is not None:
        owner.__class__ = before


def is_due(obj: object, name: str, number: int) -> bool:
    """Whether neither this restore nor a later one has given the value so far.

    Args:
        obj: the object that has the value.
        name: the name of the attribute that is the value; "" for the object itself.
        number: the number of the restore.
    """
    known = _last_restores.get((id(obj), name))
    return known is None or known[0]() is not obj or known[1] < number


def note_restored(obj: object, name: str, number: int) -> None:
    """Records that a restore has given a value; arguments as for `is_due`."""
    key = (id(obj), name)
    try:
        # It goes with its object; a list or dict has no references of this kind.
        reference = weakref.ref(obj, lambda _: _last_restores.pop(key, None))
    except TypeError:
        return
    _last_restores[key] = (reference, number)
