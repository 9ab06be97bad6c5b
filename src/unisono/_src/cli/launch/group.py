"""Runs a group of workers from their start to the end of the last one."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, final

from unisono._src.cli.launch import output, process_cleanup, worker_process
from unisono._src.cluster import launcher_pipes, paused_processes

# Seconds between two looks at the workers.
_TICK = 0.05
# A traceback is not a worker's last if the worker still runs so long after it.
_HOLD_SECONDS = 1.0
# How long the system may take to end a process after SIGKILL.
_KILL_SECONDS = 10.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OTHERS = (signal.SIGUSR1, signal.SIGUSR2)
# The exit status of the command `timeout` in the same case.
TIMED_OUT = 124


class _EndStage(enum.Enum):
    """The stages of the end of a group, in the order in which they follow."""

    RUNNING = 0
    NOTICING = 1  # One worker failed; the others have time to notice it and end.
    STOPPING = 2  # All workers were asked to end.
    KILLING = 3


class FailureCause(enum.IntEnum):
    """The reason why a worker failed; the lowest one is reported first."""

    OWN = 0  # An error of its own.
    DYING = 1  # It raised an exception, did not end, and was stopped.
    PEER = 2  # Another worker's failure.
    STOPPED = 3  # The launcher or the user stopped it.


@final
@dataclasses.dataclass(frozen=True)
class WorkerFailure:
    """The failure of a worker.

    Attributes:
        worker: the worker.
        code: its exit status, as a shell shows it: 128 + N for signal N.
        since: the time at which it failed.
        traceback: the lines of its last traceback, if it ended with one.
        cause: the reason why it failed.
    """

    worker: worker_process.WorkerProcess
    code: int
    since: float
    traceback: tuple[str, ...]
    cause: FailureCause

    @property
    def was_killed(self) -> bool:
        """Whether another program killed the worker, such as the system for memory."""
        return self.cause is FailureCause.OWN and self.worker.code == -signal.SIGKILL


@final
@dataclasses.dataclass(frozen=True)
class GroupOutcome:
    """The outcome of a group of workers.

    Attributes:
        failures: the failures, with the one that caused the others first.
        signal: the signal to the launcher that ended the group, if there was one.
        timed_out: whether the group took too long and was stopped.
    """

    failures: tuple[WorkerFailure, ...]
    signal: int | None
    timed_out: bool

    @property
    def code(self) -> int:
        """The exit status of the launcher: that of the worker that failed first."""
        if self.timed_out:
            return TIMED_OUT
        return self.failures[0].code if self.failures else 0


@final
class Signals:
    """Collects the signals to this process, to hand them to workers.

    Attributes:
        has_stopped: whether one of them asked to stop.
    """

    def __init__(self) -> None:
        self._pending: collections.deque[int] = collections.deque()
        self.has_stopped = False

    def note(self, number: int, frame: FrameType | None) -> None:
        """Stores a signal; this is a signal handler."""
        # A handler may run between any two operations; an append to a deque is safe.
        self._pending.append(number)
        self.has_stopped |= number in _STOPPING

    def take(self) -> int | None:
        """Returns the next signal, or None if there is none."""
        return self._pending.popleft() if self._pending else None


@contextlib.contextmanager
def catch_signals(only_stopping: bool = False) -> Iterator[Signals]:
    """Catches signals, to hand them to workers, until the context ends.

    Only the main thread of a process can catch signals; another one catches none. A
    signal that is ignored, such as SIGHUP under ``nohup``, stays ignored.

    Args:
        only_stopping: whether to leave SIGUSR1 and SIGUSR2 to the program.
    """
    signals = Signals()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in _STOPPING if only_stopping else (*_STOPPING, *_OTHERS):
            if signal.getsignal(each) is not signal.SIG_IGN:
                before[each] = signal.signal(each, signals.note)
    try:
        yield signals
    finally:
        for number, handler in before.items():
            if signals.has_stopped and not only_stopping:
                # The command is about to end with its own exit code, which another
                # signal shall not replace.
                handler = signal.SIG_IGN
            # Python gives None for a handler that was not set from Python.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@final
# One thread does all: it reads, notices ends, hands on signals and escalates, in turns
# of a twentieth of a second. Every wait has a bound, so that a worker which does not
# end, or a reader that does not read, cannot hold the launcher (decision 0010).
class WorkerGroup:
    """Runs a command for each worker to its end.

    No worker outlives the group, and no process that a worker has started.

    Args:
        commands: one command per worker.
        out: the destination of their output.
        signals: the signals to this process.
        grace_seconds: after a failure, how long the others may take to end. For one
            that compiles or computes, it counts from its return.
        stop_seconds: after a signal, how long a worker may take to end; after a
            failure, how long it may take to return.
        timeout_seconds: how long the whole group may take; None for any time.
        stopped_seconds: how long a worker may be stopped, as by SIGSTOP, before it is
            killed; 0 for any time.
    """

    def __init__(
        self,
        commands: Sequence[worker_process.Command],
        out: output.WorkerOutput,
        signals: Signals,
        grace_seconds: float = 15.0,
        stop_seconds: float = 30.0,
        timeout_seconds: float | None = None,
        stopped_seconds: float = paused_processes.SECONDS,
    ) -> None:
        self._commands = commands
        self._out = out
        self._signals = signals
        self._grace = grace_seconds
        self._stop = stop_seconds
        self._limit = timeout_seconds
        self._longest_pause = stopped_seconds
        self._workers: list[worker_process.WorkerProcess] = []
        self._stage = _EndStage.RUNNING
        self._until = self._failed_at = float("inf")
        self._signal: int | None = None
        self._timed_out = False

    def run(self) -> GroupOutcome:
        """Starts the workers, waits for their end, and returns the outcome."""
        self._started = time.monotonic()
        with selectors.DefaultSelector() as selector, _CleanupProcess() as cleanup:
            self._selector = selector
            try:
                for command in self._commands:
                    mark = cleanup.add_mark()
                    worker = worker_process.WorkerProcess(command, selector, mark)
                    self._workers.append(worker)
                while self._live_workers():
                    self._run_once()
            finally:
                self._clear()
        return GroupOutcome(tuple(self._failures()), self._signal, self._timed_out)

    def _live_workers(self) -> list[worker_process.WorkerProcess]:
        return [w for w in self._workers if w.code is None]

    def _run_once(self) -> None:
        """Reads the workers' output, notices their ends, and hands on signals."""
        # With no pipe left, `select` would not wait.
        if self._selector.get_map():
            for key, _ in self._selector.select(_TICK):
                worker, stream = key.data
                self._write(worker.read(stream))
        else:
            time.sleep(_TICK)
        for worker in self._live_workers():
            self._write(worker.poll())
            # Its end is no failure of its own if it was asked to end before.
            worker.was_stopped |= self._stage.value >= _EndStage.STOPPING.value
            self._release(worker)
            if worker.code is None and self._longest_pause > 0:
                self._watch_pause(worker)
            # First the others are told, whatever the code; then
            # a failure has consequences.
            if worker.code is not None:
                self._tell_others(worker)
            if worker.code:
                self._notice(worker)
        while (number := self._signals.take()) is not None:
            self._forward(number)
        self._end_servers()
        self._escalate()
        self._out.show_progress(self._workers)

    def _end_servers(self) -> None:
        """Tells those to end that only serve the others, when these have ended."""
        live = self._live_workers()
        is_early = self._stage.value < _EndStage.STOPPING.value
        if live and is_early and all(w.command.serves for w in live):
            for worker in live:
                worker.was_stopped = True
                worker.send(signal.SIGTERM)
            self._enter(_EndStage.STOPPING, self._stop)

    def _write(self, lines: list[worker_process.Line]) -> None:
        """Shows lines, but holds back tracebacks, to show the first failure's first."""
        for line in lines:
            self._out.record(line)
            if line.stream == "err" and line.worker.is_in_new_traceback:
                line.worker.held.append(line)
            else:
                self._out.show_line(line)

    def _release(self, worker: worker_process.WorkerProcess) -> None:
        """Shows the traceback that was held back, if the worker did not end with it."""
        since = worker.traceback.since
        is_old = since is None or time.monotonic() > since + _HOLD_SECONDS
        if worker.held and (worker.code == 0 or (worker.code is None and is_old)):
            for line in worker.release():
                self._out.show_line(line)

    def _tell_others(self, worker: worker_process.WorkerProcess) -> None:
        """Tells the other workers that one has ended; each decides what to do."""
        ending = launcher_pipes.WorkerEnding(
            *(worker.command.job, worker.command.index, describe_end(worker)),
            "\n".join(worker.traceback.lines) if worker.code else "",
        )
        for other in self._live_workers():
            other.tell(ending)

    def _watch_pause(self, worker: worker_process.WorkerProcess) -> None:
        """Tells the others that a worker is stopped or goes on; kills it in the end."""
        if worker.pause.look(time.monotonic()):
            self._out.note(
                f"{worker.name} (process {worker.pid}) is stopped, as by SIGSTOP; it "
                f"is killed if it does not go on in {self._longest_pause:g} s."
                if worker.pause.is_paused
                else f"{worker.name} goes on."
            )
            message = launcher_pipes.WorkerPause(
                worker.command.job, worker.command.index, worker.pause.is_paused
            )
            for other in self._live_workers():
                other.tell(message)
        if worker.pause.seconds >= self._longest_pause:
            worker.kill()

    def _notice(self, worker: worker_process.WorkerProcess) -> None:
        """Gives the other workers time to notice a failure and save their state."""
        others = self._live_workers()
        if self._is_tolerated(worker):
            if not worker.was_stopped:
                how = describe_end(worker)
                self._out.note(f"{worker.name} ended with {how}; the others go on.")
            return
        if self._stage is _EndStage.RUNNING and others:
            self._failed_at = time.monotonic()
            self._enter(_EndStage.NOTICING, self._grace)
            self._out.note(
                f"{worker.name} ended with {describe_end(worker)}; waiting up to "
                f"{self._grace:g} s for {join_names(others)}."
            )

    def _is_tolerated(self, worker: worker_process.WorkerProcess) -> bool:
        """Whether the others do not fail with a worker that has ended.

        One that serves may be killed, as a machine may be lost; the program that it
        serves knows what to do. An error of its own, such as in its configuration, is a
        failure. So is the loss of the last worker: the program would wait for one.
        """
        if not worker.command.serves or worker.was_stopped:
            return worker.command.serves
        alike = [w for w in self._workers if w.command.job == worker.command.job]
        is_any_left = any(w.code is None or w.was_stopped for w in alike)
        is_worker = worker.command.job == "worker"
        served = [w for w in self._workers if not w.command.serves]
        is_needed = is_worker and not is_any_left and any(w.code != 0 for w in served)
        # Negative: a signal ended it, as `subprocess` tells.
        return (worker.code or 0) < 0 and not is_needed

    def _forward(self, number: int) -> None:
        """Sends a signal to the workers; kills them at the second signal to stop."""
        again = self._signal is not None and number in _STOPPING
        for worker in self._live_workers():
            worker.kill() if again else worker.send(number)
        name = signal.Signals(number).name
        if again:
            killed = join_names(self._live_workers())
            self._out.note(f"{name} once more: {killed} killed.")
        elif number in _STOPPING:
            self._signal = number
            self._out.note(
                f"{name} handed to {join_names(self._live_workers())}; waiting up to "
                f"{self._stop:g} s."
            )
            self._enter(_EndStage.STOPPING, self._stop)

    def _escalate(self) -> None:
        """Goes on to the next stage of the end, where the time of this one is over."""
        now, late = time.monotonic(), self._live_workers()
        if not late:
            return
        if self._limit is not None and now > self._started + self._limit:
            self._limit, self._timed_out = None, True
            self._out.note(f"the time is over; {join_names(late)} still ran.")
            # As if a failure had been noticed, and the time for it were over.
            self._until, self._stage = now, _EndStage.NOTICING
        if not self._is_over(now):
            return
        if self._stage is _EndStage.NOTICING:
            for worker in late:
                worker.send(signal.SIGTERM)
            self._enter(_EndStage.STOPPING, self._stop)
        elif self._stage is _EndStage.STOPPING:
            self._out.note(f"{join_names(late)} did not end in time and is killed.")
            for worker in late:
                worker.kill()
            self._enter(_EndStage.KILLING, _KILL_SECONDS)
        else:
            pids = ", ".join(str(w.pid) for w in late)
            raise RuntimeError(
                f"Process(es) {pids} ({join_names(late)}) did not end "
                f"{_KILL_SECONDS:g} s after SIGKILL; the system holds them, such as "
                "for a network drive."
            )

    def _is_over(self, now: float) -> bool:
        """Whether the time of the present stage is over."""
        if self._stage is _EndStage.NOTICING and not self._timed_out:
            return all(now >= self._find_deadline(w) for w in self._live_workers())
        return now >= self._until

    def _find_deadline(self, worker: worker_process.WorkerProcess) -> float:
        """Returns the time until which a worker may notice a failure and end."""
        if worker.noticed is not None:
            return max(self._failed_at, worker.noticed) + self._grace
        # Python cannot interrupt a worker that compiles or computes, so one that will
        # notice the failure when it returns gets the time to return.
        wait = max(self._grace, self._stop) if worker.listens else self._grace
        return self._failed_at + wait

    def _enter(self, stage: _EndStage, seconds: float) -> None:
        self._stage, self._until = stage, time.monotonic() + seconds

    def _clear(self) -> None:
        """Kills the workers that still run, whatever has happened."""
        until = time.monotonic() + _KILL_SECONDS
        for worker in self._live_workers():
            worker.was_stopped = True
            worker.kill()
        while self._live_workers() and time.monotonic() < until:
            for worker in self._live_workers():
                # Perhaps an error in writing output is the reason that we are here.
                with contextlib.suppress(OSError):
                    self._write(worker.poll())
            time.sleep(0.005)

    def _failures(self) -> list[WorkerFailure]:
        ended = [w for w in self._workers if w.code and not self._is_tolerated(w)]
        # The one with the lowest cause, and of these the
        # earliest, is the first failure.
        found = [_make_failure(w) for w in ended]
        return sorted(found, key=lambda f: (f.cause, f.since))


@final
class _CleanupProcess:
    """A process that ends the workers' leftovers if this one is killed.

    The system ends the workers themselves then, but not what they have started.
    """

    def __enter__(self) -> _CleanupProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", process_cleanup.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A signal to the launcher's group, such as Ctrl-C, does not reach it; and a
            # launcher in which this one runs as a worker does not end it.
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if k != process_cleanup.MARK},
            text=True,
        )
        return self

    def add_mark(self) -> str:
        """Returns a mark for a worker; the processes that have it will be ended."""
        mark = os.urandom(12).hex()
        self._write(mark)
        return mark

    def __exit__(self, *exc: object) -> None:
        self._write("done")
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        # Somebody may have killed it; the launcher cleans up without it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def _make_failure(worker: worker_process.WorkerProcess) -> WorkerFailure:
    assert worker.code is not None and worker.ended is not None
    cause = _find_cause(worker)
    # A process may take long to end after its error, so the traceback tells the time
    # better. JAX aborts a process that lost its peers, even one that raised first.
    raised = (
        worker.code > 0 or worker.code == -signal.SIGABRT or cause is FailureCause.DYING
    )
    since = worker.traceback.since if raised else None
    return WorkerFailure(
        worker,
        worker.code if worker.code > 0 else 128 - worker.code,
        worker.ended if since is None else since,
        worker.traceback.lines,
        cause,
    )


def _find_cause(worker: worker_process.WorkerProcess) -> FailureCause:
    """Returns the cause of a failure, by the worker's traceback and its end."""
    since = worker.traceback.since
    if since is not None and worker.traceback.is_about_a_peer:
        return FailureCause.PEER
    # One that did not run could not end when it was told to.
    if not worker.was_stopped or worker.pause.is_paused:
        return FailureCause.OWN
    # A worker that wrote output after its traceback had survived the error.
    is_last = since is not None and worker.last_out < since
    return FailureCause.DYING if is_last else FailureCause.STOPPED


def describe_end(worker: worker_process.WorkerProcess) -> str:
    """Returns the end of a worker in words."""
    told = describe_exit(worker.code)
    if worker.pause.is_paused:
        told += f" after it had been stopped for {worker.pause.seconds:.0f} s"
    return told


def describe_exit(code: int | None) -> str:
    """Returns an exit status in words.

    >>> describe_exit(1), describe_exit(-9)
    ('exit code 1', 'signal SIGKILL')
    """
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def join_names(workers: Sequence[worker_process.WorkerProcess]) -> str:
    """Returns the names of workers, separated by commas."""
    return ", ".join(w.name for w in workers) or "no worker"
