"""Has a program write no checkpoint, export or summary."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from unisono._src.saving.checkpoint import checkpoint, manager
from unisono._src.saving.export import saver
from unisono._src.training import summary


def _give_path(
    self: object, file_prefix: object = None, *args: Any, **kwargs: Any
) -> str:
    return str(file_prefix)


def _do_nothing(*args: object, **kwargs: object) -> None:
    return None


@contextlib.contextmanager
def nothing_is_written() -> Iterator[None]:
    """Has checkpoints, exports and summaries write nothing in a block."""
    with contextlib.ExitStack() as stack:
        events = ("__init__", "write", "flush", "close")
        every: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
            (checkpoint.Checkpoint, "save", _give_path),
            (checkpoint.Checkpoint, "write", _give_path),
            (manager.CheckpointManager, "save", _do_nothing),
            (saver, "save", _do_nothing),
            (sys.modules.get("unisono.saved_model"), "save", _do_nothing),
            *((summary.EventFile, name, _do_nothing) for name in events),
        )
        for owner, name, instead in every:
            if owner is not None:
                stack.enter_context(replaced(owner, name, instead))
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, instead: Callable[..., Any]) -> Iterator[None]:
    """Replaces an attribute of a module or class in a block."""
    original = getattr(owner, name)
    setattr(owner, name, instead)
    try:
        yield
    finally:
        setattr(owner, name, original)
