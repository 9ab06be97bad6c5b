"""How far this worker is, told to the launcher that started it, if one did."""

from __future__ import annotations

import json
import os

VARIABLE = "UNISONO_PROGRESS_FD"


def report(step: int, total: int | None = None) -> None:
    """Move the launcher's progress bar; does nothing in a program started otherwise.

    Cheap, and never an error: a launcher that is gone or slow is not told.

    Args:
        step: steps done.
        total: steps in all, if known.
    """
    descriptor = os.environ.get(VARIABLE, "")
    if not descriptor.isdecimal():
        return
    line = json.dumps({"step": int(step), "total": total}) + "\n"
    try:
        os.write(int(descriptor), line.encode())
    except OSError:
        # Closed, full, or a number that a forked child inherited: nobody listens.
        os.environ.pop(VARIABLE, None)
