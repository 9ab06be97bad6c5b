"""The results of steps: a wait for one that ends if it will never come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

import jax

from unisono._src.foundation import errors
from unisono._src.workers.peers import Peers
from unisono._src.workers.worker_records import OwnRecord

# A result may still come so long after a peer was found to be gone, because other steps
# are in flight.
RESULT_SECONDS = 0.5
# A wait for a result sleeps this part of the time that it has lasted, between these
# limits. So it lasts about a hundredth longer than without the guard.
_SLEEP_PART, _SLEEP_LEAST, _SLEEP_MOST = 0.02, 5e-5, 0.02
# The thread takes so many looks at the newest arrays, which the program may replace and
# delete at any time.
_GLANCES = 5


@final
class StepResults:
    """The results of this worker's steps.

    Args:
        own: the record of this worker.
        peers: the other workers.

    Attributes:
        waits_in_python: whether this worker waits for results in Python.
        newest: the newest results of a step, for the thread that watches: a list of
            cells with an `array` each, or a tree of arrays.
    """

    def __init__(self, own: OwnRecord, peers: Peers) -> None:
        self.waits_in_python = False
        self.newest: object = None
        self._own = own
        self._peers = peers

    def wait_for(self, array: jax.Array) -> None:
        """Waits until an array is computed, if this worker waits in Python.

        Raises:
            WorkerError: a worker is gone, and the array does not come.
        """
        own = self._own
        found = own.verdict
        if isinstance(found, errors.WorkerMismatchError) and not own.has_noticed:
            # The program learns it as early as it can. Afterwards it may read what was
            # computed before: the ledger tells which steps were right.
            raise own.notice(found)
        if not self.waits_in_python:
            return
        # JAX's declaration of arrays leaves `is_ready` out.
        is_ready: Callable[[], bool] = array.is_ready  # type: ignore[attr-defined]
        if is_ready():
            return
        # JAX would wait in native code, which Python cannot interrupt. A thread that
        # did so for this one could come back while Python ends, which aborts.
        since, gone_since = time.monotonic(), float("inf")
        while not is_ready():
            now = time.monotonic()
            if own.verdict is not None:
                gone_since = min(gone_since, now)
                if now > gone_since + RESULT_SECONDS:
                    raise own.notice(own.verdict)
            pause = _SLEEP_PART * (now - since)
            time.sleep(min(max(pause, _SLEEP_LEAST), _SLEEP_MOST))

    def look_at_newest(self) -> None:
        """Notices that a step has failed, for a program that reads no results.

        An array that depends on a failed one has failed, too, so the newest ones tell
        about all steps before.
        """
        for _ in range(_GLANCES):
            if self._own.verdict is not None:
                return
            try:
                for x in _arrays_of(self.newest):
                    if x.is_ready():  # type: ignore[attr-defined]
                        x.block_until_ready()
                return
            except Exception as error:
                # The next step may have taken the array over meanwhile.
                found = self._peers.find_reason(error)
                if isinstance(found, errors.WorkerError):
                    self._own.verdict = self._own.verdict or found
                    return


def _arrays_of(values: object) -> list[jax.Array]:
    """Returns the arrays of cells, or of a tree, that no other step has taken over."""
    if isinstance(values, list) and values and hasattr(values[0], "array"):
        values = [cell.array for cell in values]
    arrays = [x for x in jax.tree.leaves(values) if isinstance(x, jax.Array)]
    return [x for x in arrays if not x.is_deleted()]
