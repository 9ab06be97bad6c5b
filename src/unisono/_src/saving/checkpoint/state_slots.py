"""What of an object is state: the values it holds and the objects below it.

An object is seen as a *node* with named children, or as a *leaf* with a value of its
own. A `StateSlot` is where a parent holds a child, so that a value which cannot be
changed itself (a number, a tuple) can be replaced there.
"""

from __future__ import annotations

import dataclasses
import enum
import random
import sys
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from unisono._src.foundation import library_hooks
from unisono._src.saving.format import array_types, manifest, plain_data
from unisono._src.state.variables import Variable

# Where an object keeps what will be restored into attributes that it lacks so far.
PENDING_ATTRIBUTE = "_unisono_pending"

_LIBRARIES = frozenset(
    {
        "absl", "etils", "flax", "grain", "greenlet", "jax", "jaxlib", "keras",
        "ml_dtypes", "numpy", "optax", "orbax", "pytest", "ray", "rich", "tensorstore",
        "typer", "unisono",
    }
)  # fmt: skip
_NEVER_STATE = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
    type, enum.Enum, np.dtype,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class StateSlot:
    """Where a parent holds a child."""

    get: Callable[[], Any]
    put: Callable[[Any], None]


def attribute_slot(owner: Any, name: str) -> StateSlot:
    """The slot of an attribute."""

    def put(value: Any) -> None:
        try:
            setattr(owner, name, value)
        except AttributeError:  # A frozen dataclass is restored all the same.
            object.__setattr__(owner, name, value)

    return StateSlot(lambda: vars(owner).get(name), put)


def _item_slot(owner: Any, key: Any) -> StateSlot:
    return StateSlot(lambda: owner[key], lambda value: owner.__setitem__(key, value))


def _tuple_item_slot(slot: StateSlot, index: int) -> StateSlot:
    def put(value: Any) -> None:
        old = slot.get()
        parts = (*old[:index], value, *old[index + 1 :])
        slot.put(type(old)(*parts) if hasattr(old, "_fields") else tuple(parts))

    return StateSlot(lambda: slot.get()[index], put)


def fixed_slot(value: Any) -> StateSlot:
    """The slot of something that is never replaced."""

    def put(_: Any) -> None:
        raise TypeError(f"{value!r} cannot be replaced.")

    return StateSlot(lambda: value, put)


class Stateful:
    """An object whose state is plain data that it gives and takes.

    Args:
        give: returns the state.
        take: sets it.
    """

    def __init__(self, give: Callable[[], Any], take: Callable[[Any], None]) -> None:
        self.give = give
        self.take = take


def as_stateful(obj: Any) -> Stateful | None:
    """How to save and restore an object as plain data, if it can be done."""
    if isinstance(obj, np.random.Generator):
        source: Any = obj.bit_generator
        return Stateful(
            lambda: source.state, lambda state: setattr(source, "state", state)
        )
    if isinstance(obj, random.Random):
        return Stateful(obj.getstate, obj.setstate)
    if isinstance(obj, _NEVER_STATE):
        return None
    give, take = getattr(obj, "get_state", None), getattr(obj, "set_state", None)
    return Stateful(give, take) if callable(give) and callable(take) else None


def is_array(obj: Any) -> bool:
    """Whether an object is an array that can be stored."""
    if isinstance(obj, jax.Array):
        return True
    return isinstance(obj, np.ndarray) and array_types.is_known(obj.dtype)


def leaf_kind(obj: Any) -> str | None:
    """The kind of value that an object has of its own, or None for a node."""
    if isinstance(obj, Variable | library_hooks.Held):
        return manifest.VARIABLE
    if is_array(obj):
        return manifest.ARRAY
    if plain_data.is_plain(obj):
        return manifest.PLAIN
    if hasattr(type(obj), "_checkpoint_children"):
        return None
    found = library_hooks.kept(obj)
    if found is not None:
        return manifest.VARIABLE if isinstance(found, library_hooks.Held) else None
    return manifest.STATE if as_stateful(obj) is not None else None


def is_state(obj: Any) -> bool:
    """Whether an attribute holds something that belongs in a checkpoint."""
    if isinstance(obj, _NEVER_STATE):
        return False
    return leaf_kind(obj) is not None or _is_node(obj)


def _is_node(obj: Any) -> bool:
    if isinstance(obj, dict | list | tuple):
        return True
    if hasattr(type(obj), "_checkpoint_children"):
        return True
    return library_hooks.kept(obj) is not None or is_user_object(obj)


def is_user_object(obj: Any) -> bool:
    """Whether an object is of a class of the program, not of a library."""
    package = type(obj).__module__.partition(".")[0]
    is_library = package in sys.stdlib_module_names and package != "__main__"
    return hasattr(obj, "__dict__") and not (is_library or package in _LIBRARIES)


def child_slots(obj: Any, slot: StateSlot) -> dict[str, StateSlot]:
    """The children of a node, by name.

    Raises:
        TypeError: a dict with keys that are neither strings nor integers.
        ValueError: two keys with one name.
    """
    return {
        name: _replace_library_variable(p)
        for name, p in _list_child_slots(obj, slot).items()
    }


def _replace_library_variable(slot: StateSlot) -> StateSlot:
    """The slot; of a library's variable, that of what stands for it here."""
    found = library_hooks.kept(slot.get())
    return fixed_slot(found) if isinstance(found, library_hooks.Held) else slot


def _list_child_slots(obj: Any, slot: StateSlot) -> dict[str, StateSlot]:
    named: dict[str, StateSlot] = {}
    if isinstance(obj, dict):
        for key in obj:
            if type(key) not in (str, int):
                raise TypeError(
                    f"A dict in a checkpoint has the key {key!r} of type "
                    f"{type(key).__name__}; expected strings or integers."
                )
            if str(key) in named:
                raise ValueError(
                    f"A dict in a checkpoint has two keys with the name {str(key)!r}."
                )
            named[str(key)] = _item_slot(obj, key)
    elif isinstance(obj, list):
        named = {str(i): _item_slot(obj, i) for i in range(len(obj))}
    elif isinstance(obj, tuple):
        named = {str(i): _tuple_item_slot(slot, i) for i in range(len(obj))}
    elif hasattr(type(obj), "_checkpoint_children"):
        return _as_slots(obj._checkpoint_children())
    elif isinstance(below := library_hooks.kept(obj), dict):
        return _as_slots(below)
    elif is_user_object(obj):
        named = {
            name: attribute_slot(obj, name)
            for name in vars(obj)
            if name != PENDING_ATTRIBUTE
        }
        return {k: p for k, p in named.items() if _is_state_attribute(k, p.get())}
    return {k: p for k, p in named.items() if is_state(p.get())}


def _is_state_attribute(name: str, value: Any) -> bool:
    """Whether an attribute of a program's own object is state.

    Numbers and the like under a private name are the object's own affair.
    """
    if value is None or not is_state(value):
        return False
    return not name.startswith("_") or leaf_kind(value) != manifest.PLAIN


def _as_slots(given: dict[str, Any]) -> dict[str, StateSlot]:
    return {
        name: child if isinstance(child, StateSlot) else fixed_slot(child)
        for name, child in given.items()
    }
