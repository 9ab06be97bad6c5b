"""Finds two processes that say that they are the same worker of a cluster.

JAX takes the second one for the first, started again. Then one of them is aborted, and
the other waits for ever.
"""

from __future__ import annotations

from unisono._src.foundation import errors
from unisono._src.workers import coordination_client, worker_records
from unisono._src.workers.coordination_client import CoordinationClient

# Beside the records, so that it is read with them: which index two processes have.
NOTE = f"{worker_records.PLACE}/claimed twice"
_PLACE = "unisono/claims/"


def claim(client: CoordinationClient, worker: int) -> errors.WorkerError | None:
    """Tells all workers which process a worker is, and if there are two.

    Of two processes with index 0 the second does not come here, because it cannot
    listen; see `coordination_client.start_service`.

    Args:
        client: JAX's client of the coordination service, which has joined.
        worker: the number of this worker.

    Returns:
        The error about another process that is the same worker; None if there is none.
    """
    own = coordination_client.name_process()
    try:
        # The first one wins; a second one may not write here.
        client.key_value_set(f"{_PLACE}{worker}", own)
    except RuntimeError:
        return tell(client, worker, client.key_value_try_get(f"{_PLACE}{worker}"), own)
    return None


def tell(
    client: CoordinationClient, worker: int, first: str, second: str
) -> errors.WorkerError:
    """Tells all workers of two processes that are the same one; returns the error."""
    told = f"{worker} {first}, and {second}"
    client.key_value_set(NOTE, told, allow_overwrite=True)
    return read(told)


def read(note: str) -> errors.WorkerError:
    """Returns the error about two processes that are the same worker, as it is told."""
    worker, _, processes = note.partition(" ")
    return coordination_client.claimed_twice_error(worker, processes)
