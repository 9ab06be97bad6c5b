"""Starts one worker process, reads its output, sends it signals, and ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import final

from unisono._src.cli.launch import process_cleanup
from unisono._src.cluster import launcher_pipes, paused_processes

_BOOTSTRAP = str(pathlib.Path(__file__).with_name("child.py"))
_CHUNK = 1 << 16
# How long to read on after a worker's end.
_DRAIN_SECONDS = 2.0
# A larger number of steps is no number that a display can use.
_MAX_STEP = 10**15


@final
@dataclasses.dataclass(frozen=True)
class Command:
    """The command that a worker runs.

    Attributes:
        index: the worker's index in its job.
        count: the number of workers of the job.
        argv: the program and its arguments.
        env: the worker's whole environment.
        descriptors: the file descriptors that it inherits.
        job: the worker's job.
        serves: whether it has no end of its own and ends when the others have.
    """

    index: int
    count: int
    argv: tuple[str, ...]
    env: dict[str, str]
    descriptors: tuple[int, ...] = ()
    job: str = "worker"
    serves: bool = False

    @property
    def name(self) -> str:
        """The name of the worker in messages."""
        return f"{self.job} {self.index}/{self.count}"


@final
@dataclasses.dataclass(frozen=True)
class Line:
    """A line that a worker wrote."""

    worker: WorkerProcess
    stream: str
    text: str


@final
# Three pipes come from a worker: its output, its errors, and "step", by which it tells
# steps and states. One leads to it, with messages about the others' ends. A process is
# reaped only after its session was cleared, because its number would be free then.
class WorkerProcess:
    """A worker process, started by the constructor.

    Args:
        command: the command to run.
        selector: the selector that reports when there is output to read.
        mark: a name by which the processes that the worker starts are found.

    Attributes:
        command: the command.
        name: the name of the worker in messages.
        code: the exit status as `subprocess` gives it; None while the worker runs.
        ended: the time at which the worker ended.
        was_stopped: whether the launcher had told it to end before it did.
        step: the worker's own count of its steps, if it has told any.
        total: the steps in all, if the worker has told it.
        listens: whether it raises an error when it is told of a peer's end.
        noticed: the time at which it raised such an error.
        traceback: the traceback at the end of standard error.
        held: lines of a traceback that may be the worker's last, not shown yet.
        released: the time of the last traceback that was shown after all.
        last_out: the time of the last line of standard output.
        pid: the process.
        pause: for how long it has been stopped, as by SIGSTOP.
    """

    def __init__(
        self, command: Command, selector: selectors.BaseSelector, mark: str
    ) -> None:
        self.command = command
        self.name = command.name
        self.mark = mark
        self.code: int | None = None
        self.ended: float | None = None
        self.was_stopped = False
        self.step: int | None = None
        self.total: int | None = None
        self.listens = False
        self.noticed: float | None = None
        self.traceback = TracebackFinder()
        self.held: list[Line] = []
        self.released: float | None = None
        self.last_out = 0.0
        self._selector = selector
        self._splitters = {n: LineSplitter() for n in ("out", "err", "step")}
        reader, self._process = self._begin()
        assert self._process.stdout and self._process.stderr
        self.pid = self._process.pid
        self.pause = paused_processes.PauseWatch(self.pid)
        self._pipes = {
            "out": self._process.stdout,
            "err": self._process.stderr,
            "step": os.fdopen(reader, "rb", buffering=0),
        }
        for stream, pipe in self._pipes.items():
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, (self, stream))

    def _begin(self) -> tuple[int, subprocess.Popen[bytes]]:
        """Starts the process; returns the pipe by which it reports, and the process."""
        command = self.command
        reader, writer = os.pipe()
        messages, self._messages = os.pipe()
        # A worker that reports its steps must not wait for the launcher, nor the
        # launcher for a worker that does not read its messages.
        os.set_blocking(writer, False)
        os.set_blocking(self._messages, False)
        try:
            return reader, subprocess.Popen(
                [
                    # Without the user's site and environment:
                    # it only becomes the program.
                    *(sys.executable, "-I", "-S", _BOOTSTRAP),
                    *(str(os.getpid()), "exec", *command.argv),
                ],
                env={
                    **command.env,
                    launcher_pipes.PROGRESS_VARIABLE: str(writer),
                    launcher_pipes.NEWS_VARIABLE: launcher_pipes.name_pipe(messages),
                    process_cleanup.MARK: self.mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C in the terminal reaches the launcher alone, which hands it on;
                # and one signal ends the worker with all that it has started.
                start_new_session=True,
                pass_fds=(writer, messages, *command.descriptors),
            )
        except BaseException:
            os.close(reader)
            os.close(self._messages)
            raise
        finally:
            os.close(writer)
            os.close(messages)

    def read(self, stream: str) -> list[Line]:
        """Returns the lines that have come, with the rest at the end of the stream."""
        pipe = self._pipes.get(stream)
        if pipe is None:
            return []
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return []
        splitter = self._splitters[stream]
        if data:
            texts = splitter.feed(data)
        else:
            texts = splitter.rest()
            self._close(stream)
        return list(self._sort(stream, texts))

    def _sort(self, stream: str, texts: list[str]) -> Iterator[Line]:
        """Yields the lines to show; takes note of steps and tracebacks on the way."""
        for text in texts:
            if stream == "step":
                self._note_step(text)
                continue
            if stream == "err":
                self.traceback.add(text, time.monotonic())
            else:
                self.last_out = time.monotonic()
            yield Line(self, stream, text)

    def tell(self, message: launcher_pipes.LauncherMessage) -> None:
        """Tells the worker that another one has ended, is stopped, or goes on."""
        if self.code is None:
            # The pipe is full or closed where the worker does not read it.
            with contextlib.suppress(OSError):
                os.write(self._messages, launcher_pipes.encode(message))

    def _note_step(self, text: str) -> None:
        try:
            told = json.loads(text)
            if "state" in told:
                self._note_state(str(told["state"]))
                return
            step, total = int(told["step"]), told["total"]
            total = None if total is None else int(total)
        # A program of any kind may write into the pipe; what
        # is no count is passed over.
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
            return
        if 0 <= step <= _MAX_STEP and 0 <= (total or 0) <= _MAX_STEP:
            self.step, self.total = step, total

    def _note_state(self, state: str) -> None:
        self.listens |= state == launcher_pipes.LISTENS
        if state == launcher_pipes.NOTICED and self.noticed is None:
            self.noticed = time.monotonic()

    def poll(self) -> list[Line]:
        """Checks whether the worker has ended; if so, returns the rest of its lines.

        It also ends the processes that the worker has left behind.
        """
        if self.code is not None:
            return []
        if not self._has_ended():
            return []
        process_cleanup.clear(self.pid, self.mark)
        self.code = self._process.wait()
        self.ended = time.monotonic()
        os.close(self._messages)
        return self._drain()

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS, with older Pythons.
            return self._process.poll() is not None
        # WNOWAIT leaves the process unreaped. As long as it is there, the system gives
        # the number of its session to no other process, so `poll` can clear it.
        how = os.WEXITED | os.WNOWAIT | os.WNOHANG
        return os.waitid(os.P_PID, self.pid, how) is not None

    def _drain(self) -> list[Line]:
        """Reads the pipes of a worker that has ended to their end, and closes them."""
        lines: list[Line] = []
        until = time.monotonic() + _DRAIN_SECONDS
        # A process that has left the group may hold a pipe open for ever.
        while self._pipes and time.monotonic() < until:
            for stream in list(self._pipes):
                lines += self.read(stream)
            if self._pipes:
                time.sleep(0.005)
        for stream in list(self._pipes):
            lines += self._sort(stream, self._splitters[stream].rest())
            self._close(stream)
        return lines

    def _close(self, stream: str) -> None:
        pipe = self._pipes.pop(stream)
        self._selector.unregister(pipe)
        pipe.close()

    @property
    def is_in_new_traceback(self) -> bool:
        """Whether standard error is at a traceback that was not shown."""
        return self.traceback.since not in (None, self.released)

    def release(self) -> list[Line]:
        """Returns the lines that were held back, to be shown after all."""
        lines, self.held = self.held, []
        self.released = self.traceback.since
        return lines

    def send(self, number: int) -> None:
        """Sends a signal to the worker itself."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the worker and every process that it has started."""
        if self.code is None:
            # Just after the start the worker may not lead its session yet.
            self.send(signal.SIGKILL)
            process_cleanup.kill(self.pid, self.mark)


# In bytes: a longer line is cut.
_MAX_LINE = 65_536
# After so many lines the traceback was not the program's end.
_MAX_BLOCK = 400
# Seconds between two tracebacks of different errors.
_APART = 1.0
_START = re.compile(r"(  \+ Exception Group )?Traceback \(most recent call last\):")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@final
class LineSplitter:
    r"""Cuts bytes into lines, and keeps the last form of a line with carriage returns.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\ntw"), splitter.feed(b"o\r2\n"), splitter.rest()
    (['one'], ['2'], [])
    """

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[str]:
        """Returns the lines that `data` completes."""
        *lines, rest = (self._partial + data).split(b"\n")
        if len(rest) > _MAX_LINE:
            lines.append(rest)
            rest = b""
        # A carriage return at the end is kept: the text that rewrites the line may
        # still come.
        _, mark, last = rest[:-1].rpartition(b"\r")
        self._partial = last + rest[-1:] if mark else rest
        return [_decode_line(line) for line in lines]

    def rest(self) -> list[str]:
        """Returns the unfinished line, if there is one."""
        left, self._partial = self._partial, b""
        return [_decode_line(left)] if left else []


def _decode_line(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


@final
class TracebackFinder:
    """Keeps the traceback at the end of a worker's errors, with its chained ones."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._before = ""
        self._started = 0.0
        self.since: float | None = None

    def add(self, line: str, now: float) -> None:
        """Takes a line of standard error, and the time at which it came."""
        if _START.match(line):
            # A traceback that another one's message quotes follows it at once.
            is_new = now > self._started + _APART and self._before not in _CHAINED
            if self.since is None or is_new:
                self._lines, self.since = [], now
            self._started = now
        if self.since is not None:
            self._lines.append(line)
            # The program has gone on, so this traceback was not its end.
            if len(self._lines) > _MAX_BLOCK:
                self._lines, self.since = [], None
        if line.strip():
            self._before = line.strip()

    @property
    def lines(self) -> tuple[str, ...]:
        """The traceback at the end; empty if there is none."""
        return tuple(self._lines)

    @property
    def is_about_a_peer(self) -> bool:
        """Whether the error says that another worker failed, not this one."""
        return any(_PEER.match(line) for line in self._lines)


# The family of unisono.errors.WorkerError, as the last line of a traceback shows it.
_PEER = re.compile(r"unisono[\w.]*\.Worker\w*Error\b")
