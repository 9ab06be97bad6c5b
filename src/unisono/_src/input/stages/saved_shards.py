"""The files of a saved dataset, as nodes of a plan."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, final

from unisono._src.foundation import errors, printable
from unisono._src.input.plan import cursors, nodes
from unisono._src.input.sources import arrays
from unisono._src.input.stages import element_files


@final
@dataclasses.dataclass(frozen=True, eq=False)
class SavedShard(nodes.Node):
    """The elements of one file of a saved dataset.

    Attributes:
        path: the file.
        compression: None or "GZIP".
        count: how many elements the file has.
        signature: the spec of an element.
    """

    path: str
    compression: str | None
    count: int
    signature: Any

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor that reads the file.

        Raises:
            NotFoundError: the file was replaced since the dataset was loaded.
        """
        if not os.path.exists(self.path):
            raise errors.NotFoundError(
                f"{self.path} is gone: the dataset was saved again since it was "
                "loaded. Load it again."
            )
        return element_files.ElementReader(
            self.path,
            self.compression,
            lambda: self.signature,
            advice="Save the dataset again.",
        )

    @property
    def cardinality(self) -> int:
        """Returns how many elements the file has."""
        return self.count

    def _spec(self) -> Any:
        return self.signature

    def __str__(self) -> str:
        return f"Saved({printable.escape(str(self.path))})"


@final
class Shards(arrays.Listed):
    """A dataset of datasets, one for each file."""
