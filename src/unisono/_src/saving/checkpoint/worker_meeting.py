"""Meetings, in which the workers of a job agree to save or restore together.

Both are collective (docs/decisions/0015). Workers exchange short notes in rounds: that
they have come, that they have the same objects, the values that differ between them,
and how writing ended. A round has a time limit, and its error names the worker that did
not come. Meetings are numbered and use separate notes, because a save may go on in the
background while the next meeting begins.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.machines import forks
from unisono._src.workers import process_group, watchdog, worker_notes

# How long a worker waits for the others to come.
_COME_SECONDS = 30.0
# How long it waits for a worker that reads or writes files.
FILES_SECONDS = 600.0
# A longer text is sent in several notes. JSON takes up to twelve characters for one of
# the text, and a note has room for that.
_PIECE_LENGTH = 1 << 15


def is_writer() -> bool:
    """Whether this worker writes and removes checkpoints, which the chief does."""
    return process_group.current().is_chief


@final
class _Meetings:
    """The numbered meetings of this process.

    Every worker holds the same meetings in the same order, so equal numbers mean the
    same meeting. The lock is needed because background saves end in other threads.
    """

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.lock = threading.Lock()
        self.open: set[int] = set()
        self.over: dict[int, worker_notes.NoteExchange] = {}

    def enter(self, number: int) -> int:
        with self.lock:
            self.open.add(number)
            return min(self.open)

    def close(self, number: int, notes: worker_notes.NoteExchange) -> None:
        with self.lock:
            self.open.discard(number)
            self.over[number] = notes

    def forget_before(self, number: int) -> None:
        """Deletes the notes of meetings that every worker has left."""
        with self.lock:
            done = [self.over.pop(n) for n in list(self.over) if n < number]
        for notes in done:
            notes.clear()


_MEETINGS = _Meetings()


@final
class Meeting:
    """A meeting of all workers, about to do one thing; a single worker meets itself.

    Args:
        what: what the workers are about to do, in the user's terms.
        detail: something that may differ between workers, such as a path.

    Attributes:
        details: the details of all workers.

    Raises:
        WorkerError: not all workers come, or some are about to do something else.
        RuntimeError: this process was forked after JAX had started.
    """

    def __init__(self, what: str, detail: str = "") -> None:
        forks.check(what.capitalize())
        self._what = what
        self._group = process_group.current()
        self._number = next(_MEETINGS.numbers)
        self._notes = worker_notes.NoteExchange(self._group, f"{what} ({self._number})")
        self.details = [detail]
        if self._group.size == 1:
            return
        # A step in the guard's count: a worker that does something
        # else is found (decision 0013).
        watchdog.enter(what)
        # Before the workers meet, so that each finds the records of all afterwards.
        watchdog.publish()
        # The oldest meeting that is still open here. What is older than that on every
        # worker is over for all, and its notes can go.
        first = _MEETINGS.enter(self._number)
        with self.share_failure():
            notes = self._exchange([what, first, detail], _COME_SECONDS)
            points = [str(note[0]) for note in notes]
            if len(set(points)) > 1:
                raise errors.different_points_error(points)
            # Values that were computed while workers differed must not be saved.
            watchdog.compare()
        self.details = [str(note[2]) for note in notes]
        _MEETINGS.forget_before(min(int(note[1]) for note in notes))

    @property
    def index(self) -> int:
        """The number of this worker."""
        return self._group.index

    @property
    def is_joint(self) -> bool:
        """Whether there are other workers."""
        return self._group.size > 1

    def end(self) -> None:
        """Ends the meeting for this worker; nothing more can be exchanged."""
        if self._group.size > 1:
            _MEETINGS.close(self._number, self._notes)

    @contextlib.contextmanager
    def share_failure(self) -> Iterator[None]:
        """Runs a block; if it fails, the other workers are told in their next round.

        Without that they would wait for this worker until their time is over.
        """
        try:
            yield
        except BaseException as error:
            self._notes.leave(json.dumps({"failed": _describe(error)}))
            self.end()
            raise

    def gather(self, text: str, seconds: float = _COME_SECONDS) -> list[str]:
        """Returns the texts of all workers; equal texts are compared by digest only."""
        mark = hashlib.sha256(text.encode()).hexdigest()
        # Most often all texts are equal, and one short note tells so.
        marks = self._exchange([mark, len(text)], seconds)
        if all(m == marks[0] for m in marks):
            return [text] * len(marks)
        texts = [""] * len(marks)
        for start in range(0, max(int(m[1]) for m in marks), _PIECE_LENGTH):
            pieces = self._exchange([text[start : start + _PIECE_LENGTH]], seconds)
            texts = [t + str(p[0]) for t, p in zip(texts, pieces, strict=True)]
        return texts

    def check_same(self, mark: str, shown: str, otherwise: str) -> None:
        """Raises unless all workers give the same mark.

        Args:
            mark: the text that must be the same.
            shown: how the message shows it.
            otherwise: the beginning of the message.

        Raises:
            WorkerMismatchError: a worker gives another mark.
        """
        notes = self._exchange([mark, shown], FILES_SECONDS)
        if any(n[0] != notes[0][0] for n in notes):
            told = "; ".join(f"worker {i}: {n[1]}" for i, n in enumerate(notes))
            raise errors.WorkerMismatchError(f"{otherwise} {told}.")

    def finish(self) -> None:
        """Waits until all workers have finished, and ends the meeting.

        Raises:
            WorkerFailedError: a worker has failed.
        """
        try:
            self._exchange(["done"], FILES_SECONDS)
        finally:
            self.end()

    def broadcast_from_chief(self, text: str) -> str:
        """Returns the chief's text on every worker; waits while it works on files.

        Args:
            text: the text to send; that of other workers is ignored.
        """
        return str(self._exchange([text[:_PIECE_LENGTH]], FILES_SECONDS)[0][0])

    def _exchange(self, note: list[Any], seconds: float) -> list[list[Any]]:
        """Returns the notes of all workers in one round.

        Raises:
            WorkerFailedError: a worker has reported a failure instead.
            WorkerError: a worker has posted nothing in time, or something unreadable.
        """
        told = self._notes.post(json.dumps(note), seconds)
        found = [
            note if i == self.index else _parse_note(t) for i, t in enumerate(told)
        ]
        for worker, other in enumerate(found):
            # Notes are lists; `share_failure` posts a dict.
            if isinstance(other, dict):
                raise errors.WorkerFailedError(
                    f"Worker {worker} failed in {self._what}: {other.get('failed')}",
                    worker,
                )
            if len(other) != len(note):
                raise errors.garbled_message_error(
                    "a note of another kind than expected"
                )
        return found


def ask_chief(what: str, find: Callable[[], str]) -> str:
    """Returns on every worker the text that a function returns on the chief.

    Args:
        what: what the workers meet for, for messages.
        find: the function, which the chief alone calls.
    """
    meeting = Meeting(what)
    with meeting.share_failure():
        own = find() if is_writer() else ""
    found = meeting.broadcast_from_chief(own)
    meeting.end()
    return found


def _describe(error: BaseException) -> str:
    # Notes have a limit of length.
    return f"{type(error).__name__}: {error}"[:4000]


def _parse_note(text: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list | dict):
        raise errors.garbled_message_error("a note that is not what workers send")
    return found
