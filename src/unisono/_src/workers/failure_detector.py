"""Judges by the records of other workers what has gone wrong, and who began it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import final

from unisono._src.foundation import errors
from unisono._src.workers import worker_records
from unisono._src.workers.worker_records import FAILED, LEFT, RUNS, WorkerRecord


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
