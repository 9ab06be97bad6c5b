"""Short notes between workers that any thread may exchange, at its own pace.

Unlike a collective, a note does not take part in the order of steps: a thread that
prepares input may agree with its peers on other workers about the next batch while the
main thread is in the middle of this one.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any

from jax._src import distributed

from unisono._src import errors, guard
from unisono._src.topology import Topology

_LARGEST_NOTE = 1 << 16
_POLL_MILLISECONDS = 500


class Board:
    """Rounds of notes about one topic: in each, every worker posts one.

    Args:
        topology: whose workers they are.
        topic: the same on all workers, and used by one board of each only.
        seconds: how long to wait for the others in each round.
    """

    def __init__(self, topology: Topology, topic: str, seconds: float = 30.0) -> None:
        self._topology = topology
        self._topic = topic
        self._seconds = seconds
        self._rounds = itertools.count()

    def post(self, note: str) -> list[str]:
        """Post a note and wait for those of the others in this round.

        Returns:
            The notes of all workers, in their order.

        Raises:
            ValueError: the note is too long.
            WorkerError: a worker posts nothing in time, or is known to be gone.
        """
        if len(note) > _LARGEST_NOTE:
            raise ValueError(
                f"A note may have {_LARGEST_NOTE} characters, received {len(note)}."
            )
        number, own = next(self._rounds), self._topology.worker
        if not self._topology.is_spread:
            return [note]
        client: Any = distributed.global_state.client
        client.key_value_set(self._place(number, own), note)
        until = time.monotonic() + self._seconds
        found = [
            note if i == own else self._wait(client, number, i, until)
            for i in range(self._topology.workers)
        ]
        if number > 0:
            # All have posted in this round, so all have read those of the last one.
            with contextlib.suppress(RuntimeError):
                client.key_value_delete(self._place(number - 1, own))
        return found

    def _place(self, number: int, worker: int) -> str:
        return f"unisono/board/{self._topic}/{number}/{worker}"

    def _wait(self, client: Any, number: int, worker: int, until: float) -> str:
        place = self._place(number, worker)
        while True:
            try:
                return client.blocking_key_value_get(place, _POLL_MILLISECONDS)
            except RuntimeError:
                watching = guard.CURRENT.guard
                if watching is not None and watching.verdict is not None:
                    raise watching.verdict from None
                if time.monotonic() > until:
                    raise errors.WorkerStalledError(
                        f"Worker {worker} has not said anything about {self._topic} "
                        f"(round {number}) for {self._seconds:g} s.",
                        worker,
                    ) from None
