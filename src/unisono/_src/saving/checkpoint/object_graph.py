"""The graph of objects below a checkpoint, and the values that they hold.

An object is a *node* with named children, or a *leaf* with a value of its own. A
`StateSlot` is where a parent holds a child. Values that cannot be changed themselves,
such as numbers and tuples, are replaced in their slot.

The keys of values are paths of names, as TensorFlow's, so they do not depend on the
strategy.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import random
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, Protocol, final

import jax
import numpy as np

from unisono._src.foundation import library_hooks
from unisono._src.foundation.tensor_shape import TensorShape
from unisono._src.saving.checkpoint import variable_parts
from unisono._src.saving.format import array_types, manifest, plain_data
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.state.variables import Variable

# The attribute in which an object holds the restorations of attributes it lacks so far.
PENDING_ATTRIBUTE = "_unisono_pending"

# A program's own object is walked into, attribute by attribute. In an object of a
# library that would find caches, locks and settings.
# The attributes of objects of these packages, and of the standard library, are not
# looked into.
_LIBRARIES = frozenset(
    {
        "absl", "etils", "flax", "grain", "greenlet", "jax", "jaxlib", "keras",
        "ml_dtypes", "numpy", "optax", "orbax", "pytest", "ray", "rich", "tensorstore",
        "typer", "unisono",
    }
)  # fmt: skip
_NEVER_STATE = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
    type, enum.Enum, np.dtype, TensorShape,
)  # fmt: skip


@final
@dataclasses.dataclass(frozen=True)
class StateSlot:
    """The place where a parent holds a child, or an object its state.

    Attributes:
        get: returns the child, or the state as plain data.
        put: replaces it.
    """

    get: Callable[[], Any]
    put: Callable[[Any], None]


def attribute_slot(owner: object, name: str) -> StateSlot:
    """Returns the slot of an attribute."""

    def put(value: object) -> None:
        try:
            setattr(owner, name, value)
        except AttributeError:  # A frozen dataclass refuses `setattr`.
            object.__setattr__(owner, name, value)

    return StateSlot(lambda: vars(owner).get(name), put)


def _item_slot(owner: Any, key: Any) -> StateSlot:
    return StateSlot(lambda: owner[key], lambda value: owner.__setitem__(key, value))


def _tuple_item_slot(slot: StateSlot, index: int) -> StateSlot:
    def put(value: object) -> None:
        # A tuple cannot be changed, so a new one goes into the slot of the old one.
        old = slot.get()
        parts = (*old[:index], value, *old[index + 1 :])
        slot.put(type(old)(*parts) if hasattr(old, "_fields") else tuple(parts))

    return StateSlot(lambda: slot.get()[index], put)


def fixed_slot(value: object) -> StateSlot:
    """Returns the slot of an object that is never replaced."""

    def put(_: object) -> None:
        raise TypeError(
            f"{value!r} cannot be replaced by a restored value; make it a variable."
        )

    return StateSlot(lambda: value, put)


def as_stateful(obj: object) -> StateSlot | None:
    """Returns how to get and set an object's state as plain data, or None."""
    if isinstance(obj, np.random.Generator):
        source: Any = obj.bit_generator
        return StateSlot(
            lambda: source.state, lambda state: setattr(source, "state", state)
        )
    # Both kinds of generators tell a state of plain data, under other names.
    if isinstance(obj, random.Random):
        return StateSlot(obj.getstate, obj.setstate)
    if isinstance(obj, _NEVER_STATE):
        return None
    get, put = getattr(obj, "get_state", None), getattr(obj, "set_state", None)
    return StateSlot(get, put) if callable(get) and callable(put) else None


def needs_other_threads(obj: object) -> bool:
    """Whether other threads must answer to get a state; hold no lock meanwhile."""
    return bool(getattr(type(obj), "_checkpoint_waits", False))


def is_array(obj: object) -> bool:
    """Whether an object is an array that a checkpoint can store."""
    if isinstance(obj, jax.Array):
        return True
    return isinstance(obj, np.ndarray) and array_types.is_known(obj.dtype)


def leaf_kind(obj: object) -> str | None:
    """Returns the kind of an object's own value, or None for a node."""
    if isinstance(obj, Variable | library_hooks.LibraryVariable):
        return manifest.VARIABLE
    if is_array(obj):
        return manifest.ARRAY
    if plain_data.is_plain(obj):
        return manifest.PLAIN
    if tells_children(obj):
        return None
    found = _find_state(obj)
    if found is not None:
        return (
            manifest.VARIABLE
            if isinstance(found, library_hooks.LibraryVariable)
            else None
        )
    return manifest.STATE if as_stateful(obj) is not None else None


def _find_state(obj: object) -> Any:
    """Returns how checkpoints see an object of a library, or a variable in parts."""
    if isinstance(obj, ShardedVariable):
        return variable_parts.variable_in_parts(obj)
    return library_hooks.find_state(obj)


def is_state(obj: object) -> bool:
    """Whether an object belongs in a checkpoint."""
    if isinstance(obj, _NEVER_STATE):
        return False
    return leaf_kind(obj) is not None or _is_node(obj)


def _is_node(obj: object) -> bool:
    if isinstance(obj, dict | list | tuple):
        return True
    if tells_children(obj):
        return True
    return library_hooks.find_state(obj) is not None or is_user_object(obj)


def tells_children(obj: object) -> bool:
    """Whether an object says itself what its children are."""
    names = ("_checkpoint_children", "_checkpoint_hidden")
    return any(hasattr(type(obj), name) for name in names)


def is_user_object(obj: object) -> bool:
    """Whether the class of an object is the program's own, not a library's."""
    package = type(obj).__module__.partition(".")[0]
    is_library = package in sys.stdlib_module_names and package != "__main__"
    return hasattr(obj, "__dict__") and not (is_library or package in _LIBRARIES)


def child_slots(obj: object, slot: StateSlot) -> dict[str, StateSlot]:
    """Returns the slots of a node's children, by name.

    Args:
        obj: the node.
        slot: the slot of the node itself, in which a tuple is replaced.

    Raises:
        TypeError: a dict has keys that are neither strings nor integers.
        ValueError: two keys of a dict, such as 1 and "1", have the same name.
    """
    return {
        name: replace_library_variable(p)
        for name, p in _list_child_slots(obj, slot).items()
    }


def replace_library_variable(slot: StateSlot) -> StateSlot:
    """Returns a slot; for a library's variable, one with its `LibraryVariable`."""
    found = _find_state(slot.get())
    # Such a variable is never replaced in its slot: Keras holds it in many places.
    return (
        fixed_slot(found) if isinstance(found, library_hooks.LibraryVariable) else slot
    )


def _list_dict(given: dict[Any, Any]) -> dict[str, StateSlot]:
    """Returns the slots of a dict's values, by the names of their keys."""
    named: dict[str, StateSlot] = {}
    for key in given:
        if type(key) not in (str, int):
            raise TypeError(
                f"A dict in a checkpoint has the key {key!r} of type "
                f"{type(key).__name__}; expected strings or integers."
            )
        if str(key) in named:
            raise ValueError(
                f"A dict in a checkpoint has two keys with the name {str(key)!r}."
            )
        named[str(key)] = _item_slot(given, key)
    return named


def _list_child_slots(obj: Any, slot: StateSlot) -> dict[str, StateSlot]:
    """Returns the slots of a node's children, those of library variables unchanged."""
    named: dict[str, StateSlot] = {}
    if isinstance(obj, dict):
        named = _list_dict(obj)
    elif isinstance(obj, list):
        named = {str(i): _item_slot(obj, i) for i in range(len(obj))}
    elif isinstance(obj, tuple):
        named = {str(i): _tuple_item_slot(slot, i) for i in range(len(obj))}
    elif hasattr(type(obj), "_checkpoint_hidden"):
        return _list_rooted(obj)
    elif hasattr(type(obj), "_checkpoint_children"):
        # A protocol between the rooms. It is private, because the public attributes of
        # such objects are named by programs.
        return _as_slots(obj._checkpoint_children())  # noqa: SLF001
    elif isinstance(below := library_hooks.find_state(obj), dict):
        return _as_slots(below)
    elif is_user_object(obj):
        named = {
            name: attribute_slot(obj, name)
            for name in vars(obj)
            if name != PENDING_ATTRIBUTE
        }
        return {k: p for k, p in named.items() if _is_state_attribute(k, p.get())}
    return {k: p for k, p in named.items() if is_state(p.get())}


class RootedNode(Protocol):
    """A node whose children are its attributes, and the children of a root.

    A checkpoint is one. It is read here, and not asked, so that calls go one way.
    """

    _checkpoint_hidden: frozenset[str]
    _root: object
    _save_counter: Variable | None


def find_root(node: RootedNode) -> object:
    """Returns the root of a node, or None.

    Raises:
        ReferenceError: it is gone; there was only a weak reference to it.
    """
    root = node._root  # noqa: SLF001 - Programs may use any public name.
    if not isinstance(root, weakref.ref):
        return root
    found: object = root()
    if found is None:
        raise ReferenceError(
            "The root of this checkpoint is gone: `Checkpoint(weakref.ref(obj))` "
            "does not keep it alive. Keep another reference to the object for as "
            "long as the checkpoint is used, or give `Checkpoint(obj)`."
        )
    return found


def root_slots(node: RootedNode) -> dict[str, StateSlot]:
    """Returns the slots of a root's children, by name.

    Raises:
        ValueError: the root has no children, for it is itself a value or no state.
    """
    root = find_root(node)
    is_node = is_state(root) and leaf_kind(root) is None
    if not is_node and not isinstance(root, dict | list | tuple):
        raise ValueError(
            "`Checkpoint` was expecting root to be a trackable object with state "
            "in its attributes, such as a module or model; got "
            f"{root!r} of type {type(root).__name__}. To save a variable or "
            "iterator, name it: `Checkpoint(v=v)`."
        )
    return child_slots(root, fixed_slot(root))


def _list_rooted(node: RootedNode) -> dict[str, StateSlot]:
    """Returns the slots of a root's children and of a node's own, by name."""
    found: dict[str, StateSlot] = {}
    # Both are private, because programs name the attributes of a checkpoint.
    hidden, counter = node._checkpoint_hidden, node._save_counter  # noqa: SLF001
    if node._root is not None:  # noqa: SLF001
        # The root's children come first: an attribute of the same name wins.
        found |= root_slots(node)
    for name, value in vars(node).items():
        if name not in hidden and value is not None and is_state(value):
            found[name] = attribute_slot(node, name)
    if counter is not None:
        found["save_counter"] = fixed_slot(counter)
    return found


def _is_state_attribute(name: str, value: object) -> bool:
    """Whether an attribute of a program's own object is state.

    Plain data in a private attribute is not: it may be a cache or a setting.
    """
    if value is None or not is_state(value):
        return False
    return not name.startswith("_") or leaf_kind(value) != manifest.PLAIN


def _as_slots(given: dict[str, Any]) -> dict[str, StateSlot]:
    return {
        name: child if isinstance(child, StateSlot) else fixed_slot(child)
        for name, child in given.items()
    }


_ATTRIBUTES = {
    manifest.VARIABLE: "VARIABLE_VALUE",
    manifest.ARRAY: "ARRAY_VALUE",
    manifest.PLAIN: "PYTHON_VALUE",
    manifest.STATE: "PYTHON_STATE",
}
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@final
@dataclasses.dataclass
class FoundObject:
    """One object of the graph.

    Attributes:
        obj: the object.
        slot: where its first parent holds it.
        path: the names from the root to the object.
        kind: the kind of its value, or None for a node.
        children: the numbers of its children, by name.
    """

    obj: Any
    slot: StateSlot
    path: tuple[str, ...]
    kind: str | None
    children: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str | None:
        """The key of its value, the same as TensorFlow's, or None for a node."""
        if self.kind is None:
            return None
        names = [_escape(name) for name in self.path]
        return "/".join([*names, ".ATTRIBUTES", _ATTRIBUTES[self.kind]])

    def __str__(self) -> str:
        return ".".join(["(root)", *self.path])


def _escape(name: str) -> str:
    # TensorFlow's escapes, in this order: "/" separates the names of a key, and
    # ".S" must not come from a dot.
    return name.replace(".", "..").replace("/", ".S")


def walk(root: object) -> list[FoundObject]:
    """Returns every object below a root, nearest first, each object once.

    Plain values have no identity: the same number in two places is two values.
    """
    slot = replace_library_variable(fixed_slot(root))
    root = slot.get()
    found = [FoundObject(root, slot, (), leaf_kind(root))]
    numbers = {id(root): 0}
    queue = collections.deque(found)
    while queue:
        parent = queue.popleft()
        if parent.kind is not None:
            continue
        for name, slot in child_slots(parent.obj, parent.slot).items():
            child = slot.get()
            kind = leaf_kind(child)
            # An object that is found twice is one node with two parents.
            known = numbers.get(id(child)) if kind != manifest.PLAIN else None
            if known is None:
                known = len(found)
                made = FoundObject(child, slot, (*parent.path, name), kind)
                found.append(made)
                queue.append(made)
                if kind != manifest.PLAIN:
                    numbers[id(child)] = known
            parent.children[name] = known
    return found
