"""Waits for answers of servers and workers, with a time limit and a warning."""

from __future__ import annotations

import concurrent.futures
import logging
from concurrent.futures import Future
from typing import Any

from unisono._src.foundation import errors

_log = logging.getLogger("unisono")

# Seconds; TensorFlow waits as long for a worker that was lost.
PATIENCE = 3600.0
# Seconds after which a warning says, once, which task has not answered.
_NEWS = 60.0


def wait(call: Future[Any], kind: str, index: int, what: str) -> Any:
    """Returns the result of a call, or raises its error.

    Args:
        call: the call.
        kind: the kind of the task that was called.
        index: the number of that task.
        what: what the task was asked to do, for messages.

    Raises:
        UnavailableError: it has not answered for an hour, or is gone.
    """
    try:
        return call.result(_NEWS)
    except concurrent.futures.TimeoutError:
        # The error of the call itself, or a result that came as the wait ended.
        if call.done():
            return call.result()
    _log.warning("The %s %d has not answered for %d s: %s.", kind, index, _NEWS, what)
    try:
        return call.result(PATIENCE - _NEWS)
    except concurrent.futures.TimeoutError:
        if call.done():
            return call.result()
        raise errors.UnavailableError(
            f"The {kind} {index} has not answered for {PATIENCE:.0f} s: {what}.",
            kind,
            index,
        ) from None
