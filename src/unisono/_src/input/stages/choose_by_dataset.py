"""Takes each element from one of several datasets, which a dataset of numbers names."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.input.plan import cursors, nodes
from unisono._src.input.stages import mixing


@final
class _Chosen(mixing.Parallel):
    """Reads a number, then an element of the source with that number."""

    def __init__(
        self, choices: cursors.Cursor, sources: Sequence[cursors.Cursor], stop: bool
    ) -> None:
        super().__init__([choices, *sources])
        self._stop = stop
        self._ended: set[int] = set()

    def read(self, count: int) -> list[Any]:
        found: list[Any] = []
        while len(found) < count and not self._is_over():
            choice = self._sources[0].read(1)
            if not len(choice):
                break
            index = int(choice[0])
            if not 0 <= index < len(self._sources) - 1:
                raise errors.InvalidArgumentError(
                    f"choice_dataset gave the number {index}; the datasets have the "
                    f"numbers 0 to {len(self._sources) - 2}."
                )
            # Behind the choices, which are source 0.
            one = self._sources[1 + index].read(1)
            # A source that has ended may be chosen
            # again; with `stop` off, its turn passes.
            if len(one):
                found.append(one[0])
            else:
                self._ended.add(index)
        return found

    def _is_over(self) -> bool:
        wanted = 1 if self._stop else len(self._sources) - 1
        return len(self._ended) >= wanted

    def get_state(self) -> dict[str, Any]:
        return {"ended": sorted(self._ended), **self._positions()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._return_to(state)
        self._ended = set(state["ended"])


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Choose(nodes.Node):
    """Elements from several datasets, in the order that a dataset of numbers gives.

    Attributes:
        inputs: the datasets.
        choices: the number of an input for each element.
        stop: whether the first input that ends is the end.
    """

    inputs: tuple[nodes.Node, ...]
    choices: nodes.Node
    stop: bool
    cardinality = nodes.UNKNOWN

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that follows the choices."""
        sources = [n.cursor() for n in self.inputs]
        return _Chosen(self.choices.cursor(), sources, self.stop)

    def _spec(self) -> Any:
        return mixing.Concatenate(self.inputs).spec
