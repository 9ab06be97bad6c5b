"""Keras' `PyDataset`, as the source of a plan."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, final

from unisono._src.input.plan import cursors, elements, loader_structures, nodes
from unisono._src.input.sources import iterables


def _count(source: Any) -> int:
    try:
        count = source.num_batches
    except NotImplementedError:
        # Keras has it that one must be told.
        return nodes.UNKNOWN
    return nodes.INFINITE if count is None else count


@final
class _Batches(cursors.Cursor):
    """The batches of a `PyDataset`, by number.

    Args:
        source: the dataset.
        is_pass: whether it is told that an epoch begins and ends.
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
        while len(found) < count and (total < 0 or self._next < total):
            # One that cannot be made is passed over.
            self._next += 1
            try:
                found.append(self._made(self._next - 1))
            except IndexError:
                if total != nodes.UNKNOWN:
                    raise
                self._next -= 1
                self._end()
                break
            finally:
                if self._next == total:
                    self._end()
        return found

    def _made(self, number: int) -> Any:
        try:
            batch = elements.convert(
                loader_structures.to_structure(self._source[number])
            )
        except StopIteration as e:
            name = f"{type(self._source).__name__}.__getitem__({number})"
            raise iterables.stopped(name) from e
        return elements.map_leaves(elements.owned, batch)

    def _end(self) -> None:
        if self._is_pass:
            self._is_pass = False
            self._tell("on_epoch_end")

    def _tell(self, event: str) -> None:
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
        self._is_pass = True

    def close(self) -> None:
        """Nothing to give back."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class KerasBatches(iterables.Loader, nodes.Disturbed):
    """A Keras `PyDataset`: batches by number. Its own workers are not started."""

    is_pass: bool = True

    def cursor(self) -> cursors.Cursor:
        """Batch after batch, between `on_epoch_begin` and `on_epoch_end`."""
        return _Batches(self.source, self.is_pass)

    def sampled(self) -> nodes.Node:
        """A look at a batch is no epoch."""
        return KerasBatches(self.source, is_pass=False)

    @property
    def cardinality(self) -> int:
        """How many batches it says."""
        return _count(self.source)


def to_node(loader: Any) -> nodes.Node | None:
    """The plan of a `PyDataset`; None for anything else."""
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(loader, keras.utils.PyDataset):
        return None
    return KerasBatches(loader)
