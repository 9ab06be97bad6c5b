"""Splits a worker's output into lines, and finds the traceback at its end."""

from __future__ import annotations

import re
from typing import final

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
