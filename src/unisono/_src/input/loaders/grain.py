"""Makes a plan from Grain's pipelines."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, final

from unisono._src.input.plan import cursors, nodes, witnesses
from unisono._src.input.sources import columnar, iterables


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GrainLoader(iterables.Loader):
    """A source that reads a Grain pipeline; its iterators tell their position."""

    # Elements are passed on as Grain returns them, without a copy.
    makes_new = False

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor over Grain's iterator."""
        columnar.allow_flags()
        return witnesses.watch(self, columnar.Wrapped(iter(self.source)))

    @property
    def cardinality(self) -> int:
        """Returns the length of the pipeline, if it has one."""
        return iterables.length(self.source)


@final
class _MapDatasetElements(columnar.OfGrain):
    """The elements of a `MapDataset`, which Grain reads in threads."""

    def __init__(self, source: Any) -> None:
        # Its position is `next_index`, a plain number, which `_pass_over` can move.
        super().__init__(iter(source.to_iter_dataset()))
        self._total = len(source)

    def read(self, count: int) -> list[Any]:
        try:
            found = columnar.read(self._iterator, count)
        except Exception:
            self._pass_over()
            raise
        # Grain takes a user's StopIteration for the end; the next index tells it apart.
        if len(found) < count and self._last is None:
            index = self._iterator.get_state()["next_index"]
            if index < self._total:
                self._pass_over()
                raise cursors.stop_iteration_error(
                    f"Making element {index} of the MapDataset"
                )
        return found

    def _pass_over(self) -> None:
        """Moves past an element that could not be made.

        Grain itself would stay there, and raise at every read.
        """
        index = self._iterator.get_state()["next_index"]
        self._iterator.set_state({"next_index": index + 1})


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GrainTable(iterables.Loader):
    """A source that reads a `MapDataset`, which knows its number of elements."""

    # Elements are passed on as Grain returns them, without a copy.
    makes_new = False

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that starts from the beginning."""
        columnar.allow_flags()
        return witnesses.watch(self, _MapDatasetElements(self.source))

    @property
    def cardinality(self) -> int:
        """Returns the length; unknown if a filter leaves some elements out."""
        total = len(self.source)
        # Grain gives an endless dataset the largest length that Python allows.
        if total >= sys.maxsize:
            return nodes.INFINITE
        return nodes.UNKNOWN if _is_filtered(self.source) else total


def _is_filtered(dataset: Any) -> bool:
    """Whether the length counts elements that a filter leaves out."""
    return "Filter" in type(dataset).__name__ or any(
        map(_is_filtered, getattr(dataset, "parents", ()))
    )


def to_node(loader: Any) -> nodes.Node | None:
    """Returns the plan of one of Grain's objects; None for anything else."""
    grain = sys.modules.get("grain")
    if grain is None:
        return None
    if isinstance(loader, grain.MapDataset):
        return GrainTable(loader)
    if isinstance(loader, (grain.IterDataset, grain.DataLoader)):
        return GrainLoader(loader)
    return None
