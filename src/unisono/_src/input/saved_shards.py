"""The files of a saved dataset, as nodes of a plan."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from unisono._src import errors
from unisono._src.input import cachefiles, cursors, nodes, sources


@dataclasses.dataclass(frozen=True, eq=False)
class SavedShard(nodes.Node):
    """The elements of one file of a saved dataset.

    Attributes:
        path: the file.
        compression: None or "GZIP".
        count: how many elements it has.
        signature: their spec.
    """

    path: str
    compression: str | None
    count: int
    signature: Any

    def cursor(self) -> cursors.Cursor:
        """From the file.

        Raises:
            NotFoundError: it was replaced since the dataset was loaded.
        """
        if not os.path.exists(self.path):
            raise errors.NotFoundError(
                f"{self.path} is gone: the dataset was saved anew since it was loaded. "
                "Load it again."
            )
        return cachefiles.Reading(self.path, self.compression, lambda: self.signature)

    @property
    def cardinality(self) -> int:
        """How many there are."""
        return self.count

    def _spec(self) -> Any:
        return self.signature

    def __str__(self) -> str:
        return f"Saved({self.path})"


class Shards(sources.Listed):
    """A dataset of datasets, one for each file."""
