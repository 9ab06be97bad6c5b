"""Starts one worker process, reads its output, sends it signals, and ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import final

from unisono._src.cli.launch import remains, streams
from unisono._src.cluster import launcher_news, launcher_progress, paused_processes

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
# steps and states. One leads to it, with the news of the others' ends. A process is
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
        self.traceback = streams.TracebackFinder()
        self.held: list[Line] = []
        self.released: float | None = None
        self.last_out = 0.0
        self._selector = selector
        self._splitters = {n: streams.LineSplitter() for n in ("out", "err", "step")}
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
        news, self._news = os.pipe()
        # A worker that reports its steps must not wait for the launcher, nor the
        # launcher for a worker that does not read its news.
        os.set_blocking(writer, False)
        os.set_blocking(self._news, False)
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
                    launcher_progress.VARIABLE: str(writer),
                    launcher_news.VARIABLE: launcher_news.name_pipe(news),
                    remains.MARK: self.mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl-C in the terminal reaches the launcher alone, which hands it on;
                # and one signal ends the worker with all that it has started.
                start_new_session=True,
                pass_fds=(writer, news, *command.descriptors),
            )
        except BaseException:
            os.close(reader)
            os.close(self._news)
            raise
        finally:
            os.close(writer)
            os.close(news)

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

    def tell(self, news: launcher_news.Told) -> None:
        """Tells the worker that another one has ended, is stopped, or goes on."""
        if self.code is None:
            # The pipe is full or closed where the worker does not read it.
            with contextlib.suppress(OSError):
                os.write(self._news, news.encode())

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
        self.listens |= state == launcher_progress.LISTENS
        if state == launcher_progress.NOTICED and self.noticed is None:
            self.noticed = time.monotonic()

    def poll(self) -> list[Line]:
        """Checks whether the worker has ended; if so, returns the rest of its lines.

        It also ends the processes that the worker has left behind.
        """
        if self.code is not None:
            return []
        if not self._has_ended():
            return []
        remains.clear(self.pid, self.mark)
        self.code = self._process.wait()
        self.ended = time.monotonic()
        os.close(self._news)
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
            remains.kill(self.pid, self.mark)
