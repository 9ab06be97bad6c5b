"""Pipelines of Grain's, as the source of a plan."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, final

from unisono._src.input.plan import cursors, nodes
from unisono._src.input.sources import columnar, iterables


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GrainLoader(iterables.Loader):
    """A pipeline of Grain's; its iterators know their position."""

    # Not copied yet.
    makes_new = False

    def cursor(self) -> cursors.Cursor:
        """Grain's iterator."""
        columnar.allow_flags()
        return columnar.Wrapped(iter(self.source))

    @property
    def cardinality(self) -> int:
        """Its length, if it has one."""
        return iterables.length(self.source)


@final
class _Numbered(columnar.OfGrain):
    """The elements of a `MapDataset`, which Grain reads in threads."""

    def __init__(self, source: Any) -> None:
        super().__init__(iter(source.to_iter_dataset()))
        self._total = len(source)

    def read(self, count: int) -> list[Any]:
        try:
            found = columnar.read(self._iterator, count)
        except Exception:
            self._pass_over()
            raise
        if len(found) < count and self._last is None:
            index = self._iterator.get_state()["next_index"]
            if index < self._total:
                self._pass_over()
                raise iterables.stopped(f"Making element {index} of the MapDataset")
        return found

    def _pass_over(self) -> None:
        """Go on behind an element that could not be made; Grain stays where it is."""
        index = self._iterator.get_state()["next_index"]
        self._iterator.set_state({"next_index": index + 1})


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GrainTable(iterables.Loader):
    """A `MapDataset`: it knows how many elements there are."""

    # Not copied yet.
    makes_new = False

    def cursor(self) -> cursors.Cursor:
        """From the beginning."""
        columnar.allow_flags()
        return _Numbered(self.source)

    @property
    def cardinality(self) -> int:
        """Its length, unless it leaves out some."""
        total = len(self.source)
        if total >= sys.maxsize:
            return nodes.INFINITE
        return nodes.UNKNOWN if _is_filtered(self.source) else total


def _is_filtered(dataset: Any) -> bool:
    # Its length counts elements that it will not give.
    return "Filter" in type(dataset).__name__ or any(
        map(_is_filtered, getattr(dataset, "parents", ()))
    )


def to_node(loader: Any) -> nodes.Node | None:
    """The plan of what Grain has made; None for anything else."""
    grain = sys.modules.get("grain")
    if grain is None:
        return None
    if isinstance(loader, grain.MapDataset):
        return GrainTable(loader)
    if isinstance(loader, (grain.IterDataset, grain.DataLoader)):
        return GrainLoader(loader)
    return None
