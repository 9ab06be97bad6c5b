"""Finds processes that are stopped, as by SIGSTOP, and kills one that stays so.

A stopped process neither works nor ends, and those that wait for it see only its
silence. The system knows more: its state is T in ``/proc``. One that a debugger holds
has the state t, and does not count. Without ``/proc``, as on macOS, none is found.

As a program, this file watches the process that has started it. It imports the
standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import final

# How many seconds a process may be stopped; 0 for any time. The launcher sets it, too.
VARIABLE = "UNISONO_STOPPED_SECONDS"
SECONDS = 10.0
# A look counts for so many seconds at most: whoever looks may have been stopped itself.
_LONGEST_LOOK = 1.0
_PAUSE = 0.25


def limit_seconds(given: float | None = None) -> float:
    """Returns how long a process may be stopped; 0 for any time.

    Args:
        given: the time that the program gives. By default the environment variable
            ``UNISONO_STOPPED_SECONDS``, or 10 s.

    Raises:
        ValueError: it is not a time.

    >>> limit_seconds(), limit_seconds(0)
    (10.0, 0.0)
    """
    text = os.environ.get(VARIABLE, "") if given is None else given
    try:
        seconds = SECONDS if text == "" else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(
            "The time after which a stopped process is killed (stopped_seconds, "
            f"{VARIABLE}) is a number of seconds, or 0 for never; received {text!r}."
        )
    return seconds


def read_state(pid: int) -> str:
    """Returns the letter of the state of a process: T if it is stopped, Z at its end.

    It is empty if there is no such process, or no ``/proc``.
    """
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The state comes after the program's name, which may contain anything.
            return file.read().rpartition(")")[2][1:2]
    except OSError:
        return ""


@final
class PauseWatch:
    """Counts the seconds for which a process has been stopped.

    Args:
        pid: the process.

    Attributes:
        is_paused: whether it was stopped at the last look.
        seconds: how long it had been stopped then.
    """

    def __init__(self, pid: int) -> None:
        self.is_paused = False
        self.seconds = 0.0
        self._pid = pid
        self._looked = 0.0

    def look(self, now: float) -> bool:
        """Looks at the process; returns whether it was stopped or continued since.

        Args:
            now: the time, by a clock that does not go back.
        """
        was_paused, looked = self.is_paused, self._looked
        state = read_state(self._pid)
        if state in ("", "Z", "X"):
            return False  # It has ended, and does not go on.
        self.is_paused, self._looked = state == "T", now
        if was_paused and self.is_paused:
            self.seconds += min(now - looked, _LONGEST_LOOK)
        else:
            self.seconds = 0.0
        return was_paused != self.is_paused


def watch_this_process(seconds: float) -> None:
    """Starts a process that kills this one when it is stopped for so many seconds.

    It ends with this process. With 0 seconds there is none.
    """
    if seconds:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), str(seconds)],
            stdin=subprocess.DEVNULL,
            # A signal to the group of this process must not stop it, too.
            start_new_session=True,
        )
        # Nobody waits for it. With a return code, `Popen` does not warn that it runs.
        process.returncode = 0


def main(parent: int, seconds: float) -> None:
    """Watches the process that has started this one, until one of them ends."""
    watch = PauseWatch(parent)
    while os.getppid() == parent:
        watch.look(time.monotonic())
        if watch.seconds >= seconds:
            sys.stderr.write(
                f"unisono: process {parent} was stopped for {seconds:g} s, as by "
                "SIGSTOP, and is killed.\n"
            )
            os.kill(parent, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
