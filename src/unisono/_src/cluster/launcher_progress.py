"""Tells the launcher that started this worker how far the worker is."""

from __future__ import annotations

import json
import os

# The launcher sets it to the number of a pipe that the worker inherits.
VARIABLE = "UNISONO_PROGRESS_FD"


def report(step: int, total: int | None = None) -> None:
    """Moves the launcher's progress bar; does nothing where no launcher runs.

    The call is cheap and never raises. It skips a launcher that is gone or slow.

    Args:
        step: how many steps are done.
        total: how many steps there are in all, if that is known.
    """
    descriptor = os.environ.get(VARIABLE, "")
    if not descriptor.isdecimal():
        return
    line = json.dumps({"step": int(step), "total": total}) + "\n"
    try:
        os.write(int(descriptor), line.encode())
    except OSError:
        # The pipe is closed or full, or a forked child inherited only its number. In
        # each case nobody listens, so later calls do not try again.
        os.environ.pop(VARIABLE, None)
