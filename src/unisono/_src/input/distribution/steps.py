"""Makes steps of batches: which rows each replica gets at a time, on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from unisono._src.input.plan import cursors, elements
from unisono._src.input.stages import mixing
from unisono._src.machines.topology import Topology


def chunks(batch: int, replicas: int) -> list[tuple[int, int]]:
    """Returns consecutive chunks of ``ceil(batch / replicas)`` rows.

    The last ones may be short or empty.

    >>> chunks(7, 4)
    [(0, 2), (2, 4), (4, 6), (6, 7)]
    >>> chunks(2, 4)
    [(0, 1), (1, 2), (2, 2), (2, 2)]
    """
    size = -(-batch // replicas)
    return [(min(i * size, batch), min((i + 1) * size, batch)) for i in range(replicas)]


def chunks_of_worker(
    batch: int, counts: Sequence[int], worker: int
) -> list[tuple[int, int]]:
    """Returns the chunks of one worker's replicas; the workers take chunks in turn.

    Args:
        batch: how many rows the batch has.
        counts: how many replicas each worker has. A worker that has enough chunks
            takes no more.
        worker: the number of the worker.

    >>> chunks_of_worker(7, [2, 2], worker=1)
    [(2, 4), (6, 7)]
    >>> [chunks_of_worker(6, [2, 4], worker=w) for w in range(2)]
    [[(0, 1), (2, 3)], [(1, 2), (3, 4), (4, 5), (5, 6)]]
    """
    turns = range(max(counts))
    takers = [w for turn in turns for w, count in enumerate(counts) if turn < count]
    found = zip(takers, chunks(batch, sum(counts)), strict=True)
    return [chunk for taker, chunk in found if taker == worker]


def chunks_in_turn(
    batch: int, replicas: int, local: int
) -> list[list[tuple[int, int]]]:
    """Returns the steps in which a worker takes all chunks of a batch of its own.

    >>> chunks_in_turn(7, replicas=4, local=2)
    [[(0, 2), (2, 4)], [(4, 6), (6, 7)]]
    """
    found = chunks(batch, replicas)
    return [found[i : i + local] for i in range(0, replicas, local)]


def sizes_of_worker(batch: int, replicas: int, workers: int, worker: int) -> list[int]:
    """Returns the sizes of the parts that one worker takes, in turn.

    Where the batch does not divide, the first replicas get one example more. Each
    worker begins at another place of the list; together they take a whole batch.

    >>> [sizes_of_worker(6, 4, 2, w) for w in range(2)]
    [[2, 2, 1, 1], [1, 1, 2, 2]]
    """
    small, more = divmod(batch, replicas)
    sizes = [small + 1] * more + [small] * (replicas - more)
    # As TensorFlow's `batch_sizes_for_worker`,
    # which begins at the worker's first replica.
    first = replicas // workers * worker
    return sizes[first:] + sizes[:first]


def fills_of_worker(
    rows: int, batch: int, replicas: int, workers: int = 1, worker: int = 0
) -> list[list[tuple[int, int]]]:
    """Returns the steps in which a worker takes a batch, in parts of fixed sizes.

    A smaller batch leaves the last parts short or empty; it is not filled up from the
    next one. Each step has as many parts as the worker has replicas.

    Args:
        rows: how many examples the batch has.
        batch: its declared size.
        replicas: how many replicas there are on all workers.
        workers: how many workers there are.
        worker: the number of this worker.

    >>> fills_of_worker(6, 8, replicas=2)
    [[(0, 4), (4, 6)]]
    >>> fills_of_worker(3, 3, 2, workers=2, worker=1)
    [[(0, 1)], [(1, 3)]]
    """
    local = replicas // workers
    sizes = sizes_of_worker(batch, replicas, workers, worker)
    made, start = [], 0
    for turn in range(0, len(sizes), local):
        parts = []
        for size in sizes[turn : turn + local]:
            stop = min(start + size, rows)
            parts.append((start, stop))
            start = stop
        made.append(parts)
        if start >= rows:
            break
    return made


Bounds = list[tuple[int, int]]


@final
class Share(NamedTuple):
    """The replicas of one worker, among those of all workers.

    Attributes:
        replicas: how many replicas there are on all workers.
        workers: how many workers there are.
        worker: the number of this worker.
        uneven: how many replicas each worker has, if they have different numbers; else
            nothing.
    """

    replicas: int
    workers: int = 1
    worker: int = 0
    uneven: tuple[int, ...] = ()

    @property
    def local(self) -> int:
        """Returns how many replicas this worker has."""
        return self.counts[self.worker]

    @property
    def counts(self) -> tuple[int, ...]:
        """Returns how many replicas each worker has."""
        return self.uneven or (self.replicas // self.workers,) * self.workers

    @property
    def is_single(self) -> bool:
        """Whether there is one replica in all."""
        return self.replicas == 1


def share_of(topology: Topology) -> Share:
    """Returns this worker's share of the replicas."""
    owners = [device.process_index for device in topology.devices]
    counts = tuple(owners.count(worker) for worker in range(topology.workers))
    is_uneven = topology.workers > 1 and len(set(counts)) > 1
    uneven = counts if is_uneven else ()
    return Share(topology.replicas, topology.workers, topology.worker, uneven)


@final
class Step(NamedTuple):
    """The data that the local replicas get in one step.

    Attributes:
        batch: the rows, or a list with an element for each replica.
        bounds: the rows of each replica; None if `batch` is a list.
        units: how far this step moves the position.
        even: whether the parts of all workers have the same shapes; None if that is
            not known beyond this worker.
    """

    batch: Any
    bounds: Sequence[tuple[int, int]] | None
    units: int
    even: bool | None = None

    def parts(self) -> list[Any]:
        """Returns the part of each replica."""
        if self.bounds is None:
            each: list[Any] = self.batch
            return each
        return [elements.rows(self.batch, a, b) for a, b in self.bounds]


def cuts(rows: int, share: Share, size: int | None, is_common: bool) -> list[Bounds]:
    """Returns the steps in which a worker takes a batch, as bounds."""
    if size is not None:
        return fills_of_worker(rows, size, share.replicas, share.workers, share.worker)
    if is_common:
        return [chunks_of_worker(rows, share.counts, share.worker)]
    return chunks_in_turn(rows, share.replicas, share.local)


@final
class BatchSteps(cursors.UnaryCursor):
    """The steps made of global batches; each batch is cut by itself.

    The position is a batch, so it is the same for any number of replicas. Only where
    several workers read a batch in more than one step can it be within a batch.

    Args:
        source: gives the batches.
        share: the replicas that take them.
        size: the declared size of a batch, if the parts have fixed sizes (rule B);
            None cuts chunks of the actual size (rule A).
        is_common: whether all workers read the same batches, and each takes its chunks
            of them; else each takes all chunks of its own batches, in several steps.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        share: Share,
        size: int | None,
        is_common: bool = True,
    ) -> None:
        super().__init__(source)
        self._share, self._size = share, size
        self._is_common = is_common
        # By rule A a worker takes its chunks of a common batch in one step. In the
        # other cases each worker reads batches of its own, of the size that all
        # replicas share, and its few replicas need several steps for one.
        self._has_turns = share.workers > 1 and not (is_common and size is None)
        # The position before the present batch; None if each batch is one step, because
        # then no position is within a batch.
        self._before: dict[str, Any] | None = None
        self._batch: Any = None
        # The steps of the present batch that are still to come.
        self._left: list[Bounds] = []
        self._even: bool | None = None
        self._turn = 0
        # The size of the last batch, and how it was cut: most batches have one size.
        self._rows_before = -1
        self._cuts_before: list[Bounds] = []

    def read(self, count: int) -> list[Step]:
        """Returns the next steps."""
        found: list[Step] = []
        while len(found) < count and (self._left or self._cut_batch()):
            found.append(Step(self._batch, self._left.pop(0), 1, self._even))
            self._turn += 1
        return found

    def _cut_batch(self) -> bool:
        """Reads and cuts the next batch; returns False at the end."""
        if self._has_turns:
            self._before = self._source.get_state()
        self._turn = 0
        block = self._source.read(1)
        if not len(block):
            return False
        self._batch = block[0]
        batch = self._batch
        # The most frequent batch, a single array, needs no walk over its structure.
        is_array = type(batch) is np.ndarray and batch.ndim
        rows = len(batch) if is_array else elements.length(batch)
        if rows != self._rows_before:
            self._cuts_before = self._cuts(rows)
            self._rows_before = rows
        # `read` takes the steps off this list.
        self._left = self._cuts_before.copy()
        # By rule A all workers read the batch, so each knows the parts of the others.
        is_seen = self._size is None and self._is_common
        self._even = rows % self._share.replicas == 0 if is_seen else None
        return True

    def _cuts(self, rows: int) -> list[Bounds]:
        return cuts(rows, self._share, self._size, self._is_common)

    def skip(self, count: int) -> int:
        """Skips steps; batches are skipped unread where each is one step."""
        if not self._has_turns:
            return self._source.skip(count)
        return super().skip(count)

    def get_state(self) -> dict[str, Any]:
        """Returns the position of a batch, and how many steps of it were read."""
        # Between two batches: the source is exactly at the next one.
        if not self._left or self._before is None:
            return {"turn": 0, "source": self._source.get_state()}
        return {"turn": self._turn, "source": self._before}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a step of a batch.

        Raises:
            ValueError: the position is within a batch that several workers shared.
        """
        # Steps of one worker are whole batches, so
        # that nothing could continue within one.
        if state["turn"] and self._share.workers == 1:
            raise _within_batch_error()
        self._source.set_state(state["source"])
        self._left = []
        # The batch is read and cut again, without the steps that were taken.
        if state["turn"] and self._cut_batch():
            del self._left[: state["turn"]]
            self._turn = state["turn"]


def _within_batch_error() -> ValueError:
    """Returns the error for a position that only several workers can continue at."""
    return ValueError(
        "The position is within a global batch that several workers had begun to read. "
        "Continue on as many workers, or save after whole batches."
    )


@final
class SingleReplicaSteps(cursors.UnaryCursor):
    """The steps of a single replica: every element as it is, batched or not."""

    def read(self, count: int) -> list[Step]:
        """Returns one step for each element."""
        return [Step([element], None, 1) for element in self._source.read(count)]

    def skip(self, count: int) -> int:
        """Skips elements and returns how many there were."""
        return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        """Returns the position, in the form that several replicas have as well."""
        return {"turn": 0, "source": self._source.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at an element.

        Raises:
            ValueError: the position is within a batch that several workers shared.
        """
        if state["turn"]:
            raise _within_batch_error()
        self._source.set_state(state["source"])


@final
class ElementSteps(cursors.Derived):
    """The steps in which each replica takes the next element of the worker's dataset.

    Args:
        source: gives the elements.
        share: the replicas that take them.
        missing: returns the part of a replica that finds no more element, given the
            element of another replica; None drops the step. Called only when needed.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        share: Share,
        missing: Callable[[Any], Any],
    ) -> None:
        super().__init__(source)
        self._share, self._missing = share, missing

    def read(self, count: int) -> list[Step]:
        """Returns the next steps, each with one element per replica."""
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
        """Returns the number of elements in the steps."""
        return sum(step.units for step in found)

    def skip(self, count: int) -> int:
        """Skips elements and returns how many there were."""
        return self._source.skip(count)


@final
class DatasetSteps(mixing.Parallel):
    """The steps in which each replica takes an element of its own dataset.

    Args:
        sources: the elements of each replica.
        missing: as for `ElementSteps`.
    """

    def __init__(
        self, sources: Sequence[cursors.Cursor], missing: Callable[[Any], Any]
    ) -> None:
        super().__init__(sources)
        self._missing = missing

    def read(self, count: int) -> list[Step]:
        """Returns the next steps, each with one element of every dataset."""
        found: list[Step] = []
        while len(found) < count:
            blocks = [source.read(1) for source in self._sources]
            there = [b[0] for b in blocks if len(b)]
            if not there:
                break
            is_whole = len(there) == len(blocks)
            # `missing` may look at a spec, which can cost a read: only if it is needed.
            empty = None if is_whole else self._missing(there[0])
            if empty is None and not is_whole:
                break
            parts = [b[0] if len(b) else empty for b in blocks]
            found.append(Step(parts, None, 1))
        return found

    def get_state(self) -> dict[str, Any]:
        """Returns the position in each dataset."""
        return self._positions()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues at a position in each dataset.

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
        self._return_to(state)
