"""Threads on the CPU: how many XLA's pool needs, and the priority of those behind."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Mapping

# XLA sizes the pool by this variable, once, when the CPU client starts.
VARIABLE = "NPROC"
# Threads that are left for work that never waits in a collective.
_SPARE = 2


def count_threads(devices: int, environ: Mapping[str, str] = os.environ) -> int:
    """Returns the number of threads with which collectives cannot deadlock.

    A virtual device holds a thread while it waits in a collective. One device can be
    in a program while another is still in the program before, so each may hold two.
    Many more threads would only cost speed: XLA cuts every operation into as many
    pieces as there are threads. See docs/decisions/0005.

    Args:
        devices: how many virtual devices the process has.
        environ: the environment variables; the user may ask for more in `VARIABLE`.

    >>> count_threads(1000, {})
    2002
    """
    asked = environ.get(VARIABLE, "")
    return max(
        2 * devices + _SPARE,
        os.cpu_count() or 1,
        int(asked) if asked.isdecimal() else 0,
    )


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


def find_priority() -> int:
    """Returns the priority of the calling thread; threads that it starts inherit it."""
    if not sys.platform.startswith("linux"):
        return 0
    return os.getpriority(os.PRIO_PROCESS, 0)
