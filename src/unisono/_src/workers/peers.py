"""The other workers, as this one sees them: their records, and what these show."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Callable, Collection
from typing import final

from unisono._src.cluster import launcher_pipes
from unisono._src.foundation import errors
from unisono._src.workers import worker_records
from unisono._src.workers.coordination_client import (
    CLAIMED_TWICE,
    RECORDS,
    CoordinationClient,
    claimed_twice_error,
)
from unisono._src.workers.failure_detector import FailureDetector
from unisono._src.workers.step_comparison import StepComparison
from unisono._src.workers.worker_records import LEFT, OwnRecord

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
