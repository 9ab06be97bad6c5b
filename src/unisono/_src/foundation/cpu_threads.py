"""The number of threads that XLA's pool for the CPU needs."""

from __future__ import annotations

import os
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
