"""Tables and streams of Hugging Face `datasets`, as the source of a plan."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono._src.input import cursors, elements, iterables, nodes


class _Table:
    """A `datasets.Dataset`: rows by number."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def at(self, index: int) -> Any:
        return elements.convert(_row(self._table[int(index)]))

    def take(self, indices: np.ndarray, blank: nodes.Blank) -> Any:
        return elements.convert(_row(self._table[[int(i) for i in indices]]))

    def slice(self, start: int, stop: int) -> Any:
        return elements.convert(_row(self._table[start:stop]))


def _row(row: Any) -> Any:
    return dict(row) if isinstance(row, Mapping) else row


@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceTable(nodes.Node):
    """A `datasets.Dataset`: examples, to be batched."""

    source: Any

    def cursor(self) -> cursors.Cursor:
        """Example after example."""
        return nodes.Lookup(self.rows(), self.indices())

    def rows(self) -> _Table:
        """By number."""
        return _Table(self.source)

    def indices(self) -> cursors.Cursor:
        """Every one."""
        return cursors.Count(len(self.source))

    @property
    def cardinality(self) -> int:
        """How many examples."""
        return len(self.source)

    def _spec(self) -> Any:
        return elements.spec_of(self.rows().at(0))

    def __str__(self) -> str:
        return f"HuggingFace({len(self.source)})"


class _Stream(cursors.Iterated):
    """A `datasets.IterableDataset`, which knows its position itself."""

    def __init__(self, node: HuggingFaceStream) -> None:
        super().__init__(node._elements)
        self._stream = node.source
        self._begin: Any = None

    def read(self, count: int) -> list[Any]:
        if self._begin is None or not count:
            return super().read(count)
        # It holds for every iteration that begins while it is loaded.
        self._stream.load_state_dict(self._begin)
        self._begin = None
        try:
            return super().read(count)
        finally:
            self._stream.load_state_dict(None)

    def get_state(self) -> dict[str, Any]:
        if self._begin is not None:
            return {"passed": self._passed, "stream": self._begin}
        if self._iterator is None or not hasattr(self._stream, "state_dict"):
            return super().get_state()
        return {"passed": self._passed, "stream": self._stream.state_dict()}

    def set_state(self, state: dict[str, Any]) -> None:
        self._begin = None
        if "stream" not in state:
            super().set_state(state)
            return
        self.close()
        self._begin, self._passed = state["stream"], state["passed"]


@dataclasses.dataclass(frozen=True, eq=False)
class HuggingFaceStream(iterables.Loader):
    """A `datasets.IterableDataset`: examples, to be batched."""

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        return _Stream(self)

    def _spec(self) -> Any:
        element = nodes.first(self)
        if element is None:
            raise ValueError("Cannot tell the element_spec of an empty stream.")
        return elements.spec_of(element)


def to_node(loader: Any) -> nodes.Node | None:
    datasets = sys.modules.get("datasets")
    if datasets is None or not hasattr(datasets, "IterableDataset"):
        return None
    if isinstance(loader, datasets.Dataset):
        return HuggingFaceTable(loader)
    if isinstance(loader, datasets.IterableDataset):
        return HuggingFaceStream(loader)
    return None
