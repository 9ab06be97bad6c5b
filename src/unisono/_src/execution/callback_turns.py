"""Lets one program with callbacks run at a time, and other programs wait for it.

Such a program reads its variables, runs to its end, and stores its results then, if no
callback has failed. A program of another thread that ran meanwhile would lose its own
changes of these variables; a failure that a callback notes would not tell whose it is.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from typing import ClassVar, final

from unisono._src.state import storage

_log = logging.getLogger("unisono")
_NEWS = 60.0  # Seconds of waiting after which the log says for whom.


@final
class _Turn:
    """The running program: its thread and its name; no thread if none runs."""

    thread: ClassVar[int | None] = None
    name: ClassVar[str] = ""


# Waiting gives the lock of all cells away, so the program that is waited for can end.
_ended = threading.Condition(storage.LOCK)


@contextlib.contextmanager
def take_turn(name: str) -> Iterator[None]:
    """Wait for other programs with callbacks, and let no program begin meanwhile."""
    outer: int | None = None
    is_taken = False
    try:
        with _ended:
            wait_for_turn(name)
            outer = _Turn.thread
            if not _is_callback():
                _Turn.thread, _Turn.name = threading.get_ident(), name
                is_taken = True
        yield
    finally:
        if is_taken:
            with _ended:
                # A thread may have a turn within its own: in a signal handler, say.
                _Turn.thread = outer
                _ended.notify_all()


def wait_for_turn(name: str) -> None:
    """Wait until no other thread has a turn; call it with the lock of cells held."""
    is_told = False
    while _Turn.thread not in (None, threading.get_ident()) and not _is_callback():
        if not _ended.wait(_NEWS) and not is_told:
            is_told = True
            _log.warning(
                "The step '%s' has waited %d s for '%s', which calls Python and runs "
                "in another thread.",
                name,
                _NEWS,
                _Turn.name,
            )


def _is_callback() -> bool:
    """Return whether the code may run in a callback of the program that has the turn.

    The program waits for its callbacks, so they must not wait for it. JAX runs them in
    threads that Python has not started, which Python calls dummy threads.
    """
    return isinstance(threading.current_thread(), threading._DummyThread)  # noqa: SLF001
