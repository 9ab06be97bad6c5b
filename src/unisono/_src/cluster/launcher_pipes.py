"""The two pipes between a launcher and each of its workers.

By one the launcher tells which peers have ended, or are stopped. So a worker learns at
once that another one is gone, without a port and without a signal, see
docs/decisions/0023. Where no launcher runs there are no messages, and workers find out
by watching each other. By the other pipe a worker tells how far it is, and its state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import stat
import threading
from collections.abc import Callable
from typing import TypeAlias, final

# The launcher sets it to ``NUMBER:INODE``: the pipe, and what tells it from any other
# file that has the same number in a process which did not inherit the pipe.
NEWS_VARIABLE = "UNISONO_NEWS_FD"
# The launcher sets it to a name of the worker. When the worker has ended, the launcher
# ends all processes that have inherited it.
MARK = "UNISONO_WORKER_MARK"
# In characters: longer words of a worker are cut at their beginning, and a longer line
# is no message.
_LARGEST_TEXT = 2000
_LARGEST_LINE = 1 << 15


@final
@dataclasses.dataclass(frozen=True)
class WorkerEnding:
    """The end of a worker process.

    Attributes:
        job: the job of the worker.
        index: its index in the job.
        how: the end in words, such as ``signal SIGKILL`` or ``exit code 1``.
        said: the end of its last traceback; empty if it wrote none.
    """

    job: str
    index: int
    how: str
    said: str = ""


@final
@dataclasses.dataclass(frozen=True)
class WorkerPause:
    """The begin or the end of a time in which a worker process is stopped.

    Attributes:
        job: the job of the worker.
        index: its index in the job.
        is_paused: whether it is stopped now, as by SIGSTOP, or goes on.
    """

    job: str
    index: int
    is_paused: bool


LauncherMessage: TypeAlias = WorkerEnding | WorkerPause


def encode(message: LauncherMessage) -> bytes:
    """Returns the line that tells a worker the message."""
    if isinstance(message, WorkerEnding):
        message = dataclasses.replace(message, said=message.said[-_LARGEST_TEXT:])
    return json.dumps(dataclasses.asdict(message)).encode() + b"\n"


def decode(line: bytes) -> LauncherMessage | None:
    """Returns the message of a line; None if it has none.

    >>> decode(encode(WorkerEnding("worker", 1, "exit code 0")))
    WorkerEnding(job='worker', index=1, how='exit code 0', said='')
    >>> decode(encode(WorkerPause("worker", 1, True)))
    WorkerPause(job='worker', index=1, is_paused=True)
    """
    try:
        told = json.loads(line)
        job, index = str(told["job"]), int(told["index"])
        if "is_paused" in told:
            return WorkerPause(job, index, bool(told["is_paused"]))
        return WorkerEnding(job, index, str(told["how"]), str(told["said"]))
    except (LookupError, RecursionError, TypeError, ValueError):
        return None


@final
class LauncherMessages:
    """What the launcher has told this process about other workers.

    Attributes:
        endings: their ends, in the order in which they were told.
    """

    def __init__(self) -> None:
        self.endings: list[WorkerEnding] = []
        self._told: list[LauncherMessage] = []
        self._lock = threading.Lock()
        self._listeners: list[Callable[[LauncherMessage], None]] = []
        self._thread: threading.Thread | None = None

    def listen(self) -> bool:
        """Starts to read messages; returns whether a launcher will send any."""
        descriptor = _find_pipe()
        if self._thread is None and descriptor is not None:
            self._thread = threading.Thread(
                target=self._read,
                args=(descriptor,),
                name="unisono messages",
                daemon=True,
            )
            self._thread.start()
        return self._thread is not None

    def subscribe(self, listener: Callable[[LauncherMessage], None]) -> None:
        """Calls a function with all that was told, and that will be."""
        with self._lock:
            self._listeners.append(listener)
            # Under the lock, so that each is told once: here, or by `_add`.
            for message in self._told:
                listener(message)

    def _read(self, descriptor: int) -> None:
        partial = b""
        with contextlib.suppress(OSError):
            # The launcher closes its end when it ends.
            while data := os.read(descriptor, 1 << 16):
                *lines, partial = (partial + data).split(b"\n")
                for line in lines:
                    self._add(line)
                partial = partial[:_LARGEST_LINE]

    def _add(self, line: bytes) -> None:
        message = decode(line)
        if message is None:
            return
        with self._lock:
            self._told.append(message)
            if isinstance(message, WorkerEnding):
                self.endings.append(message)
            for listener in self._listeners:
                listener(message)


MESSAGES = LauncherMessages()


def name_pipe(descriptor: int) -> str:
    """Returns the value of the variable for a worker that inherits a pipe."""
    return f"{descriptor}:{os.fstat(descriptor).st_ino}"


def _find_pipe() -> int | None:
    """Returns the pipe that this process has inherited, if it has one."""
    number, _, inode = os.environ.get(NEWS_VARIABLE, "").partition(":")
    if not number.isdecimal():
        return None
    try:
        found = os.fstat(int(number))
    except (OSError, OverflowError):
        return None
    # A subprocess has the variable, but perhaps another file under this number.
    is_it = stat.S_ISFIFO(found.st_mode) and str(found.st_ino) == inode
    return int(number) if is_it else None


# The launcher sets it to the number of a pipe that the worker inherits.
PROGRESS_VARIABLE = "UNISONO_PROGRESS_FD"
# The states that a worker tells: it will raise an error when the launcher tells it that
# a peer has ended; and it does raise such an error now.
LISTENS, NOTICED = "listens", "noticed"


def report(step: int, total: int | None = None) -> None:
    """Moves the launcher's progress bar; does nothing where no launcher runs.

    The call is cheap and never raises. It skips a launcher that is gone or slow.

    Args:
        step: how many steps are done.
        total: how many steps there are in all, if that is known.
    """
    _write_line({"step": int(step), "total": total})


def tell_state(state: str) -> None:
    """Tells the launcher `LISTENS` or `NOTICED`; does nothing where none runs."""
    _write_line({"state": state})


def _write_line(told: dict[str, object]) -> None:
    descriptor = os.environ.get(PROGRESS_VARIABLE, "")
    if not descriptor.isdecimal():
        return
    line = json.dumps(told) + "\n"
    try:
        # One write of a short line, which a pipe does not mix with those of others.
        os.write(int(descriptor), line.encode())
    except OSError:
        # The pipe is closed or full, or a forked child inherited only its number. In
        # each case nobody listens, so later calls do not try again.
        os.environ.pop(PROGRESS_VARIABLE, None)
