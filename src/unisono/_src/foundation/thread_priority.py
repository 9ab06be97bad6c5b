"""Who gets the processor first."""

from __future__ import annotations

import contextlib
import os
import sys
import threading


def yield_to_steps(nice: int) -> None:
    """Let training go before the calling thread, where the system knows such an order.

    Args:
        nice: from 0, as everyone, to 19, which takes only what is left.
    """
    if not nice or not sys.platform.startswith("linux"):
        return  # Elsewhere this would be about the whole process.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
