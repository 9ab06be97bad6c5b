"""Keras' `PyDataset`, as the source of a plan."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from unisono._src.input import cursors, elements, iterables, nodes, structures


class _Batches(cursors.Cursor):
    """The batches of a `PyDataset`, by number."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._next = 0

    def _count(self) -> int | None:
        return self._source.num_batches

    def read(self, count: int) -> list[Any]:
        total = self._count()
        found: list[Any] = []
        while len(found) < count and (total is None or self._next < total):
            batch = elements.convert(structures.structured(self._source[self._next]))
            found.append(elements.map_leaves(elements.owned, batch))
            self._next += 1
            if self._next == total:
                self._source.on_epoch_end()
        return found

    def skip(self, count: int) -> int:
        total = self._count()
        passed = count if total is None else min(count, total - self._next)
        self._next += passed
        return passed

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = state["next"]


@dataclasses.dataclass(frozen=True, eq=False)
class KerasBatches(iterables.Loader):
    """A Keras `PyDataset`: batches by number. Its own workers are not started."""

    def cursor(self) -> cursors.Cursor:
        """Batch after batch, then `on_epoch_end`."""
        return _Batches(self.source)

    @property
    def cardinality(self) -> int:
        """How many batches it says."""
        count = self.source.num_batches
        return nodes.INFINITE if count is None else count


def to_node(loader: Any) -> nodes.Node | None:
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(loader, keras.utils.PyDataset):
        return None
    return KerasBatches(loader)
