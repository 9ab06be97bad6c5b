"""Makes a plan from Keras' `PyDataset`."""

from __future__ import annotations

import sys
from typing import Any, final

from unisono._src.input.plan import (
    cursors,
    elements,
    first_elements,
    loader_structures,
    nodes,
)
from unisono._src.input.sources import iterables


def _count(source: Any) -> int:
    """Returns the number of batches, `INFINITE` or `UNKNOWN`."""
    try:
        count = source.num_batches
    except NotImplementedError:
        # Keras raises this if the dataset does not define its number of batches.
        return nodes.UNKNOWN
    return nodes.INFINITE if count is None else count


@final
class _PyDatasetBatches(cursors.Cursor):
    """The batches of a `PyDataset`, by number.

    Args:
        source: the dataset.
        is_pass: whether to tell it that an epoch begins and ends.
    """

    def __init__(self, source: Any, is_pass: bool = True) -> None:
        self._source, self._is_pass = source, is_pass
        self._has_begun = False
        self._next = 0

    def read(self, count: int) -> list[Any]:
        if self._is_pass and not self._has_begun:
            self._has_begun = True
            self._tell("on_epoch_begin")
        total = _count(self._source)
        found: list[Any] = []
        # Negative is unknown or infinite.
        while len(found) < count and (total < 0 or self._next < total):
            # The count moves first, so that a batch that raises is not tried again.
            self._next += 1
            try:
                found.append(self._make(self._next - 1))
            except IndexError:
                # The end, but only for a dataset that does not tell its length.
                if total != nodes.UNKNOWN:
                    raise
                self._next -= 1
                self._end()
                break
            # Also after a batch that raised: if it was the last, the epoch is over.
            finally:
                if self._next == total:
                    self._end()
        return found

    def _make(self, number: int) -> object:
        """Returns one batch as arrays that no one else will change."""
        try:
            batch = loader_structures.to_element(self._source[number])
        except StopIteration as e:
            name = f"{type(self._source).__name__}.__getitem__({number})"
            raise cursors.stop_iteration_error(name) from e
        return elements.copy(batch)

    def _end(self) -> None:
        """Tells the dataset, once, that the epoch has ended."""
        if self._is_pass:
            self._is_pass = False
            self._tell("on_epoch_end")

    def _tell(self, event: str) -> None:
        """Calls a method of the dataset, if it has one of that name."""
        told = getattr(self._source, event, None)
        if told is not None:
            told()

    def skip(self, count: int) -> int:
        total = _count(self._source)
        if total == nodes.UNKNOWN:
            return super().skip(count)
        passed = count if total < 0 else min(count, total - self._next)
        self._next += passed
        return passed

    def get_state(self) -> dict[str, Any]:
        return {"next": self._next}

    def set_state(self, state: dict[str, Any]) -> None:
        self._next = state["next"]
        # The end of the epoch lies ahead again, even if it was told before.
        self._is_pass = True

    def close(self) -> None:
        """Does nothing: there is nothing to release."""


@final
class KerasBatches(iterables.Loader, nodes.ChangedByReading):
    """A source of the batches of a `PyDataset`, whose own workers do not start."""

    is_pass: bool = True

    def cursor(self) -> cursors.Cursor:
        """Returns a cursor between `on_epoch_begin` and `on_epoch_end`."""
        return first_elements.watch(self, _PyDatasetBatches(self.source, self.is_pass))

    def make_sample(self) -> nodes.Node:
        """Returns a source that looks at a batch without beginning an epoch."""
        return KerasBatches(self.source, is_pass=False)

    @property
    def cardinality(self) -> int:
        """Returns the number of batches that the dataset claims."""
        return _count(self.source)


def to_node(loader: object) -> nodes.Node | None:
    """Returns the plan of a `PyDataset`; None for anything else."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(loader, keras.utils.PyDataset):
        return None
    return KerasBatches(loader)
