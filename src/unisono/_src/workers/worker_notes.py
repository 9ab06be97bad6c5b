"""Short notes between workers that any thread may exchange, at its own pace.

Unlike a collective, a note does not take part in the order of steps: a thread that
prepares input may agree with its peers on other workers about the next batch while the
main thread is in the middle of this one.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from typing import Any, Protocol, final

from jax._src import distributed

from unisono._src.foundation import errors
from unisono._src.workers import watchdog

_LARGEST_NOTE = 1 << 16
_POLL_MILLISECONDS = 500


class Cancelled(Exception):
    """The process that waits has given up."""


class Crew(Protocol):
    """Workers that exchange notes: a `Topology`, or a `processes.Group`."""

    @property
    def workers(self) -> int:
        """How many there are."""

    @property
    def worker(self) -> int:
        """Which of them this process is."""


@final
class Board:
    """Rounds of notes about one topic: in each, every worker posts one.

    Args:
        crew: the workers.
        topic: the same on all workers, and used by one board of each only.
        seconds: how long to wait for the others in each round.
    """

    def __init__(self, crew: Crew, topic: str, seconds: float = 30.0) -> None:
        self._crew = crew
        self._topic = topic
        self._seconds = seconds
        self._rounds = itertools.count()
        self._last: str | None = None
        self._cancelled = False

    def post(self, note: str, seconds: float | None = None) -> list[str]:
        """Post a note and wait for those of the others in this round.

        Args:
            note: what to tell.
            seconds: how long to wait for the others; default that of the board.

        Returns:
            The notes of all workers, in their order.

        Raises:
            ValueError: the note is too long.
            WorkerError: a worker posts nothing in time, or is known to be gone.
            Cancelled: this process gave up.
        """
        if len(note) > _LARGEST_NOTE:
            raise ValueError(
                f"A note may have {_LARGEST_NOTE} characters, received {len(note)}."
            )
        number, own = next(self._rounds), self._crew.worker
        if self._crew.workers == 1:
            return [note]
        client, before = distributed.global_state.client, self._last
        self._set(number, note)
        limit = self._seconds if seconds is None else seconds
        found = [
            note if i == own else self._wait(client, number, i, limit)
            for i in range(self._crew.workers)
        ]
        # All have posted in this round, so all have read those of the last one.
        _delete(client, before)
        return found

    def cancel(self) -> None:
        """Give up waiting, in whichever thread that is; there are no more rounds."""
        self._cancelled = True

    def renewed(self) -> Board:
        """A board for the same topic from its first round on, on all workers."""
        self.cancel()
        return Board(self._crew, f"{self._topic}, again", self._seconds)

    def leave(self, note: str) -> None:
        """Post a last note, and do not wait for those of the others."""
        if self._crew.workers > 1:
            self._set(next(self._rounds), note)

    def _set(self, number: int, note: str) -> None:
        client: Any = distributed.global_state.client
        self._last = self._place(number, self._crew.worker)
        client.key_value_set(self._last, note)

    def clear(self) -> None:
        """Take back the own note of the last round, when all are known to have it."""
        place, self._last = self._last, None
        _delete(distributed.global_state.client, place)

    def _place(self, number: int, worker: int) -> str:
        return f"unisono/board/{self._topic}/{number}/{worker}"

    def _wait(self, client: Any, number: int, worker: int, seconds: float) -> str:
        place = self._place(number, worker)
        until = time.monotonic() + seconds
        while True:
            try:
                return str(client.blocking_key_value_get(place, _POLL_MILLISECONDS))
            except RuntimeError:
                watching = watchdog.CURRENT.guard
                if watching is not None and watching.verdict is not None:
                    raise watching.verdict from None
                if self._cancelled:
                    raise Cancelled(self._topic) from None
                if time.monotonic() > until:
                    raise errors.WorkerStalledError(
                        f"Worker {worker} has not said anything about {self._topic} "
                        f"(round {number}) for {seconds:g} s.",
                        worker,
                    ) from None


def _delete(client: Any, place: str | None) -> None:
    if place is not None:
        with contextlib.suppress(RuntimeError):
            client.key_value_delete(place)
