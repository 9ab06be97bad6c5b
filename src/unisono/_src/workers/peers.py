"""The other workers, as this one sees them: who has failed, and who differs."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import final

import jax

from unisono._src.cluster import launcher_pipes
from unisono._src.foundation import errors
from unisono._src.machines.topology import Topology
from unisono._src.workers import step_history, worker_records
from unisono._src.workers.coordination_client import (
    CLAIMED_TWICE,
    RECORDS,
    CoordinationClient,
    claimed_twice_error,
)
from unisono._src.workers.step_history import StepLedger
from unisono._src.workers.worker_records import (
    FAILED,
    LEFT,
    RUNS,
    OwnRecord,
    WorkerRecord,
)

# Each of up to 32 workers compares the records every quarter of a second. More workers
# look less often, because each of them reads the records of all.
_TICK_SECONDS, _TICK_WORKERS = 0.25, 32
# A worker that others wait for is gone after so many looks without a sign of life.
_DEAD_TICKS = 14
_NETWORK = re.compile(
    r"gloo|nccl|connection (closed|reset) by peer|timed out waiting .* for (recv|send)",
    re.IGNORECASE,
)


@final
@dataclasses.dataclass(frozen=True)
class WaitLimits:
    """How long a worker waits for others, in seconds.

    Attributes:
        stall: how long a worker may be behind the others.
        tick: how long it is between two looks at the records.
        dead: how long a worker that is waited for may give no sign of life.
    """

    stall: float
    tick: float
    dead: float

    @classmethod
    def of(cls, workers: int, stall: float) -> WaitLimits:
        """Returns the limits in a group of so many workers."""
        tick = _TICK_SECONDS * max(1.0, workers / _TICK_WORKERS)
        return cls(stall, tick, tick * _DEAD_TICKS)


@final
class Peers:
    """What this worker knows of the others.

    Args:
        client: JAX's client of the coordination service.
        workers: the number of all workers.
        limits: how long to wait for them.
        own: the record of this worker; an error that is found goes there.
        steps: compares the steps of the workers.
        read_claim: returns a note about another process that is the same worker and
            has not joined, if there is one.

    Attributes:
        limits: how long to wait for them.
        is_claimed_twice: whether another process is the same worker as this one.
    """

    # The program's thread, the one that watches, and the reader of the launcher's
    # messages come here.
    def __init__(
        self,
        client: CoordinationClient,
        workers: int,
        limits: WaitLimits,
        own: OwnRecord,
        steps: StepComparison,
        read_claim: Callable[[], str | None],
    ) -> None:
        self.is_claimed_twice = False
        self._client = client
        self.limits = limits
        self._own = own
        self._steps = steps
        self._read_claim = read_claim
        now = time.monotonic()
        others = [i for i in range(workers) if i != own.worker]
        self._records = {i: worker_records.WorkerRecord(i, now) for i in others}
        self._poll_times = worker_records.PollTimes(now, limits.dead / 2)
        # The ends that a launcher has told, until they are noted in the records.
        self._heard: dict[int, launcher_pipes.WorkerEnding] = {}
        # Held while records are read.
        self._lock = threading.Lock()

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of the other workers."""
        return self._records.keys()

    @property
    def copy_marks(self) -> dict[int, dict[int, int]]:
        """Marks of the copies that the other workers have, by worker and step."""
        return {i: r.copy_marks for i, r in self._records.items()}

    def hear(self, worker: int, message: launcher_pipes.LauncherMessage) -> bool:
        """Notes what the launcher says of a worker's process: it ended, or stopped.

        Returns:
            Whether another worker has ended.
        """
        if worker not in self._records:
            return False
        if isinstance(message, launcher_pipes.WorkerPause):
            self._records[worker].note_pause(message, time.monotonic())
            return False
        self._heard[worker] = message
        return True

    def exchange(self) -> None:
        """Publishes this worker's record, reads the others', and judges them."""
        self._own.publish()
        claim = self._read_claim()
        if claim is not None:
            self._client.key_value_set(CLAIMED_TWICE, claim, allow_overwrite=True)
        with self._lock:
            # What a worker published before its end says more than the launcher knows.
            # So the records are read after the launcher was heard.
            heard, now = dict(self._heard), time.monotonic()
            self._poll_times.note(now, self._records.values())
            for key, text in self._client.key_value_dir_get(RECORDS):
                worker = key.rpartition("/")[2]
                if worker.isdigit() and int(worker) in self._records:
                    self._records[int(worker)].read(text, now)
                elif key == CLAIMED_TWICE:
                    self._note_claim(text)
            self._note_endings(heard)
        if self._own.verdict is None:
            # A worker may be too busy for a sign of life, such as while it compiles. So
            # silence counts only after the time that a worker may be behind.
            self._own.verdict = self._judge(now, self.limits.stall)

    def _note_claim(self, text: str) -> None:
        found = claimed_twice_error(text)
        self._own.verdict = self._own.verdict or found
        self.is_claimed_twice |= found.worker == self._own.worker

    def _note_endings(self, heard: dict[int, launcher_pipes.WorkerEnding]) -> None:
        """Notes in the records which workers have ended, as the launcher says."""
        for worker, ending in heard.items():
            self._records[worker].ending = ending

    def note_ended(self) -> None:
        """Judges by what the launcher has told, without the coordination service."""
        self._note_endings(dict(self._heard))
        if self._own.verdict is None:
            self._own.verdict = self._detector().find_ended(self._records.values())

    def look_again(self) -> errors.WorkerError | None:
        """Returns the error that the records show now, if any."""
        with contextlib.suppress(RuntimeError):
            self.exchange()
        return self._own.verdict

    def _judge(
        self, now: float, silence: float, waited: Collection[int] = ()
    ) -> errors.WorkerError | None:
        """Returns the error that the records show; see `FailureDetector.judge`."""
        detector = self._detector()
        found = detector.judge(list(self._records.values()), now, silence, waited)
        if isinstance(found, errors.WorkerMismatchError) and self._own.verdict is None:
            differing = self._steps.exchange_histories(self._records)
            return detector.name_difference(self._records, differing) or found
        return found

    def _detector(self) -> FailureDetector:
        history = self._steps.history
        return FailureDetector(
            self._own.worker,
            history.step,
            history.find,
            self.limits.stall,
            self.limits.dead,
        )

    def explain_absence(self, worker: int | None = None) -> errors.WorkerError | None:
        """Returns why a worker does not do what this one waits for.

        Args:
            worker: the worker; None if all are waited for.

        Returns:
            The error; None if there is no reason yet to give the worker up.
        """
        if self._own.verdict is not None:
            return self._own.verdict
        now = self._poll_times.limit(time.monotonic())
        chosen = self._records if worker is None else [worker]
        found = self._judge(now, self.limits.stall, chosen)
        for i in chosen:
            r = self._records[i]
            if found is None and (r.state == LEFT or r.ending is not None):
                return worker_records.left_error(r, self._steps.history.step)
        return found

    def stalled_error(self, worker: int) -> errors.WorkerError:
        """Returns the error about a worker that lives but is behind."""
        return self._detector().stalled(self._records[worker], time.monotonic())

    def meet(self, seconds: float) -> None:
        """Waits until every worker has given a sign of life.

        Raises:
            WorkerError: one gives none.
        """
        until = time.monotonic() + seconds
        while late := [i for i, r in self._records.items() if r.beat < 0]:
            with contextlib.suppress(RuntimeError):
                self.exchange()
            found = self.explain_absence(late[0])
            if found is None and time.monotonic() > until:
                found = worker_records.lost_error(
                    self._records[late[0]], time.monotonic()
                )
            if found is not None:
                raise self._own.notice(found)
            time.sleep(self.limits.tick / 10)

    def find_reason(self, error: BaseException) -> BaseException:
        """Returns why a collective broke; any other error as it is."""
        if isinstance(error, errors.WorkerError) or not _NETWORK.search(str(error)):
            return error
        # Here this worker does wait for the others, so a short silence is enough. A
        # worker that has just died needs this long to be found silent.
        limits = self.limits
        until = time.monotonic() + limits.dead + 2 * limits.tick
        while (found := self.explain_absence()) is None and time.monotonic() < until:
            with contextlib.suppress(Exception):
                self.exchange()
            time.sleep(limits.tick / 2)
        return found or worker_records.unexplained_error(
            error, self._steps.history.step, limits.stall
        )

    def explain(self, error: BaseException) -> BaseException:
        """Returns the reason why a collective broke, or `error` if that is unknown."""
        found = self.find_reason(error)
        if found is not error and isinstance(found, errors.WorkerError):
            return self._own.notice(found)
        return error

    def compare_counts(self) -> errors.WorkerError | None:
        """Returns the error about a worker that has left after another step."""
        step = self._steps.history.step
        left = [r for r in self._records.values() if r.state == LEFT]
        other = next((r for r in left if r.step != step), None)
        if other is None:
            return None
        return worker_records.count_error(other, self._own.worker, step)


@final
@dataclasses.dataclass(frozen=True)
class FailureDetector:
    """Judges the other workers by what this one knows of itself.

    Attributes:
        worker: the number of this worker.
        step: the step that it is in.
        find: returns the mark and the label of one of its last steps, by number; see
            `step_history`.
        stall: how long a worker may be behind it, in seconds.
        dead: how long a worker that it waits for may give no sign of life.
    """

    worker: int
    step: int
    find: Callable[[int], tuple[int, object] | None]
    stall: float
    dead: float

    def judge(
        self,
        records: Collection[WorkerRecord],
        now: float,
        silence: float,
        waited: Collection[int] = (),
    ) -> errors.WorkerError | None:
        """Returns the error that the records show, if any, with the worker to blame.

        Args:
            records: the records of the other workers.
            now: the present time.
            silence: how long a worker may give no sign of life.
            waited: the workers that this one waits for, which may do so less long.
        """
        # The order is from cause to consequence: an exception of a worker's own makes
        # others differ or stall, and these raise errors about it in turn.
        for r in records:
            if r.state == FAILED and not r.is_secondary:
                return worker_records.failed_error(r)
        blamed = [r for r in records if r.blame is not None]
        for r in blamed:
            if worker_records.is_firm(r):
                return self._agree_with(r)
        found = self._find_difference(records) or self.find_ended(records)
        if found is not None:
            return found
        if blamed:
            return self._agree_with(blamed[0])
        for r in records:
            # One that is stopped cannot answer; its launcher tells if it stays so.
            is_short = r.worker in waited and not r.is_paused
            allowed = min(silence, self.dead) if is_short else silence
            if (found := self._find_late(r, now, allowed)) is not None:
                return found
        secondary = [r for r in records if r.state == FAILED]
        return worker_records.failed_error(secondary[0]) if secondary else None

    def _agree_with(self, r: WorkerRecord) -> errors.WorkerError:
        """Returns the error that another worker has found first."""
        assert r.blame is not None
        kind, worker, step, text = r.blame
        if worker == self.worker:
            text = f"Worker {r.worker} has given up this one, worker {worker}: {text}"
        return worker_records.KINDS[kind](text, worker, step)

    def _find_difference(
        self, records: Collection[WorkerRecord]
    ) -> errors.WorkerError | None:
        """Returns the error about a step in which workers differ, if there is one."""
        for r in records:
            for step, mark in r.recent:
                # A step that this worker has not taken, or has forgotten, shows
                # nothing.
                own, label = self.find(step) or (mark, None)
                if own != mark:
                    odd = self._find_odd(records, step, own, r.worker)
                    return worker_records.mismatch_error(odd, step, r, label)
        return None

    def _find_odd(
        self, records: Collection[WorkerRecord], step: int, own: int, other: int
    ) -> int:
        """Returns this worker if most others agree on another step, else the other."""
        # This worker is not among the records; the 1 below is its own voice.
        told = collections.Counter(dict(r.recent).get(step, own) for r in records)
        return self.worker if max(told.values()) > told[own] + 1 else other

    def name_difference(
        self,
        records: Mapping[int, WorkerRecord],
        differing: Mapping[int, tuple[int, object, str]],
    ) -> errors.WorkerError | None:
        """Returns the error about the first step in which workers differ.

        Args:
            records: the records of the other workers.
            differing: the first step in which a worker differs from this one, with this
                one's label and the other's; see `step_history.find_difference`.
        """
        if not differing:
            return None
        step = min(found[0] for found in differing.values())
        told = {i: theirs for i, (n, _, theirs) in differing.items() if n == step}
        common, count = collections.Counter(told.values()).most_common(1)[0]
        other = next(i for i, theirs in sorted(told.items()) if theirs == common)
        # The others do the same as this worker, as far as is known.
        is_odd = count > 1 + len(records) - len(told)
        return worker_records.mismatch_error(
            self.worker if is_odd else other,
            step,
            records[other],
            differing[other][1],
            common,
        )

    def find_ended(
        self, records: Collection[WorkerRecord]
    ) -> errors.WorkerError | None:
        """Returns the error about a worker that has left, or whose process is gone."""
        for r in records:
            if r.ending is not None and r.state == RUNS:
                return worker_records.ended_error(r, r.ending)
            if r.state == LEFT and r.step < self.step:
                return worker_records.left_error(r, self.step)
        return None

    def _find_late(
        self, r: WorkerRecord, now: float, silence: float
    ) -> errors.WorkerError | None:
        """Returns the error about a worker that is silent, or behind, for too long."""
        is_behind = r.seconds_behind(self.step, now) > self.stall
        # A worker that is behind and silent does not live, as far as one can tell.
        limit = min(silence, self.dead) if is_behind else silence
        if r.state == RUNS and now - r.beaten_at > limit:
            return worker_records.lost_error(r, now)
        return self.stalled(r, now) if is_behind else None

    def stalled(self, r: WorkerRecord, now: float) -> errors.WorkerError:
        """Returns the error about a worker that lives but is behind."""
        return worker_records.stalled_error(r, now, self.worker, self.step)


# Where workers write their steps in the coordination service.
_PLACE = "unisono/guard/history"
# How long a worker waits for the steps of one that differs, to name the first of them.
_HISTORY_SECONDS = 1.0


@final
class StepComparison:
    """The steps of this worker beside those of the others.

    The devices compare the steps while they take them, and keep the result in ledgers.
    The workers exchange what their steps were only if these differ.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
        pause: the seconds between two looks at what the others have written.

    Attributes:
        history: the steps of this worker.
    """

    def __init__(self, client: CoordinationClient, worker: int, pause: float) -> None:
        self.history = step_history.StepHistory()
        self._client = client
        self._worker = worker
        self._pause = pause
        self._ledgers: dict[Topology, StepLedger] = {}

    def find_ledger(self, topology: Topology) -> StepLedger:
        """Returns the ledger of the steps on some devices."""
        found = self._ledgers.get(topology)
        if found is None:
            found = self._ledgers[topology] = StepLedger(topology)
        return found

    def find_unfinished(self) -> list[jax.Array]:
        """Returns an array of each ledger that is there when all steps are done."""
        return [ledger.array for ledger in self._ledgers.values()]

    def find_difference(
        self, look: Callable[[], errors.WorkerError | None]
    ) -> errors.WorkerError | None:
        """Returns the error about a step that is done, if workers differed in it.

        Args:
            look: looks at the records of the others, and returns the error that they
                show. They tell more than the devices know.
        """
        # A copy: another thread may add one.
        for ledger in list(self._ledgers.values()):
            found = ledger.find_difference()
            if found is not None:
                return self._explain(ledger, *found, look)
        return None

    def _explain(
        self,
        ledger: StepLedger,
        count: int,
        only_values: bool,
        look: Callable[[], errors.WorkerError | None],
    ) -> errors.WorkerError:
        """Returns the error about a step in which the devices found a difference."""
        step = self.history.find_counted(ledger, count)
        label = (self.history.find(step or 0) or (0, "an earlier step"))[1]
        if only_values:
            return worker_records.value_error(step, label)
        # The others publish their records soon.
        until = time.monotonic() + _HISTORY_SECONDS + 10 * self._pause
        while (told := look()) is None and time.monotonic() < until:
            time.sleep(self._pause)
        return told or worker_records.order_error(step, label)

    def exchange_histories(
        self, others: Collection[int]
    ) -> dict[int, tuple[int, object, str]]:
        """Returns the first step in which each of the other workers differs.

        The records have the last steps only, and the label of the last one. So the
        workers exchange all the steps that they remember.

        Args:
            others: the numbers of the other workers.

        Returns:
            By worker, the step's number, this worker's label and the other's; nothing
            for a worker that does not differ, or has written nothing in time.
        """
        histories: dict[int, str] = {}
        until = time.monotonic() + _HISTORY_SECONDS
        with contextlib.suppress(Exception):
            text = worker_records.clean(self.history.write())
            own = f"{_PLACE}/{self._worker}"
            self._client.key_value_set(own, text, allow_overwrite=True)
            # All of them, because most of the workers are right.
            while time.monotonic() < until and len(histories) < len(others):
                for key, told in self._client.key_value_dir_get(_PLACE):
                    worker = key.rpartition("/")[2]
                    if worker.isdigit() and int(worker) in others:
                        histories[int(worker)] = told
                time.sleep(self._pause)
        found = {
            i: step_history.find_difference(self.history, told)
            for i, told in histories.items()
        }
        return {i: first for i, first in found.items() if first is not None}
