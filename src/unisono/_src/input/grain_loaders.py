"""Pipelines of Grain's, as the source of a plan."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from unisono._src.input import columnar, cursors, iterables, nodes


@dataclasses.dataclass(frozen=True, eq=False)
class GrainLoader(iterables.Loader):
    """A pipeline of Grain's; its iterators know their position."""

    def cursor(self) -> cursors.Cursor:
        """Grain's iterator."""
        return columnar.Wrapped(iter(self.source))

    @property
    def is_fresh(self) -> bool:
        """Not copied yet."""
        return False


def to_node(loader: Any) -> nodes.Node | None:
    grain = sys.modules.get("grain")
    if grain is None:
        return None
    if isinstance(loader, grain.MapDataset):
        return GrainLoader(loader.to_iter_dataset())
    if isinstance(loader, (grain.IterDataset, grain.DataLoader)):
        return GrainLoader(loader)
    return None
