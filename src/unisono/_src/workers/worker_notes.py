"""Exchanges short notes between workers, from any thread and at any time.

Unlike a collective, a note does not take part in the order of steps. So a thread that
prepares input can agree with its peers on other workers about the next batch while the
main thread is in the middle of this one.

A barrier, a point of the program that no worker passes before all have reached it, is a
round of notes and not a collective. So a worker may wait there while another one writes
files for minutes.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import Any, Protocol, final

from unisono._src.foundation import errors, jax_internals
from unisono._src.workers import watchdog
from unisono._src.workers.coordination_client import CoordinationClient

# In characters. A text in JSON takes up to twelve for each of its own.
_LARGEST_NOTE = 1 << 19
# After each wait of this length the thread looks whether it should give up.
_POLL_MILLISECONDS = 500


class Cancelled(Exception):
    """Raised where a thread waits for a note and its own process has given up."""


class GroupMember(Protocol):
    """A worker among those that exchange notes: a `Topology`, or a `ProcessGroup`."""

    @property
    def workers(self) -> int:
        """The number of workers."""

    @property
    def worker(self) -> int:
        """The number of this process among them."""


@final
class NoteExchange:
    """Exchanges notes about one topic in rounds; every worker posts one in each.

    Args:
        group: the workers.
        topic: the topic; it is the same on all workers, and no other exchange of a
            worker has it.
        seconds: how long to wait for the others in each round.
    """

    def __init__(self, group: GroupMember, topic: str, seconds: float = 30.0) -> None:
        self._group = group
        self._topic = topic
        self._seconds = seconds
        self._rounds = itertools.count()
        self._last: str | None = None
        self._number = 0
        self._cancelled = False

    def post(self, note: str, seconds: float | None = None) -> list[str]:
        """Posts a note, and waits for those of the others in this round.

        Args:
            note: the text of the note.
            seconds: how long to wait for the others; by default the exchange's time.

        Returns:
            The notes of all workers, in their order.

        Raises:
            ValueError: the note is too long.
            WorkerError: a worker posts nothing in time, or is known to be gone.
            Cancelled: another thread has called `cancel`.
        """
        if len(note) > _LARGEST_NOTE:
            raise ValueError(
                f"A note has at most {_LARGEST_NOTE} characters, received {len(note)}."
            )
        number, own = next(self._rounds), self._group.worker
        self._number = number
        if self._group.workers == 1:
            return [note]
        # The note of the round before: the others may read it until they post in this
        # one.
        before = self._last
        self._set(number, note)
        limit = self._seconds if seconds is None else seconds
        found = [
            note if i == own else self._wait(number, i, limit)
            for i in range(self._group.workers)
        ]
        # All have posted in this round, so all have read the notes of the last one.
        _delete(before)
        return found

    def find_silent(self) -> list[int]:
        """Returns the workers that have posted nothing in the latest round yet."""
        client = _find_client()
        silent = []
        for worker in range(self._group.workers):
            if worker == self._group.worker:
                continue
            # This call looks, and does not wait: on a busy machine a wait of a
            # millisecond ends before the answer to it comes.
            try:
                client.key_value_try_get(self._place(self._number, worker))
            except RuntimeError:
                silent.append(worker)
        return silent

    def cancel(self) -> None:
        """Makes the thread that waits for notes give up; ends the rounds."""
        self._cancelled = True

    def renew(self) -> NoteExchange:
        """Cancels this exchange, and returns a new one for the same topic.

        All workers must do so. The new exchange begins with its first round.
        """
        self.cancel()
        # Another topic gives the notes other keys, so that the notes of old rounds,
        # which differ between workers, are not read.
        return NoteExchange(self._group, f"{self._topic}, again", self._seconds)

    def leave(self, note: str) -> None:
        """Posts a last note, and does not wait for those of the others."""
        if self._group.workers > 1:
            self._set(next(self._rounds), note)

    def _set(self, number: int, note: str) -> None:
        self._last = self._place(number, self._group.worker)
        _find_client().key_value_set(self._last, note)

    def clear(self) -> None:
        """Deletes this worker's last note; call it when all workers have read it."""
        place, self._last = self._last, None
        _delete(place)

    def _place(self, number: int, worker: int) -> str:
        return f"unisono/board/{self._topic}/{number}/{worker}"

    def _wait(self, number: int, worker: int, seconds: float) -> str:
        client, place = _find_client(), self._place(number, worker)
        until = time.monotonic() + seconds
        while True:
            try:
                return client.blocking_key_value_get(place, _POLL_MILLISECONDS)
            except RuntimeError:
                if self._cancelled:
                    raise Cancelled(self._topic) from None
                found = watchdog.explain_absence(worker)
                if found is None and time.monotonic() < until:
                    continue
                # The worker may have posted the note just before its end.
                with contextlib.suppress(RuntimeError):
                    return client.key_value_try_get(place)
                if found is not None:
                    raise watchdog.notice(found) from None
                raise errors.WorkerStalledError(
                    f"Worker {worker} has not said anything about {self._topic} "
                    f"(round {number}) for {seconds:g} s.",
                    worker,
                ) from None


def _find_client() -> CoordinationClient:
    # JAX has no public way to the client of its coordination service.
    found: Any = jax_internals.distributed_state.client
    client: CoordinationClient = found
    return client


def _delete(place: str | None) -> None:
    if place is not None:
        with contextlib.suppress(RuntimeError):
            _find_client().key_value_delete(place)


@final
class _Barriers:
    """The barriers of this process, which all workers reach in the same order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exchange: NoteExchange | None = None

    def wait(self, group: GroupMember, name: str, seconds: float) -> None:
        # One at a time, so that the rounds of all workers have the same order.
        with self._lock:
            if self._exchange is None:
                self._exchange = NoteExchange(group, "barriers")
            try:
                watchdog.publish()
                notes = self._exchange.post(f"{watchdog.count_steps()} {name}", seconds)
            except errors.WorkerStalledError as error:
                # Nobody is silent if the last one has come only now, too late.
                late = self._exchange.find_silent() or [error.worker or 0]
                raise errors.WorkerStalledError(
                    f"strategy.barrier({name!r}) has waited {seconds:g} s for "
                    f"{_name_workers(late)} to call it as well.",
                    late[0],
                ) from None
        counts, names = zip(*[note.split(" ", 1) for note in notes], strict=True)
        if len(set(names)) > 1:
            raise errors.different_points_error(
                [f"strategy.barrier({n!r})" for n in names]
            )
        # First the comparison of marks, whose error names the first step that differs.
        watchdog.compare()
        if len(set(counts)) > 1:
            told = ", ".join(f"worker {i} {n}" for i, n in enumerate(counts))
            raise errors.WorkerMismatchError(
                f"The workers come to strategy.barrier({name!r}) after different "
                f"numbers of steps: {told}. All workers must call the same functions "
                "in the same order."
            )


_BARRIERS = _Barriers()


def wait_at_barrier(group: GroupMember, name: str, seconds: float) -> None:
    """Return when every worker has called this.

    Args:
        group: the workers.
        name: the name of the point in the program, the same on all workers.
        seconds: how long to wait for the others.

    Raises:
        WorkerStalledError: some workers have not come in time; it names them.
        WorkerMismatchError: the workers gave different names.
        WorkerError: a worker has failed meanwhile.
    """
    if group.workers > 1:
        _BARRIERS.wait(group, name, seconds)


def _name_workers(numbers: list[int]) -> str:
    told = ", ".join(str(n) for n in numbers)
    return f"worker {told}" if len(numbers) == 1 else f"the workers {told}"
