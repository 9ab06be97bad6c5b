"""Steps: what the replicas of one worker get at a time, still on the host."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from unisono._src.input import batching, cursors, elements, plan


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


class Step(NamedTuple):
    """What the local replicas get.

    Attributes:
        batch: the rows, or a list with an element for each replica.
        bounds: the rows of each replica; None if `batch` is a list.
        units: how far this moves the position.
    """

    batch: Any
    bounds: Sequence[tuple[int, int]] | None
    units: int

    def parts(self) -> list[Any]:
        """The part of each replica."""
        if self.bounds is None:
            return self.batch
        return [elements.rows(self.batch, a, b) for a, b in self.bounds]


class _Batches(cursors.Cursor):
    """Steps made of global batches; abstract.

    The position is a batch and a row in it, for any number of replicas.
    """

    def __init__(self, source: cursors.Cursor, share: Share) -> None:
        self._stream = batching.Stream(source)
        self._share = share

    def units(self, found: Sequence[Step]) -> int:
        return sum(step.units for step in found)

    def get_state(self) -> dict[str, Any]:
        return self._stream.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        self._stream.set_state(state)

    def close(self) -> None:
        self._stream.close()


class Whole(cursors.Cursor):
    """One replica: every element as it is, batched or not.

    Args:
        source: gives the elements.
        by_rows: whether positions are counted in rows, as `Filled` does.
    """

    def __init__(self, source: cursors.Cursor, by_rows: bool) -> None:
        self._source = source
        self._by_rows = by_rows
        self._rest: Any = None
        self._before: Any = None
        self._row = 0

    def read(self, count: int) -> list[Step]:
        """Element by element."""
        found = []
        if self._rest is not None:
            rest, self._rest, self._row = self._rest, None, 0
            found.append(self._step(rest))
        if len(found) < count:
            found.extend(map(self._step, self._source.read(count - len(found))))
        return found

    def _step(self, element: Any) -> Step:
        return Step([element], None, elements.length(element) if self._by_rows else 1)

    def units(self, found: Sequence[Step]) -> int:
        """Rows or elements."""
        return sum(step.units for step in found)

    def skip(self, count: int) -> int:
        """Rows or elements."""
        if not self._by_rows:
            return self._source.skip(count)
        passed = 0
        while passed < count:
            if self._rest is None:
                self._before, self._row = self._source.get_state(), 0
                block = self._source.read(1)
                if not len(block):
                    break
                self._rest = block[0]
            step = min(elements.length(self._rest), count - passed)
            passed += step
            self._pass_rows(step)
        return passed

    def _pass_rows(self, count: int) -> None:
        """Continue in the middle of a batch, where another run was stopped."""
        rows = elements.length(self._rest)
        self._row += count
        self._rest = elements.rows(self._rest, count, rows) if count < rows else None

    def get_state(self) -> dict[str, Any]:
        """A batch and a row in it."""
        if self._rest is not None:
            return {"row": self._row, "source": self._before}
        return {"row": 0, "source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue, perhaps within a batch."""
        self._source.set_state(state["source"])
        self._rest = None
        if state["row"]:
            self._before, self._row = state["source"], 0
            block = self._source.read(1)
            if len(block):
                self._rest = block[0]
                self._pass_rows(state["row"])

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class Chunked(_Batches):
    """Rule A: each batch is cut into chunks by itself, whatever its size."""

    def __init__(self, source: cursors.Cursor, share: Share) -> None:
        super().__init__(source, share)
        self._whole = Whole(source, by_rows=False)

    def read(self, count: int) -> list[Step]:
        """Batch by batch."""
        return [self._cut(step.batch[0]) for step in self._whole.read(count)]

    def _cut(self, batch: Any) -> Step:
        size = elements.length(batch)
        bounds = plan.chunks_of_worker(
            size, self._share.replicas, self._share.workers, self._share.worker
        )
        return Step(batch, bounds, 1)

    def skip(self, count: int) -> int:
        """Batches."""
        return self._whole.skip(count)

    def get_state(self) -> dict[str, Any]:
        """A batch."""
        return self._whole.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at a batch."""
        self._whole.set_state(state)


class Filled(_Batches):
    """Rule B: parts of fixed sizes are filled from each batch, from the first on."""

    def __init__(self, source: cursors.Cursor, share: Share, size: int) -> None:
        super().__init__(source, share)
        self._sizes = plan.sizes_of_worker(
            size, share.replicas, share.workers, share.worker
        )
        self._turn = 0

    def read(self, count: int) -> list[Step]:
        """As many rows as the local replicas take."""
        found: list[Step] = []
        while len(found) < count and not self._stream.at_end():
            sizes = self._next_sizes()
            batch = self._stream.take_within(sum(sizes))
            self._turn += len(sizes)
            rows = elements.length(batch)
            edges = np.minimum(np.cumsum([0, *sizes]), rows).tolist()
            bounds = list(itertools.pairwise(edges))
            found.append(Step(batch, bounds, rows))
        return found

    def _next_sizes(self) -> list[int]:
        total = len(self._sizes)
        turns = range(self._turn, self._turn + self._share.local)
        return [self._sizes[t % total] for t in turns]

    def skip(self, count: int) -> int:
        """Rows."""
        passed = 0
        while passed < count and not self._stream.at_end():
            rows = min(sum(self._next_sizes()) or 1, count - passed)
            passed += elements.length(self._stream.take_within(rows))
            self._turn += self._share.local
        return passed

    def get_state(self) -> dict[str, Any]:
        """A batch, a row in it, and whose turn it is."""
        turn = self._turn % len(self._sizes) if self._share.workers > 1 else 0
        return {"turn": turn, **super().get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue at a row."""
        super().set_state(state)
        self._turn = state.get("turn", 0)


class Dealt(cursors.Cursor):
    """Each replica takes the next element of the worker's dataset.

    Args:
        source: gives the elements.
        share: whose replicas take them.
        missing: makes what a replica gets that finds no element any more; None if
            such a step is dropped. Asked only when it happens.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        share: Share,
        missing: Callable[[], Any],
    ) -> None:
        self._source, self._share, self._missing = source, share, missing

    def read(self, count: int) -> list[Step]:
        """One element per replica."""
        found: list[Step] = []
        while len(found) < count:
            parts = list(self._source.read(self._share.local))
            taken = len(parts)
            if taken < self._share.local:
                empty = self._missing() if taken else None
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


class Separate(cursors.Cursor):
    """Each replica has a dataset of its own."""

    def __init__(
        self, sources: Sequence[cursors.Cursor], missing: Callable[[], Any]
    ) -> None:
        self._sources, self._missing = list(sources), missing

    def read(self, count: int) -> list[Step]:
        """One element of each."""
        found: list[Step] = []
        while len(found) < count:
            blocks = [source.read(1) for source in self._sources]
            if not any(len(b) for b in blocks):
                break
            empty = self._missing() if not all(len(b) for b in blocks) else None
            if empty is None and not all(len(b) for b in blocks):
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
