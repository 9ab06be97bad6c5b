"""Steps: what the replicas of one worker get at a time, still on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from unisono._src.input.distribution import chunks
from unisono._src.input.plan import cursors, elements

Bounds = list[tuple[int, int]]


@final
class Share(NamedTuple):
    """One worker's share of the replicas.

    Attributes:
        replicas: how many there are on all workers.
        workers: how many workers there are.
        worker: the number of this one.
    """

    replicas: int
    workers: int = 1
    worker: int = 0

    @property
    def local(self) -> int:
        """How many replicas this worker has."""
        return self.replicas // self.workers

    @property
    def is_single(self) -> bool:
        """Whether there is one replica in all."""
        return self.replicas == 1


@final
class Step(NamedTuple):
    """What the local replicas get.

    Attributes:
        batch: the rows, or a list with an element for each replica.
        bounds: the rows of each replica; None if `batch` is a list.
        units: how far this moves the position.
        even: whether the parts of all workers have the same shapes; None if that is
            not known beyond this worker.
    """

    batch: Any
    bounds: Sequence[tuple[int, int]] | None
    units: int
    even: bool | None = None

    def parts(self) -> list[Any]:
        """The part of each replica."""
        if self.bounds is None:
            each: list[Any] = self.batch
            return each
        return [elements.rows(self.batch, a, b) for a, b in self.bounds]


def cuts(rows: int, share: Share, size: int | None, is_common: bool) -> list[Bounds]:
    """The steps in which a worker takes a batch; see `Cut`."""
    if size is not None:
        return chunks.fills_of_worker(rows, size, *share)
    if is_common:
        return [chunks.chunks_of_worker(rows, *share)]
    return chunks.chunks_in_turn(rows, share.replicas, share.local)


@final
class Cut(cursors.Cursor):
    """Steps made of global batches, each batch cut by itself.

    The position is a batch. It is the same for any number of replicas; only several
    workers that read a batch in more than one step stop within one as well.

    Args:
        source: gives the batches.
        share: whose replicas take them.
        size: the declared size of a batch, if the parts have fixed sizes (rule B);
            None cuts chunks of the actual size (rule A).
        is_common: whether all workers read the same batches, of which each takes its
            chunks; else it takes all of them, in several steps.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        share: Share,
        size: int | None,
        is_common: bool = True,
    ) -> None:
        self._source, self._share, self._size = source, share, size
        self._is_common = is_common
        self._has_turns = share.workers > 1 and not (is_common and size is None)
        # Where the present batch began; None where each is one step, and no position
        # is within it.
        self._before: dict[str, Any] | None = None
        self._batch: Any = None
        self._left: list[Bounds] = []
        self._even: bool | None = None
        self._turn = 0
        # The size of the batch before, and how it was cut: most are of one size.
        self._rows_before = -1
        self._cuts_before: list[Bounds] = []

    def read(self, count: int) -> list[Step]:
        """As many rows as the local replicas take."""
        found: list[Step] = []
        while len(found) < count and (self._left or self._next_batch()):
            found.append(Step(self._batch, self._left.pop(0), 1, self._even))
            self._turn += 1
        return found

    def _next_batch(self) -> bool:
        if self._has_turns:
            self._before = self._source.get_state()
        self._turn = 0
        block = self._source.read(1)
        if not len(block):
            return False
        self._batch = block[0]
        batch = self._batch
        is_array = type(batch) is np.ndarray and batch.ndim
        rows = len(batch) if is_array else elements.length(batch)
        if rows != self._rows_before:
            self._cuts_before = self._cuts(rows)
            self._rows_before = rows
        self._left = self._cuts_before.copy()
        # By rule A all workers see the batch, so each knows the parts of the others.
        is_seen = self._size is None and self._is_common
        self._even = rows % self._share.replicas == 0 if is_seen else None
        return True

    def _cuts(self, rows: int) -> list[Bounds]:
        return cuts(rows, self._share, self._size, self._is_common)

    def units(self, found: Sequence[Step]) -> int:
        """Steps."""
        return len(found)

    def skip(self, count: int) -> int:
        """Steps; batches are passed over unread where each is one step."""
        if not self._has_turns:
            return self._source.skip(count)
        return super().skip(count)

    def get_state(self) -> dict[str, Any]:
        """A batch, and how many steps of it were read."""
        if not self._left or self._before is None:
            return {"turn": 0, "source": self._source.get_state()}
        return {"turn": self._turn, "source": self._before}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at a step of a batch.

        Raises:
            ValueError: the position is within a batch that several workers shared.
        """
        if state["turn"] and self._share.workers == 1:
            raise _within_a_batch()
        self._source.set_state(state["source"])
        self._left = []
        if state["turn"] and self._next_batch():
            del self._left[: state["turn"]]
            self._turn = state["turn"]

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _within_a_batch() -> ValueError:
    return ValueError(
        "The position is within a global batch that several workers had begun to read. "
        "Continue on as many workers, or save after whole batches."
    )


@final
class Whole(cursors.OfSource):
    """One replica: every element as it is, batched or not."""

    def read(self, count: int) -> list[Step]:
        """Element by element."""
        return [Step([element], None, 1) for element in self._source.read(count)]

    def skip(self, count: int) -> int:
        """Elements."""
        return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        """An element; for one replica as for many."""
        return {"turn": 0, "source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at an element.

        Raises:
            ValueError: the position is within a batch that several workers shared.
        """
        if state["turn"]:
            raise _within_a_batch()
        self._source.set_state(state["source"])


@final
class Dealt(cursors.Cursor):
    """Each replica takes the next element of the worker's dataset.

    Args:
        source: gives the elements.
        share: whose replicas take them.
        missing: makes what a replica gets that finds no element any more, of what
            another one has; None if such a step is dropped. Asked only when it happens.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        share: Share,
        missing: Callable[[Any], Any],
    ) -> None:
        self._source, self._share, self._missing = source, share, missing

    def read(self, count: int) -> list[Step]:
        """One element per replica."""
        found: list[Step] = []
        while len(found) < count:
            parts = list(self._source.read(self._share.local))
            taken = len(parts)
            if taken < self._share.local:
                empty = self._missing(parts[0]) if taken else None
                if empty is None:
                    break
                parts += [empty] * (self._share.local - taken)
            found.append(Step(parts, None, taken))
        return found

    def units(self, found: Sequence[Step]) -> int:
        """Elements."""
        return sum(step.units for step in found)

    def skip(self, count: int) -> int:
        """Elements."""
        return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        """The position in the dataset."""
        return {"source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at an element."""
        self._source.set_state(state["source"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


@final
class Separate(cursors.Cursor):
    """Each replica has a dataset of its own."""

    def __init__(
        self, sources: Sequence[cursors.Cursor], missing: Callable[[Any], Any]
    ) -> None:
        self._sources, self._missing = list(sources), missing

    def read(self, count: int) -> list[Step]:
        """One element of each."""
        found: list[Step] = []
        while len(found) < count:
            blocks = [source.read(1) for source in self._sources]
            there = [b[0] for b in blocks if len(b)]
            if not there:
                break
            is_whole = len(there) == len(blocks)
            empty = None if is_whole else self._missing(there[0])
            if empty is None and not is_whole:
                break
            parts = [b[0] if len(b) else empty for b in blocks]
            found.append(Step(parts, None, 1))
        return found

    def get_state(self) -> dict[str, Any]:
        """The position in each."""
        return {"sources": [s.get_state() for s in self._sources]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue in each.

        Raises:
            ValueError: the position is of another number of replicas.
        """
        saved = state["sources"]
        if len(saved) != len(self._sources):
            raise ValueError(
                f"The position has {len(saved)} datasets, one per replica, and there "
                f"are {len(self._sources)} replicas. A dataset that is made per "
                "replica continues only on as many replicas."
            )
        for source, inner in zip(self._sources, saved, strict=True):
            source.set_state(inner)

    def close(self) -> None:
        """Close each."""
        for source in self._sources:
            source.close()
