"""Lines of a worker's output, and the traceback at the end of it."""

from __future__ import annotations

import re
from typing import final

_MAX_LINE = 65_536
_MAX_BLOCK = 400
_APART = 1.0
_START = re.compile(r"(  \+ Exception Group )?Traceback \(most recent call last\):")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


@final
class LineSplitter:
    r"""Cuts bytes into lines; of one rewritten with carriage returns, the last form.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\ntw"), splitter.feed(b"o\r2\n"), splitter.rest()
    (['one'], ['2'], [])
    """

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        *lines, rest = (self._partial + data).split(b"\n")
        if len(rest) > _MAX_LINE:
            lines.append(rest)
            rest = b""
        # A trailing return is kept: what rewrites the line may still come.
        _, mark, last = rest[:-1].rpartition(b"\r")
        self._partial = last + rest[-1:] if mark else rest
        return [_shown(line) for line in lines]

    def rest(self) -> list[str]:
        """What is left of an unfinished line."""
        left, self._partial = self._partial, b""
        return [_shown(left)] if left else []


def _shown(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


@final
class TracebackFinder:
    """Keeps the traceback that ends a worker's errors, with those it is chained to."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._before = ""
        self._started = 0.0
        self.since: float | None = None

    def add(self, line: str, now: float) -> None:
        """Take note of a line of standard error."""
        if _START.match(line):
            # One that is quoted in another's message follows it at once.
            is_new = now > self._started + _APART and self._before not in _CHAINED
            if self.since is None or is_new:
                self._lines, self.since = [], now
            self._started = now
        if self.since is not None:
            self._lines.append(line)
            # So much after it: the program lived on, and it was not the end.
            if len(self._lines) > _MAX_BLOCK:
                self._lines, self.since = [], None
        if line.strip():
            self._before = line.strip()

    @property
    def lines(self) -> tuple[str, ...]:
        """The traceback; empty if there was none at the end."""
        return tuple(self._lines)

    @property
    def is_about_a_peer(self) -> bool:
        """Whether the error says that another worker failed, not this one."""
        return any(_PEER.match(line) for line in self._lines)


# The family of unisono.errors.WorkerError, as the last line of a traceback shows it.
_PEER = re.compile(r"unisono[\w.]*\.Worker\w*Error\b")
