"""How many threads XLA's pool for the CPU needs."""

from __future__ import annotations

import os
from collections.abc import Mapping

# XLA sizes the pool by this variable, once, when the CPU client starts.
VARIABLE = "NPROC"
# Some that never wait in a collective.
_SPARE = 2


def threads(devices: int, environ: Mapping[str, str] = os.environ) -> int:
    """Enough threads that virtual devices find one each in all that they can be in.

    A participant of a collective holds a thread while it waits. A device can be in one
    program while another is still in the one before, so each may hold two. Many more
    would do no harm but for speed: XLA cuts every operation into as many pieces as
    there are threads.

    Args:
        devices: how many virtual devices the process has.
        environ: where the user may have asked for more.

    >>> threads(1000, {})
    2002
    """
    asked = environ.get(VARIABLE, "")
    return max(
        2 * devices + _SPARE,
        os.cpu_count() or 1,
        int(asked) if asked.isdecimal() else 0,
    )
