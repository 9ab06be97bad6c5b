"""A group of workers from their start to the end of the last one."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import selectors
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, final

from unisono._src.cli.launch import output, worker_process

_TICK = 0.05
# A worker that goes on so long after a traceback did not end with it.
_HOLD_SECONDS = 1.0
_KILL_SECONDS = 10.0
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OTHERS = (signal.SIGUSR1, signal.SIGUSR2)
TIMED_OUT = 124


class _Stage(enum.Enum):
    """How far the end of a group has come; the order is that of escalation."""

    RUNNING = 0
    NOTICING = 1  # One failed; the others may find out by themselves.
    STOPPING = 2  # All were asked to end.
    KILLING = 3


class Cause(enum.IntEnum):
    """Why a worker ended badly; the first kind that there is comes first."""

    OWN = 0  # By itself.
    DYING = 1  # It had raised an exception, and was stopped while it did not end.
    PEER = 2  # Because another worker failed.
    STOPPED = 3  # Because it was told to.


@final
@dataclasses.dataclass(frozen=True)
class Failure:
    """A worker that ended badly.

    Attributes:
        worker: the worker.
        code: its exit status, as a shell shows it: 128 + N for signal N.
        since: when it failed.
        traceback: the lines of the traceback that it ended with, if any.
        cause: why it ended so.
    """

    worker: worker_process.Worker
    code: int
    since: float
    traceback: tuple[str, ...]
    cause: Cause

    @property
    def was_killed(self) -> bool:
        """Whether somebody else killed the worker, such as the system for memory."""
        return self.cause is Cause.OWN and self.worker.code == -signal.SIGKILL


@final
@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a group ended.

    Attributes:
        failures: the first one first.
        signal: the signal that ended the group, if the launcher was sent one.
        timed_out: whether the group was ended for taking too long.
    """

    failures: tuple[Failure, ...]
    signal: int | None
    timed_out: bool

    @property
    def code(self) -> int:
        """The exit status for the launcher: the first failing worker's."""
        if self.timed_out:
            return TIMED_OUT
        return self.failures[0].code if self.failures else 0


@final
class Signals:
    """Collects the signals that this process is sent, to hand them to workers."""

    def __init__(self) -> None:
        self._pending: collections.deque[int] = collections.deque()

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take note of a signal; a handler."""
        self._pending.append(number)

    def take(self) -> int | None:
        """The next signal that came, if any."""
        return self._pending.popleft() if self._pending else None


@contextlib.contextmanager
def forwarded_signals(only_stopping: bool = False) -> Iterator[Signals]:
    """Catch signals for workers; only the main thread of a process can.

    What is ignored stays ignored, such as SIGHUP under ``nohup``.

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
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@final
class Group:
    """Runs commands to their end; none of them, nor what they start, outlives it.

    Args:
        commands: one per worker.
        out: where their output goes.
        signals: what this process is sent.
        grace_seconds: after a failure, how long the others may take to end.
        stop_seconds: after a signal, how long a worker may take to end.
        timeout_seconds: how long all of it may take; None for as long as it does.
    """

    def __init__(
        self,
        commands: Sequence[worker_process.Command],
        out: output.Output,
        signals: Signals,
        grace_seconds: float = 15.0,
        stop_seconds: float = 30.0,
        timeout_seconds: float | None = None,
    ) -> None:
        self._commands = commands
        self._out = out
        self._signals = signals
        self._grace = grace_seconds
        self._stop = stop_seconds
        self._limit = timeout_seconds
        self._workers: list[worker_process.Worker] = []
        self._stage = _Stage.RUNNING
        self._until = float("inf")
        self._signal: int | None = None
        self._timed_out = False

    def run(self) -> Outcome:
        """Start the workers and see them through to the end."""
        self._started = time.monotonic()
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            try:
                for command in self._commands:
                    self._workers.append(worker_process.Worker(command, selector))
                while self._alive():
                    self._turn()
            finally:
                self._clear()
        return Outcome(tuple(self._failures()), self._signal, self._timed_out)

    def _alive(self) -> list[worker_process.Worker]:
        return [w for w in self._workers if w.code is None]

    def _turn(self) -> None:
        if self._selector.get_map():
            for key, _ in self._selector.select(_TICK):
                worker, stream = key.data
                self._write(worker.read(stream))
        else:
            time.sleep(_TICK)
        for worker in self._alive():
            self._write(worker.poll())
            worker.was_stopped |= self._stage.value >= _Stage.STOPPING.value
            self._release(worker)
            if worker.code:
                self._notice(worker)
        while (number := self._signals.take()) is not None:
            self._forward(number)
        self._escalate()
        self._out.progress(self._workers)

    def _write(self, lines: list[worker_process.Line]) -> None:
        """Show lines, but hold back a traceback: the first failure's is shown first."""
        for line in lines:
            self._out.record(line)
            if line.stream == "err" and line.worker.is_in_new_traceback:
                line.worker.held.append(line)
            else:
                self._out.line(line)

    def _release(self, worker: worker_process.Worker) -> None:
        """Show a traceback with which the worker did not fail."""
        since = worker.traceback.since
        is_old = since is None or time.monotonic() > since + _HOLD_SECONDS
        if worker.held and (worker.code == 0 or (worker.code is None and is_old)):
            for line in worker.release():
                self._out.line(line)

    def _notice(self, worker: worker_process.Worker) -> None:
        """A worker failed: give the others time to see it and save what they have."""
        others = self._alive()
        if self._stage is _Stage.RUNNING and others:
            self._enter(_Stage.NOTICING, self._grace)
            self._out.note(
                f"{worker.name} ended with {described(worker.code)}; waiting up to "
                f"{self._grace:g} s for {names(others)}."
            )

    def _forward(self, number: int) -> None:
        again = self._signal is not None and number in _STOPPING
        for worker in self._alive():
            worker.kill() if again else worker.send(number)
        name = signal.Signals(number).name
        if again:
            self._out.note(f"{name} once more: {names(self._alive())} killed.")
        elif number in _STOPPING:
            self._signal = number
            self._out.note(
                f"{name} handed to {names(self._alive())}; waiting up to "
                f"{self._stop:g} s."
            )
            self._enter(_Stage.STOPPING, self._stop)

    def _escalate(self) -> None:
        now, late = time.monotonic(), self._alive()
        if not late:
            return
        if self._limit is not None and now > self._started + self._limit:
            self._limit, self._timed_out = None, True
            self._out.note(f"the time is over; {names(late)} still ran.")
            self._until, self._stage = now, _Stage.NOTICING
        if now < self._until:
            return
        if self._stage is _Stage.NOTICING:
            for worker in late:
                worker.send(signal.SIGTERM)
            self._enter(_Stage.STOPPING, self._stop)
        elif self._stage is _Stage.STOPPING:
            self._out.note(f"{names(late)} did not end in time and is killed.")
            for worker in late:
                worker.kill()
            self._enter(_Stage.KILLING, _KILL_SECONDS)
        else:
            pids = ", ".join(str(w.pid) for w in late)
            raise RuntimeError(
                f"Process(es) {pids} ({names(late)}) did not end {_KILL_SECONDS:g} s "
                "after SIGKILL; the system holds them, such as for a network drive."
            )

    def _enter(self, stage: _Stage, seconds: float) -> None:
        self._stage, self._until = stage, time.monotonic() + seconds

    def _clear(self) -> None:
        """Whatever happened, leave no worker behind."""
        until = time.monotonic() + _KILL_SECONDS
        for worker in self._alive():
            worker.was_stopped = True
            worker.kill()
        while self._alive() and time.monotonic() < until:
            for worker in self._alive():
                # Output that cannot be written is what brought us here, perhaps.
                with contextlib.suppress(OSError):
                    self._write(worker.poll())
            time.sleep(0.005)

    def _failures(self) -> list[Failure]:
        found = [_failure(w) for w in self._workers if w.code]
        return sorted(found, key=lambda f: (f.cause, f.since))


def _failure(worker: worker_process.Worker) -> Failure:
    assert worker.code is not None and worker.ended is not None
    cause = _cause(worker)
    # A process may take long to end after the error that ends it. JAX aborts one that
    # lost its peers, also if it raised the exception itself.
    raised = worker.code > 0 or worker.code == -signal.SIGABRT or cause is Cause.DYING
    since = worker.traceback.since if raised else None
    return Failure(
        worker,
        worker.code if worker.code > 0 else 128 - worker.code,
        worker.ended if since is None else since,
        worker.traceback.lines,
        cause,
    )


def _cause(worker: worker_process.Worker) -> Cause:
    since = worker.traceback.since
    if since is not None and worker.traceback.is_about_a_peer:
        return Cause.PEER
    if not worker.was_stopped:
        return Cause.OWN
    is_last = since is not None and worker.last_out < since
    return Cause.DYING if is_last else Cause.STOPPED


def described(code: int | None) -> str:
    """An exit status in words.

    >>> described(1), described(-9)
    ('exit code 1', 'signal SIGKILL')
    """
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def names(workers: Sequence[worker_process.Worker]) -> str:
    """Workers, as a reader would list them."""
    return ", ".join(w.name for w in workers) or "no worker"
