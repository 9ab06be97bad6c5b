"""The priority of background threads."""

from __future__ import annotations

import contextlib
import os
import sys
import threading


def yield_to_steps(nice: int) -> None:
    """Lower the priority of the calling thread, so that training goes first.

    Only Linux has a priority per thread; elsewhere nothing happens.

    Args:
        nice: from 0, the normal priority, to 19, the lowest.
    """
    if not nice or not sys.platform.startswith("linux"):
        return  # Other systems would change the priority of the whole process.
    # A sandbox may forbid it. The thread then works as before, only less politely.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)
