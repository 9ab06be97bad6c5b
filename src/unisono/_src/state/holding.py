"""Cells that one thread changes in several parts, for which other threads wait.

An eager change holds the lock of all cells from its read to its store. A step that
calls Python cannot: it reads its variables, runs the program's code, and stores its
results at its end. Nor can an update that writes the copies of a variable one after the
other. They *hold* their cells instead, and what other threads store there waits.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, final

from unisono._src.foundation import errors
from unisono._src.state import storage

_log = logging.getLogger("unisono")
_NEWS = 60.0  # Seconds of waiting after which the log says for whom.
_LIMIT = 600.0  # Seconds after which an eager change gives up.

# Waiting gives the lock of all cells away, so that the holder can end.
_ended = threading.Condition(storage.LOCK)


@final
class Holder(NamedTuple):
    """The code that holds cells.

    Attributes:
        name: what it is, for messages.
        thread: the thread that it runs in.
    """

    name: str
    thread: int


@final
class Turn:
    """Something else than a cell that one thread has at a time.

    Attributes:
        holder: who has it; None if nobody has.
    """

    def __init__(self) -> None:
        self.holder: Holder | None = None


@contextlib.contextmanager
def hold(cells: Sequence[Any], name: str) -> Iterator[None]:
    """Waits until no other thread holds cells, and holds them for the block.

    Args:
        cells: the cells, and turns.
        name: what the block is, for messages.
    """
    own: list[Any] = []
    try:
        with storage.LOCK:
            wait_for(cells, name)
            # A thread may hold a cell already, around this block or, in a signal
            # handler, outside it.
            own = [c for c in cells if c.holder is None]
            holder = Holder(name, threading.get_ident())
            for cell in own:
                cell.holder = holder
            # Programs look for holders only if the clock has moved.
            storage.Clock.escapes += bool(own)
        yield
    finally:
        with storage.LOCK:
            for cell in own:
                cell.holder = None
            _ended.notify_all()


def wait_for(cells: Sequence[Any], name: str, limit: float | None = None) -> None:
    """Waits until no other thread holds cells; call it with the lock held.

    Args:
        cells: the cells, and turns.
        name: what waits, for messages.
        limit: for how many seconds it waits at most; None for as long as it takes.

    Raises:
        DeadlineExceededError: another thread still holds a cell.
    """
    begin, is_told = time.monotonic(), False
    while (holder := _find_other(cells)) is not None:
        waited = time.monotonic() - begin
        if limit is not None and waited >= limit:
            raise errors.DeadlineExceededError(
                f"{_begin(name)} has waited {waited:.0f} s for {holder.name}, in "
                "another thread, which changes the same variable and ends later. If "
                "that code waits for this thread, neither can go on: change the "
                "variable before it or after it, or in it alone."
            )
        if waited >= _NEWS and not is_told:
            is_told = True
            _log.warning(
                "%s has waited %.0f s for %s, in another thread.",
                _begin(name),
                waited,
                holder.name,
            )
        _ended.wait(_NEWS if limit is None else min(_NEWS, limit - waited))


def wait_to_change(cell: storage.Cell) -> None:
    """Waits until an eager change of a cell may begin; call it with the lock held.

    Raises:
        DeadlineExceededError: another thread still holds the cell.
    """
    wait_for((cell,), f"a change of the variable '{cell.name}'", _LIMIT)


def wait_to_read(cell: storage.Cell) -> None:
    """Waits until all copies of a cell are written; call it with the lock held.

    Raises:
        DeadlineExceededError: another thread still holds the cell.
    """
    wait_for((cell,), f"a reading of the variable '{cell.name}'", _LIMIT)


def _begin(name: str) -> str:
    """Returns a name as the beginning of a sentence."""
    return name[:1].upper() + name[1:]


def _find_other(cells: Sequence[Any]) -> Holder | None:
    """Returns who else holds one of some cells, if the running code must wait for it.

    A program waits for its callbacks, so they must not wait for it. JAX runs them in
    threads that Python has not started, which Python calls dummy threads.
    """
    here = threading.get_ident()
    found: Holder | None
    for found in (c.holder for c in cells):
        if found is not None and found.thread != here:
            is_callback = isinstance(
                threading.current_thread(),
                threading._DummyThread,  # noqa: SLF001
            )
            return None if is_callback else found
    return None
