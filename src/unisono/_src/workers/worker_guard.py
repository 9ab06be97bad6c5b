"""Finds workers that are late, are gone, or do something else than the others.

Python cannot interrupt a worker that waits for another in a collective. So each worker
publishes a small record of itself: the number and kind of its last steps, a beat that
says that it lives, and in the end how it ended. A thread compares the records a few
times a second. The program raises the thread's finding at its next step, or with the
error of a collective that broke. See docs/decisions/0013. Where a launcher has started
the workers, it also tells each of them at once who has ended (docs/decisions/0023).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import sys
import threading
import time
import traceback
from collections.abc import Collection
from typing import Any, final

import jax

from unisono._src.cluster import launcher_news, launcher_progress
from unisono._src.foundation import errors
from unisono._src.workers import (
    last_words,
    step_comparison,
    step_forecast,
    worker_claims,
    worker_connections,
    worker_judgement,
    worker_records,
)
from unisono._src.workers.step_ledger import StepLedger
from unisono._src.workers.worker_records import FAILED, LEFT, RUNS

OFF, ASYNC, STRICT = "off", "async", "strict"
_PLACE = "unisono/guard/"
# Beside the records, so that it is read with them: which index two processes have.
CLAIMED_TWICE = f"{_PLACE}worker/claimed twice"
# Each of up to 32 workers compares the records every quarter of a second. More workers
# look less often, because each of them reads the records of all.
_TICK_SECONDS, _TICK_WORKERS = 0.25, 32
# A worker that others wait for is gone after so many looks without a sign of life.
_DEAD_TICKS = 14
# A result may still come so long after a peer was found to be gone, because other steps
# are in flight.
_RESULT_SECONDS = 0.5
# A wait for a result sleeps this part of the time that it has lasted, between these
# limits. So it lasts about a hundredth longer than without the guard.
_SLEEP_PART, _SLEEP_LEAST, _SLEEP_MOST = 0.02, 5e-5, 0.02
# How long the last look may take before native code aborts the process.
_ABORT_SECONDS = 1.0
# The thread takes so many looks at the newest arrays, which the program may replace and
# delete at any time.
_GLANCES = 5
# After each wait of this length a worker looks why another one does not come.
_LOOK_MILLISECONDS = 250
_NETWORK = re.compile(
    r"gloo|nccl|connection (closed|reset) by peer|timed out waiting .* for (recv|send)",
    re.IGNORECASE,
)


def check_mode(mode: str) -> str:
    """Returns `mode`; raises if it is no mode of the guard."""
    if mode not in (OFF, ASYNC, STRICT):
        raise ValueError(
            f"Expected guard to be 'async', 'strict' or 'off', received {mode!r}."
        )
    return mode


@final
class Guard:
    """Watches the other workers of the group.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
        workers: the number of all workers.
        mode: ``"async"`` or ``"strict"``.
        stall_seconds: how long a worker may be behind the others.

    Attributes:
        verdict: the error that the guard has found, if any.
        is_strict: whether all workers agree on each step before they take it.
        steps: compares the steps of the workers.
        waits_in_python: whether this worker waits for results in Python.
        connections: the connections with the other workers.
        is_claimed_twice: whether another process is the same worker.
    """

    # The program's thread, `_watch` and the reader of the launcher's news (`hear`) come
    # here. `_lock` is held while records are read from the service or published there.
    # `verdict` needs no lock: whoever sets it first wins, and it stays.
    def __init__(
        self, client: Any, worker: int, workers: int, mode: str, stall_seconds: float
    ) -> None:
        self.verdict: errors.WorkerError | None = None
        self.is_strict = mode == STRICT
        self.waits_in_python = self.is_claimed_twice = False
        self._client = client
        self._worker = worker
        self._stall = stall_seconds
        # What this worker publishes of its own end, and whom it blames.
        self._state, self._error, self._secondary = RUNS, "", False
        self._blame: errors.WorkerError | None = None
        self._beats = 0
        self._tick = _TICK_SECONDS * max(1.0, workers / _TICK_WORKERS)
        self._dead = self._tick * _DEAD_TICKS
        self._has_noticed = False
        self.steps = step_comparison.StepComparison(
            client, _PLACE, worker, self._tick / 10
        )
        self._history = self.steps.history
        # The last results, for the thread.
        self._newest: Any = None
        self._forecast = step_forecast.StepForecast()
        # The key that told the others that this worker was at the last meeting.
        self._agreed = ""
        self._last_words = last_words.LastWords(self._explain_abort)
        self._heard: dict[int, launcher_news.WorkerEnding] = {}
        self.connections = worker_connections.WorkerConnections(client, worker)
        self._found_at: float | None = None
        now = time.monotonic()
        self._looks = worker_records.Looks(now, self._dead / 2)
        others = [i for i in range(workers) if i != worker]
        self._records = {i: worker_records.WorkerRecord(i, now) for i in others}
        self._lock = threading.Lock()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="unisono guard", daemon=True
        )

    @property
    def step(self) -> int:
        """The number of the step that this worker is in."""
        return self._history.step

    @property
    def stall_seconds(self) -> float:
        """How long a worker may be behind the others."""
        return self._stall

    def start(self) -> None:
        """Starts the thread that watches."""
        self._publish()
        self._previous_hook = sys.excepthook
        sys.excepthook = self._on_exception
        self._last_words.start()
        atexit.register(self.close)
        self._thread.start()

    def enter(
        self, label: Any, is_seen: bool = False, ledger: StepLedger | None = None
    ) -> None:
        """Notes that this worker goes into a step that all must take.

        Args:
            label: an object whose `repr` differs between steps of different kinds or
                shapes.
            is_seen: whether the program sees numbers while the step runs. The workers
                agree on such a step before they take it.
            ledger: the ledger that counts the step, if one does.

        Raises:
            WorkerError: the thread has found an error meanwhile; with the strict mode,
                or if the steps before do not foretell this one, also if the workers
                differ in it. See `step_forecast`.
        """
        if self.verdict is not None:
            raise self.notice(self.verdict)
        kind = label if isinstance(label, str) else repr(label)
        self._history.add(label, kind, ledger)
        if not self._forecast.expects(kind) or self.is_strict or is_seen:
            self._agree()

    def leave(self) -> None:
        """Takes back an `enter`, because the step was not taken."""
        self._history.take_back()
        self._forecast.take_back()

    def check_marks(self, wait: bool = False) -> None:
        """Raises if the workers have differed in a step that is done.

        Args:
            wait: whether to wait for the steps that are not done yet.

        Raises:
            WorkerMismatchError: they have.
        """
        if wait:
            for array in self.steps.find_unfinished():
                self.wait_for_result(array)
                # A step that has failed says so where its results are read.
                with contextlib.suppress(RuntimeError, ValueError):
                    array.block_until_ready()
        found = self.steps.find_difference(self._look_again)
        if found is not None:
            raise self.notice(found)

    def _look_again(self) -> errors.WorkerError | None:
        """Returns the error that the records show now, if any."""
        with contextlib.suppress(RuntimeError):
            self._exchange_records()
        return self.verdict

    def watch(self, values: Any) -> None:
        """Notes the newest results of a step; the thread finds out if it has failed.

        Args:
            values: a list of cells with an `array` each, or a tree of arrays.
        """
        self._newest = values

    def wait_for_result(self, array: Any) -> None:
        """Waits until an array is computed, if this worker waits in Python.

        Raises:
            WorkerError: a worker is gone, and the array does not come.
        """
        found = self.verdict
        if isinstance(found, errors.WorkerMismatchError) and not self._has_noticed:
            # The program learns it as early as it can. Afterwards it may read what was
            # computed before: the ledger tells which steps were right.
            raise self.notice(found)
        if not self.waits_in_python or array.is_ready():
            return
        # JAX would wait in native code, which Python cannot interrupt. A thread that
        # did so for this one could come back while Python ends, which aborts.
        since, gone_since = time.monotonic(), float("inf")
        while not array.is_ready():
            now = time.monotonic()
            if self.verdict is not None:
                gone_since = min(gone_since, now)
                if now > gone_since + _RESULT_SECONDS:
                    raise self.notice(self.verdict)
            pause = _SLEEP_PART * (now - since)
            time.sleep(min(max(pause, _SLEEP_LEAST), _SLEEP_MOST))

    def hear(self, worker: int, news: launcher_news.Told) -> None:
        """Notes what the launcher says of a worker's process: it ended, or stopped."""
        if worker not in self._records:
            return
        if isinstance(news, launcher_news.WorkerPause):
            self._records[worker].note_pause(news, time.monotonic())
            return
        self._heard[worker] = news
        self._wake.set()

    def meet(self, seconds: float) -> None:
        """Waits until every worker has given a sign of life.

        Raises:
            WorkerError: one gives none.
        """
        until = time.monotonic() + seconds
        while late := [i for i, r in self._records.items() if r.beat < 0]:
            with contextlib.suppress(RuntimeError):
                self._exchange_records()
            found = self.explain_absence(late[0])
            if found is None and time.monotonic() > until:
                found = worker_records.lost_error(
                    self._records[late[0]], time.monotonic()
                )
            if found is not None:
                raise self.notice(found)
            time.sleep(self._tick / 10)

    def explain_absence(self, worker: int | None = None) -> errors.WorkerError | None:
        """Returns why a worker does not do what this one waits for.

        Args:
            worker: the worker; None if all are waited for.

        Returns:
            The error; None if there is no reason yet to give the worker up.
        """
        if self.verdict is not None:
            return self.verdict
        now = self._looks.limit(time.monotonic())
        chosen = self._records if worker is None else [worker]
        found = self._judge(now, self._stall, chosen)
        for i in chosen:
            r = self._records[i]
            if found is None and (r.state == LEFT or r.ending is not None):
                return worker_records.left_error(r, self.step)
        return found

    def notice(self, error: errors.WorkerError) -> errors.WorkerError:
        """Returns an error that this worker is about to raise, and tells of it.

        The other workers will raise the same one, and the launcher learns that this
        worker has come back from whatever it did.
        """
        self.verdict = self.verdict or error
        if not self._has_noticed:
            self._has_noticed = True
            launcher_progress.tell_state(launcher_progress.NOTICED)
            with contextlib.suppress(Exception), self._lock:
                self._publish()
        return error

    def _agree(self) -> None:
        """Waits until all workers are about to take the step that this one is in.

        In the first step the workers connect to each other, too; JAX would wait long
        for one that is gone.
        """
        # The mark tells the step and all before it, so workers that differ do not meet
        # here, and their records show how they differ.
        place = f"{_PLACE}step/{self.step}/{self._history.mark}/"
        own = f"{place}{self._worker}"
        self._client.key_value_set(own, "here", allow_overwrite=True)
        until = time.monotonic() + self._stall
        for i in self._records:
            self._wait_for(f"{place}{i}", i, until)
        # All have come to this place, so all have left the last one, unless it is the
        # same: this worker may have taken the step back.
        if self._agreed not in ("", own):
            with contextlib.suppress(Exception):
                self._client.key_value_delete(self._agreed)
        self._agreed = own

    def _wait_for(self, key: str, worker: int, until: float) -> None:
        """Waits for a worker's key; raises if the worker is lost or does not come."""
        # The waits are short, so that a verdict of the thread is raised soon.
        while True:
            try:
                self._client.blocking_key_value_get(key, _LOOK_MILLISECONDS)
                return
            except Exception:
                with contextlib.suppress(Exception):
                    self._exchange_records()
                now = time.monotonic()
                found = self.explain_absence(worker)
                if found is None and now > until:
                    found = self._standpoint().stalled(self._records[worker], now)
                if found is not None:
                    raise self.notice(found) from None

    # Watching.

    def _watch(self) -> None:
        """Compares the records again and again, in a thread, until `close`."""
        while True:
            self._wake.wait(self._tick)
            self._wake.clear()
            if self._stop.is_set():
                return
            try:
                self._exchange_records()
                self._look_at_newest()
            except Exception:
                # The coordination service cannot be reached. If it stays so, the next
                # collective fails and says so; this thread tries again. What the
                # launcher has told counts without the service.
                self._note_endings(dict(self._heard))
                if self.verdict is None:
                    self.verdict = self._standpoint().find_ended(self._records.values())
            with contextlib.suppress(Exception):
                self._free_waiting()

    def _free_waiting(self) -> None:
        """Breaks the collectives in which this worker waits, after a verdict.

        It may wait for a worker that lives, but has found the same error and raised it.
        """
        now = time.monotonic()
        if self.verdict is not None:
            self._found_at = self._found_at or now
            if now > self._found_at + _RESULT_SECONDS:
                self.connections.shut()

    def _exchange_records(self) -> None:
        """Publishes this worker's record, reads the others', and judges them."""
        # `explain` and `fail` publish from the main thread at the same time.
        with self._lock:
            self._publish()
            # What a worker published before its end says more than the launcher knows.
            # So the records are read after the launcher was heard.
            heard, now = dict(self._heard), time.monotonic()
            self._looks.note(now, self._records.values())
            for key, text in self._client.key_value_dir_get(_PLACE + "worker"):
                worker = key.rpartition("/")[2]
                if worker.isdigit() and int(worker) in self._records:
                    self._records[int(worker)].read(text, now)
                elif key == CLAIMED_TWICE:
                    found = worker_claims.read(text)
                    self.verdict = self.verdict or found
                    self.is_claimed_twice |= found.worker == self._worker
            self._note_endings(heard)
        if self.verdict is None:
            # A worker may be too busy for a sign of life, such as while it compiles. So
            # silence counts only after the time that a worker may be behind.
            self.verdict = self._judge(now, self._stall)

    def _note_endings(self, heard: dict[int, launcher_news.WorkerEnding]) -> None:
        """Notes in the records which workers have ended, as the launcher says."""
        for worker, ending in heard.items():
            self._records[worker].ending = ending

    def _look_at_newest(self) -> None:
        """Notices that a step has failed, for a program that reads no results.

        An array that depends on a failed one has failed, too, so the newest ones tell
        about all steps before.
        """
        self.verdict = self.verdict or self.steps.find_difference(self._look_again)
        for _ in range(_GLANCES):
            if self.verdict is not None:
                return
            try:
                for x in _arrays_of(self._newest):
                    if x.is_ready():
                        x.block_until_ready()
                return
            except Exception as error:
                # The next step may have taken the array over meanwhile.
                found = self._find_reason(error)
                if isinstance(found, errors.WorkerError):
                    self.verdict = self.verdict or found
                    return

    def _publish(self) -> None:
        """Writes this worker's record where the others read it."""
        # The count changes each time, so that the record is a sign of life.
        self._beats += 1
        recent = self._history.last(worker_records.TOLD)
        label = worker_records.shorten(recent[-1][2]) if recent else ""
        text = json.dumps(
            {
                "beat": self._beats,
                "step": recent[-1][0] if recent else 0,
                "state": self._state,
                "label": label,
                "error": self._error,
                "secondary": self._secondary,
                "blame": worker_records.write_blame(self._blame or self.verdict),
                "recent": [(n, mark) for n, mark, _ in recent],
            },
            # A character takes one character then, so that the record keeps its limit.
            ensure_ascii=False,
        )
        place = f"{_PLACE}worker/{self._worker}"
        self._client.key_value_set(
            place, worker_records.clean(text), allow_overwrite=True
        )

    def _judge(
        self, now: float, silence: float, waited: Collection[int] = ()
    ) -> errors.WorkerError | None:
        """Returns the error that the records show, if any; see `Standpoint.judge`."""
        standpoint = self._standpoint()
        found = standpoint.judge(list(self._records.values()), now, silence, waited)
        if isinstance(found, errors.WorkerMismatchError) and self.verdict is None:
            differing = self.steps.exchange_histories(self._records)
            return standpoint.name_difference(self._records, differing) or found
        return found

    def _standpoint(self) -> worker_judgement.Standpoint:
        """Returns the state of this worker, by which it judges the others."""
        return worker_judgement.Standpoint(
            self._worker,
            self.step,
            self._history.find,
            self._stall,
            self._dead,
        )

    def compare(self) -> None:
        """Compares what all workers have done; each must have called `publish` before.

        Raises:
            WorkerMismatchError: they have not done the same.
            WorkerError: another error was found meanwhile.
        """
        self.check_marks(wait=True)
        found = self._look_again()
        if found is not None:
            raise self.notice(found)

    def publish(self) -> None:
        """Publishes the record of this worker now."""
        with contextlib.suppress(RuntimeError), self._lock:
            self._publish()

    # Explaining and ending.

    def explain(self, error: BaseException) -> BaseException:
        """Returns the reason why a collective broke, or `error` if that is unknown."""
        found = self._find_reason(error)
        if found is not error and isinstance(found, errors.WorkerError):
            return self.notice(found)
        return error

    def _find_reason(self, error: BaseException) -> BaseException:
        """Returns why a collective broke; any other error as it is."""
        if isinstance(error, errors.WorkerError) or not _NETWORK.search(str(error)):
            return error
        # Here this worker does wait for the others, so a short silence is enough. A
        # worker that has just died needs this long to be found silent.
        until = time.monotonic() + self._dead + 2 * self._tick
        while (found := self.explain_absence()) is None and time.monotonic() < until:
            with contextlib.suppress(Exception):
                self._exchange_records()
            time.sleep(self._tick / 2)
        return found or worker_records.unexplained_error(error, self.step, self._stall)

    def _on_exception(self, kind: Any, value: Any, tb: Any) -> None:
        """Tells the others about an exception that nobody caught."""
        self.fail(value)
        self._previous_hook(kind, value, tb)

    def fail(self, error: BaseException) -> None:
        """Tells the others that an exception ends this worker."""
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        self._state = FAILED
        self._blame = worker_records.find_worker_error(error)
        self._secondary = self._blame is not None
        self._error = worker_records.clean(
            "".join(lines)[-worker_records.LARGEST_TEXT :]
        )
        launcher_progress.tell_state(launcher_progress.NOTICED)
        with contextlib.suppress(Exception), self._lock:
            self._publish()

    def _explain_abort(self) -> str:
        """Returns why native code aborts this process, as far as this worker knows."""
        reached: list[bool] = []

        def look() -> None:
            # The others publish what they do a few times a second.
            while self.verdict is None and time.monotonic() < until:
                with contextlib.suppress(Exception):
                    self._exchange_records()
                    reached.append(True)
                time.sleep(self._tick / 5)

        until = time.monotonic() + _ABORT_SECONDS
        # In a thread, because the aborted one may hold a lock that this needs.
        looks = threading.Thread(target=look, daemon=True)
        looks.start()
        looks.join(_ABORT_SECONDS)
        last = self._history.last(1)
        label = worker_records.shorten(last[0][2]) if last else "before the first"
        if self.verdict is not None:
            why = str(self.verdict)
        elif reached:
            why = "no worker is known to have failed."
        else:
            why = (
                "the coordination service cannot be reached. It is a process that the "
                "first worker starts; XLA ends all workers without it."
            )
        return (
            f"XLA or Gloo aborts worker {self._worker}, which is in step {self.step} "
            f"({label}): {why}"
        )

    def abandon(self) -> None:
        """Ends watching in a forked child, which has none of the threads."""
        self._stop.set()
        self._last_words.stop()
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook

    def close(self) -> None:
        """Stops watching, and tells the others that this worker has left."""
        if self._stop.is_set():
            return
        # The thread first, so that it does not publish after the last record.
        self._stop.set()
        self._wake.set()
        self._thread.join(5.0)
        # A handler in Python cannot run any more when Python ends.
        self._last_words.stop()
        has_worked = self._state == RUNS
        if has_worked:
            self._state = LEFT
        with contextlib.suppress(Exception), self._lock:
            self._publish()
        # A worker that raises an error about others need not look for a second one.
        if has_worked and not self._has_noticed:
            self._check_the_end()

    def _compare_counts(self) -> errors.WorkerError | None:
        """Returns the error about a worker that has left after another step."""
        left = [r for r in self._records.values() if r.state == LEFT]
        other = next((r for r in left if r.step != self.step), None)
        if other is None:
            return None
        return worker_records.count_error(other, self._worker, self.step)

    def _check_the_end(self) -> None:
        """Ends this process with a failure if the workers have not done the same.

        The last worker that leaves sees the records of all. An exception would not
        change the status with which Python ends.
        """
        with contextlib.suppress(Exception):
            self._exchange_records()
        found = self.verdict
        if not isinstance(found, errors.WorkerMismatchError):
            found = self._compare_counts()
        if found is not None:
            self.fail(found)
            traceback.print_exception(found)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)


def _arrays_of(values: Any) -> list[Any]:
    """Returns the arrays of cells, or of a tree, that no other step has taken over."""
    if isinstance(values, list) and values and hasattr(values[0], "array"):
        values = [cell.array for cell in values]
    arrays = [x for x in jax.tree.leaves(values) if isinstance(x, jax.Array)]
    return [x for x in arrays if not x.is_deleted()]
