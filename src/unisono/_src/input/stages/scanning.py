"""`scan`: applies a function that carries a state from element to element."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, final

import numpy as np

from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.input.stages import mapping


def _to_plain(x: Any) -> dict[str, Any]:
    """Returns an array as plain data, for a position."""
    array = elements.as_array(x)
    flat = array.ravel().tolist()
    if array.dtype.kind == "O":
        # Latin-1 maps every byte to one character and back.
        flat = [text.decode("latin-1") for text in flat]
    return {"type": str(array.dtype), "shape": list(array.shape), "values": flat}


def _from_plain(saved: dict[str, Any]) -> Any:
    """Returns the array of which `_to_plain` made plain data."""
    flat = np.empty(len(saved["values"]), saved["type"])
    for index, value in enumerate(saved["values"]):
        flat[index] = value.encode("latin-1") if isinstance(value, str) else value
    array = flat.reshape(saved["shape"])
    return array[()] if array.ndim == 0 else array


@final
class _Scanned(cursors.Called):
    """Calls the function with the carried state and each element."""

    # Skipping must call it, too: each call changes the state.
    sees_all = True

    def __init__(self, source: cursors.Cursor, node: Scan) -> None:
        super().__init__(source)
        self._node, self._state = node, node.initial

    def read(self, count: int) -> list[Any]:
        found, block = [], self._block(count)
        try:
            for element in block:
                self._state, out = self._node.call(self._state, element)
                found.append(elements.map_leaves(elements.copy_array, out))
        except BaseException:
            # The elements after the one that raised are not lost.
            self._keep(block)
            raise
        return found

    def get_state(self) -> dict[str, Any]:
        carried = [_to_plain(x) for x in elements.leaves(self._state)]
        return {"carried": carried, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        arrays = iter([_from_plain(c) for c in state["carried"]])
        self._state = elements.map_leaves(lambda _: next(arrays), self._node.initial)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Scan(nodes.Unary):
    """The results of a function of every element and a carried state.

    Attributes:
        initial: the state before the first element.
        fn: takes a state and an element, and returns the next state and a new element.
    """

    initial: Any
    fn: Callable[[Any, Any], Any]
    samples_spec = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that carries the state."""
        return _Scanned(self.parent.cursor(), self)

    @property
    def cardinality(self) -> int:
        """Returns the cardinality of the parent."""
        return self.parent.cardinality

    def call(self, state: Any, element: Any) -> tuple[Any, Any]:
        """Returns the next state and the new element.

        Raises:
            TypeError: the function returned no pair, or a state of other types.
        """
        made = mapping.call(self.fn, (state, element))
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            raise TypeError(
                "`scan_func` must return a pair of the new state and the output, "
                f"received {made!r}."
            )
        state_made = elements.convert(made[0])
        elements.check_same_types(state, state_made, "The state of scan")
        return state_made, elements.convert(made[1])

    def _spec(self) -> Any:
        def output_spec(element: Any) -> Any:
            return elements.spec_of(self.call(self.initial, element)[1])

        return mapping.mapped_spec(output_spec, self.parent)
