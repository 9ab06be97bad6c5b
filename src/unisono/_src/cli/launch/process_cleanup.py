"""Ends the processes that a worker has left behind: loaders, helpers, their trackers.

They are known by the worker's session, and on Linux also by a mark in the environment
that they have inherited, so that a process which left the session is found, too. The
trackers of Python's multiprocessing end last and by themselves: they remove semaphores
and shared memory from the system when the processes that used them are gone.

As a program, this file ends what is left of all workers after the launcher was killed.
It imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import time

# The launcher sets it to a name that no other worker has.
MARK = "UNISONO_WORKER_MARK"
# How long to look for processes that are started while others are ended, and how long
# trackers may take to clean up.
_KILL_SECONDS = 5.0
_TRACKER_SECONDS = 5.0
_PAUSE = 0.01
_PROC = pathlib.Path("/proc")
_TRACKER = b"multiprocessing.resource_tracker"


def kill(session: int | None, mark: str) -> None:
    """Kills all processes of a worker except trackers, also those that come meanwhile.

    Args:
        session: the worker's session, which has the number of its process; None if it
            is not known any more.
        mark: the mark in the environment of its processes.
    """
    if not _PROC.joinpath("self/stat").exists():
        _kill_group(session)
        return
    until = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < until:
        others, _ = _find(session, mark)
        if not others:
            return
        for pid in others:
            _send(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def clear(session: int | None, mark: str) -> None:
    """Ends all processes of a worker, its trackers last."""
    if not _PROC.joinpath("self/stat").exists():
        _kill_group(session)
        return
    until = time.monotonic() + _KILL_SECONDS + _TRACKER_SECONDS
    while any(found := _find(session, mark)):
        others, trackers = found
        is_late = time.monotonic() > until
        for pid in [*others, *trackers] if is_late else others:
            _send(pid, signal.SIGKILL)
        if is_late:
            return
        time.sleep(_PAUSE)


def _kill_group(session: int | None) -> None:
    # A tracker ignores SIGTERM, so this gives it the time to clean up.
    if session is not None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, number)
                time.sleep(0.2 if number == signal.SIGTERM else 0.0)


def _find(session: int | None, mark: str) -> tuple[list[int], list[int]]:
    """Returns the live processes of a worker: those that are no trackers, and those."""
    others: list[int] = []
    trackers: list[int] = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # Another process may end at any time, or belong to another user.
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program, in parentheses, may contain anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            # After the name: state, parent, group, session.
            state, its_session = fields[0], int(fields[3])
            if state in "ZX" or not (its_session == session or _has_mark(entry, mark)):
                continue
            is_tracker = _TRACKER in (entry / "cmdline").read_bytes()
            (trackers if is_tracker else others).append(int(entry.name))
    return others, trackers


def _has_mark(entry: pathlib.Path, mark: str) -> bool:
    variables = (entry / "environ").read_bytes().split(b"\0")
    return f"{MARK}={mark}".encode() in variables


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def main() -> None:
    """Reads marks from standard input; ends their processes when the launcher is gone.

    The line ``done`` says that the launcher ends in order and has done so itself.
    """
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    marks = []
    for line in sys.stdin:
        if line == "done\n":
            return
        marks.append(line.strip())
    # First all are killed, and then the trackers, which take time, are waited for.
    for mark in marks:
        kill(None, mark)
    for mark in marks:
        clear(None, mark)


if __name__ == "__main__":
    main()
