"""Compares the copies of mirrored variables, on the devices of one or more workers.

Every so many steps each worker has its devices compute a checksum of every copy
(`values/bit_sums`), and puts a mark of all of them into its record. The thread that
watches compares the marks. Where they differ, the workers exchange the checksums, and
each finds the variable and the copies that most others contradict.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import threading
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import final

import jax
import numpy as np

from unisono._src.foundation import errors
from unisono._src.workers import step_history
from unisono._src.workers.coordination_client import CoordinationClient

# Where workers that differ write their checksums.
_PLACE = "unisono/guard/copies"
# In characters: more are neither written nor read.
_LARGEST = 1 << 22
# So many comparisons are remembered, and told in a record.
KEPT = 256
# If nobody has looked at so many, the program waits until the oldest is there.
_WAITING = 512
# How long a worker waits for the checksums of the others, in looks at their records,
# and how often.
_LOOKS, _TRIES = 8, 4
# Of so many last steps, whose checksums nobody has compared, a worker that ends tells
# them before it is asked.
_LEFT_BEHIND = 8

# The checksums of all copies on a worker: by variable, one for each device.
Sums = Mapping[int, Sequence[int]]


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TakenSums:
    """The checksums of copies on some devices, which these may still compute.

    Attributes:
        names: the names of the variables by their numbers, which are the same on all
            workers.
        arrays: arrays of shape (devices, variables), in the order of the names.
    """

    names: Mapping[int, str]
    arrays: Sequence[jax.Array]

    @property
    def is_ready(self) -> bool:
        """Whether the devices have computed all of them."""
        # JAX's declaration of arrays leaves `is_ready` out.
        return all(x.is_ready() for x in self.arrays)  # type: ignore[attr-defined]

    def read(self) -> KnownSums:
        """Returns the checksums; waits for them."""
        read = step_history.READER.read
        found = np.concatenate([read(x) for x in self.arrays], axis=1)
        return KnownSums(self.names, found)


@final
@dataclasses.dataclass(frozen=True, eq=False)
class KnownSums:
    """The checksums of copies on some devices.

    Attributes:
        names: the names of the variables by their numbers.
        numbers: the checksums, of shape (devices, variables).
    """

    names: Mapping[int, str]
    numbers: np.ndarray

    @property
    def is_uneven(self) -> bool:
        """Whether the copies on the devices of this worker differ."""
        return bool((self.numbers != self.numbers[0]).any())

    def mark(self, before: int) -> int:
        """Returns a number for these checksums, and for those that were before.

        It does not depend on the number of devices, as long as copies are equal.
        """
        told = self.numbers if self.is_uneven else self.numbers[0]
        text = json.dumps([list(self.names), told.tolist()])
        return zlib.crc32(text.encode(), before)

    def by_variable(self) -> Sums:
        """Returns the checksums by variable, one for each device."""
        columns: list[list[int]] = self.numbers.T.tolist()
        return dict(zip(self.names, columns, strict=True))


@final
class CopyComparison:
    """The checksums of this worker's copies, beside those of the others.

    Args:
        client: JAX's client of the coordination service; None without other workers.
        worker: the number of this worker.
        pause: the seconds between two looks at what the others have written.
    """

    def __init__(
        self, client: CoordinationClient | None, worker: int, pause: float
    ) -> None:
        self._client = client
        self._worker = worker
        self._pause = pause
        self._waiting: collections.deque[tuple[int, list[TakenSums]]] = (
            collections.deque()
        )
        # By step, oldest first.
        self._read: dict[int, list[KnownSums]] = {}
        self._marks: dict[int, int] = {}
        # Up to this step nothing differed that was compared.
        self._equal_until = 0
        # How often others were asked in vain for their checksums.
        self._tries = 0
        # The program and the thread that watches come here.
        self._lock = threading.Lock()

    @property
    def is_waiting(self) -> bool:
        """Whether there are checksums that nobody has read."""
        return bool(self._waiting)

    def add(self, step: int, taken: list[TakenSums]) -> None:
        """Adds the checksums that were taken before a step, by devices."""
        self._waiting.append((step, taken))
        if len(self._waiting) > _WAITING:
            self.collect(at_least=len(self._waiting) - _WAITING)

    def collect(self, at_least: int = 0) -> list[tuple[int, int]]:
        """Reads the checksums that are there.

        Args:
            at_least: how many steps to wait for, if need be.

        Returns:
            The last steps whose checksums are known, each with a mark of them.
        """
        with self._lock:
            while self._waiting:
                step, taken = self._waiting[0]
                if at_least <= 0 and not all(t.is_ready for t in taken):
                    break
                self._waiting.popleft()
                at_least -= 1
                # A step that has failed says so where its results are read.
                with contextlib.suppress(RuntimeError, ValueError):
                    self._note(step, [t.read() for t in taken])
            return list(self._marks.items())

    def _note(self, step: int, found: list[KnownSums]) -> None:
        """Notes checksums that are there."""
        self._read[step] = found
        self._marks[step] = functools.reduce(lambda mark, x: x.mark(mark), found, 0)
        while len(self._read) > KEPT:
            oldest = next(iter(self._read))
            del self._read[oldest], self._marks[oldest]

    def find_difference(
        self, told: Mapping[int, Mapping[int, int]], must_end: bool = False
    ) -> errors.WorkerError | None:
        """Returns the error about copies that differ, if any are known to.

        Args:
            told: the marks that the other workers have told, by worker and step.
            must_end: whether this worker ends, and cannot wait for the others.
        """
        step = self._find_step(told)
        if step is None:
            return None
        known = self._read[step]
        names = {n: name for x in known for n, name in x.names.items()}
        every: dict[int, Sums] = {self._worker: _join(known)}
        if told:
            wait = 0.0 if must_end else _LOOKS * self._pause
            every |= self._exchange(step, every[self._worker], len(told), wait)
            self._tries += 1
            if len(every) <= len(told) and (self._tries < _TRIES or must_end):
                # Asked again at the next look. Only all of them show who is right.
                return None
        self._tries = 0
        error = _name_difference(step, self._equal_until, names, every)
        if error is not None:
            return error
        if len(every) <= len(told):
            return _unnamed_error(step)
        # Others have more variables, which they have not let go of yet. Those that all
        # have are the same.
        self._equal_until = step
        return None

    def tell_last(self) -> None:
        """Writes what others may ask for after this worker has ended."""
        steps = [n for n in self._marks if n > self._equal_until][-_LEFT_BEHIND:]
        for step in steps:
            with contextlib.suppress(RuntimeError):
                self._write(step, _join(self._read[step]))

    def _find_step(self, told: Mapping[int, Mapping[int, int]]) -> int | None:
        """Returns the first step at which the marks of workers differ."""
        equal = self._equal_until
        for step, mark in list(self._marks.items()):
            if step <= self._equal_until:
                continue
            theirs = [marks.get(step) for marks in told.values()]
            is_uneven = any(x.is_uneven for x in self._read[step])
            if is_uneven or any(m not in (None, mark) for m in theirs):
                self._equal_until = equal
                return step
            if None in theirs:
                # One of them has not come to it yet; a later step may differ already.
                continue
            equal = step
        self._equal_until = equal
        return None

    def _exchange(
        self, step: int, own: Sums, others: int, seconds: float
    ) -> dict[int, Sums]:
        """Returns the checksums of the other workers at a step, as far as they come."""
        assert self._client is not None
        found: dict[int, Sums] = {}
        until = time.monotonic() + seconds
        with contextlib.suppress(RuntimeError):
            self._write(step, own)
            while True:
                for key, text in self._client.key_value_dir_get(f"{_PLACE}/{step}"):
                    worker = key.rpartition("/")[2]
                    if worker.isdigit() and int(worker) != self._worker:
                        found[int(worker)] = _read_sums(text)
                if len(found) >= others or time.monotonic() >= until:
                    break
                time.sleep(self._pause / 4)
        return found

    def _write(self, step: int, own: Sums) -> None:
        """Writes checksums where the others find them."""
        text = json.dumps(own)
        if self._client is not None and len(text) <= _LARGEST:
            place = f"{_PLACE}/{step}/{self._worker}"
            self._client.key_value_set(place, text, allow_overwrite=True)


def _join(known: list[KnownSums]) -> Sums:
    return {n: row for x in known for n, row in x.by_variable().items()}


def _read_sums(text: str) -> Sums:
    """Returns the checksums that a worker has written; none if they are malformed."""
    if len(text) > _LARGEST:
        return {}
    try:
        found = json.loads(text)
        return {int(k): [int(x) for x in row] for k, row in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _name_difference(
    step: int, before: int, names: Mapping[int, str], every: Mapping[int, Sums]
) -> errors.WorkerError | None:
    """Returns the error about the first variable whose copies differ, if any do.

    Args:
        step: the step before which the checksums were taken.
        before: the last step before which all were equal; 0 if there is none.
        names: the names of the variables.
        every: the checksums by worker.
    """
    shared = [k for k in names if all(k in sums for sums in every.values())]
    differing = [
        k for k in shared if len({x for s in every.values() for x in s[k]}) > 1
    ]
    if not differing:
        return None
    first = differing[0]
    copies = {
        (worker, i): x
        for worker, sums in sorted(every.items())
        for i, x in enumerate(sums[first])
    }
    common, count = collections.Counter(copies.values()).most_common(1)[0]
    odd = [place for place, x in copies.items() if x != common]
    is_clear = 2 * count > len(copies)
    more = f" (and of {len(differing) - 1} more)" if len(differing) > 1 else ""
    same = f" They were the same before step {before}." if before else ""
    return errors.WorkerMismatchError(
        f"The copies of the mirrored variable '{names[first]}'{more} differ before "
        f"step {step}: {_describe(copies, odd, is_clear)}.{same} The hardware has made "
        "an error, or code that does not run for all copies, such as a callback on one "
        "worker or a block for the chief, has changed the variable.",
        odd[0][0] if is_clear else None,
        step,
    )


def _unnamed_error(step: int) -> errors.WorkerError:
    """Returns the error about copies of which the others have not told more."""
    return errors.WorkerMismatchError(
        f"The copies of mirrored variables differ between workers before step {step}, "
        "and not all workers have told the checksums of their copies, so the variable "
        "is not known.",
        None,
        step,
    )


def _describe(
    copies: Mapping[tuple[int, int], int], odd: list[tuple[int, int]], is_clear: bool
) -> str:
    """Returns whose copies differ, in words."""
    if not is_clear:
        told = ", ".join(f"{_name(p, copies)} has {x:08x}" for p, x in copies.items())
        return f"by their checksums, {told}, and no value has a majority"
    right = len(copies) - len(odd)
    shown = ", ".join(_name(p, copies) for p in odd)
    return f"{shown} has another value than the other {right} copies"


def _name(place: tuple[int, int], copies: Mapping[tuple[int, int], int]) -> str:
    worker, device = place
    if len({w for w, _ in copies}) == 1:
        return f"device {device}"
    is_only = (worker, 1) not in copies
    return f"worker {worker}" if is_only else f"device {device} of worker {worker}"
