"""Tells the launcher that started this worker how far the worker is, and its state."""

from __future__ import annotations

import json
import os

# The launcher sets it to the number of a pipe that the worker inherits.
VARIABLE = "UNISONO_PROGRESS_FD"
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
    _write({"step": int(step), "total": total})


def tell_state(state: str) -> None:
    """Tells the launcher `LISTENS` or `NOTICED`; does nothing where none runs."""
    _write({"state": state})


def _write(told: dict[str, object]) -> None:
    descriptor = os.environ.get(VARIABLE, "")
    if not descriptor.isdecimal():
        return
    line = json.dumps(told) + "\n"
    try:
        # One write of a short line, which a pipe does not mix with those of others.
        os.write(int(descriptor), line.encode())
    except OSError:
        # The pipe is closed or full, or a forked child inherited only its number. In
        # each case nobody listens, so later calls do not try again.
        os.environ.pop(VARIABLE, None)
