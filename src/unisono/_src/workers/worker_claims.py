"""Finds two processes that say that they are the same worker of a cluster.

JAX takes the second one for the first, started again. Then one of them is aborted, and
the other waits for ever.
"""

from __future__ import annotations

import os
import socket

from unisono._src.foundation import errors
from unisono._src.workers import worker_records
from unisono._src.workers.coordination_client import CoordinationClient

# Beside the records, so that it is read with them: which index two processes have.
NOTE = f"{worker_records.PLACE}/claimed twice"
_PLACE = "unisono/claims/"


def claim(client: CoordinationClient, worker: int) -> errors.WorkerError | None:
    """Tells all workers which process a worker is, and if there are two.

    Args:
        client: JAX's client of the coordination service, which has joined.
        worker: the number of this worker.

    Returns:
        The error about another process that is the same worker; None if there is none.
    """
    own = f"process {os.getpid()} on {socket.gethostname()}"
    try:
        # The first one wins; a second one may not write here.
        client.key_value_set(f"{_PLACE}{worker}", own)
    except RuntimeError:
        other = client.key_value_try_get(f"{_PLACE}{worker}")
        told = f"{worker} {other}, and {own}"
        client.key_value_set(NOTE, told, allow_overwrite=True)
        return read(told)
    return None


def read(note: str) -> errors.WorkerError:
    """Returns the error about two processes that are the same worker, as it is told."""
    number, _, processes = note.partition(" ")
    worker = int(number) if number.isdigit() else None
    return errors.WorkerError(
        f"Two processes say that they are worker {number}: {processes}. Each worker "
        "needs an index of its own in TF_CONFIG (or its resolver). Is a program of an "
        "earlier run still there, or was one started twice?",
        worker,
    )
