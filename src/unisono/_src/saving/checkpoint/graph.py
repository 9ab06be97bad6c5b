"""The graph of objects below a checkpoint, with keys that are the same everywhere.

The keys are paths of names, as TensorFlow's, so they do not depend on the strategy.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, final

from unisono._src.saving.checkpoint import state_slots
from unisono._src.saving.checkpoint.state_slots import StateSlot
from unisono._src.saving.format import manifest

_ATTRIBUTES = {
    manifest.VARIABLE: "VARIABLE_VALUE",
    manifest.ARRAY: "ARRAY_VALUE",
    manifest.PLAIN: "PYTHON_VALUE",
    manifest.STATE: "PYTHON_STATE",
}
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


@final
@dataclasses.dataclass
class Found:
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


def walk(root: Any) -> list[Found]:
    """Returns every object below a root, nearest first, each object once.

    Plain values have no identity: the same number in two places is two values.
    """
    slot = state_slots.replace_library_variable(state_slots.fixed_slot(root))
    root = slot.get()
    found = [Found(root, slot, (), state_slots.leaf_kind(root))]
    numbers = {id(root): 0}
    queue = collections.deque(found)
    while queue:
        parent = queue.popleft()
        if parent.kind is not None:
            continue
        for name, slot in state_slots.child_slots(parent.obj, parent.slot).items():
            child = slot.get()
            kind = state_slots.leaf_kind(child)
            # An object that is found twice is one node with two parents.
            known = numbers.get(id(child)) if kind != manifest.PLAIN else None
            if known is None:
                known = len(found)
                made = Found(child, slot, (*parent.path, name), kind)
                found.append(made)
                queue.append(made)
                if kind != manifest.PLAIN:
                    numbers[id(child)] = known
            parent.children[name] = known
    return found
