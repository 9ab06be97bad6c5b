"""Makes a plan from a data source: examples that can be read in any order.

`tfds.data_source` of TensorFlow Datasets returns one, and needs no TensorFlow.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from unisono._src.input.plan import elements, loader_structures, nodes


@final
class _Examples:
    """The examples of a data source, as rows."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def element_at(self, index: int) -> object:
        return elements.copy(loader_structures.to_element(self._source[int(index)]))

    def take(self, indices: np.ndarray, allocate: nodes.Allocate = np.empty) -> object:
        # Plain integers: a source need not know NumPy's.
        found = self._source.__getitems__([int(i) for i in indices])
        if len(found) != len(indices):
            raise ValueError(
                f"{type(self._source).__name__}.__getitems__ was asked for "
                f"{len(indices)} examples and gave {len(found)}."
            )
        made = [loader_structures.to_element(example) for example in found]
        return elements.stack(made, allocate)

    def slice(self, start: int, stop: int) -> object:
        return self.take(np.arange(start, stop))


@final
class DataSource(nodes.RowSource):
    """A source of single examples that are read by their numbers."""

    source: Any
    samples_spec = True
    makes_new = True

    def rows(self) -> _Examples:
        """Returns the examples as rows."""
        return _Examples(self.source)

    @property
    def cardinality(self) -> int:
        """Returns how many examples there are."""
        return len(self.source)

    def _spec(self) -> elements.Spec:
        return nodes.first_spec(
            self,
            f"an empty data source: {self} has no examples. Give one that has at least "
            "one.",
        )

    def __str__(self) -> str:
        return f"{type(self.source).__name__}({self.cardinality})"


def to_node(loader: object) -> nodes.Node | None:
    """Returns the plan of a data source; None for anything else."""
    kind = type(loader)
    wanted = ("__len__", "__getitem__", "__getitems__")
    if not all(hasattr(kind, name) for name in wanted):
        return None
    return DataSource(loader)
