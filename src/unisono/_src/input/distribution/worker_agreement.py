"""Lets workers agree on each step: who still has data, and whether parts match."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import cursors, elements, nodes
from unisono._src.workers import worker_notes

# The first character of a note that tells of a failure; no JSON begins with it.
_FAILED = "!"
# Characters of a traceback that are sent to the others; its end says what went wrong.
_LARGEST_REPORT = 4000


@final
class AgreedSteps(cursors.SamePosition):
    """The steps of several workers: as many for each as the one with the most data has.

    A worker without data gets empty parts, so that all workers make the same steps. The
    thread that reads tells the others what this worker has, ahead of the step that uses
    it.

    Args:
        source: the steps of this worker.
        node: its plan, which tells the structure of an element.
        share: the replicas of this worker.
        notes: the exchange of notes between the workers.
        is_whole: whether the steps end when one worker has no more data.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        node: nodes.Node,
        share: steps.Share,
        notes: worker_notes.NoteExchange,
        is_whole: bool = False,
    ) -> None:
        super().__init__(source)
        # Asked about the notes of a step, of which
        # that of a worker without data is empty.
        self._enough = all if is_whole else any
        self._node, self._share, self._exchange = node, share, notes
        self._settled: bool | None = None

    def _is_settled(self) -> bool:
        """Whether no notes are needed: all workers have endless steps of one shape."""
        if self._settled is None:
            # An endless dataset of one shape needs no
            # agreement, which costs a round of notes.
            own = str(self._node.spec) if sharding_rule.is_constant(self._node) else ""
            # Every worker posts here once, also one that has nothing to say: a round
            # ends when all have posted.
            told = self._exchange.post(own)
            self._settled = bool(own) and len(set(told)) == 1
        return self._settled

    def read(self, count: int) -> list[steps.Step]:
        """Returns the next steps, on each of which the workers agree."""
        if self._is_settled():
            return [s._replace(even=True) for s in self._source.read(count)]
        found: list[steps.Step] = []
        while len(found) < count:
            own = self._read_own()
            told = self._exchange.post(_make_note(own[0]) if own else "")
            check_failures(told)
            if not self._enough(told):
                break
            # Empty notes are of workers without data.
            shapes = {json.dumps(part) for note in told for part in _parse_note(note)}
            # Shapes and types of all parts, compared as text.
            even = all(told) and len(shapes) == 1
            step = own[0] if own else self._make_empty_step(told)
            found.append(step._replace(even=even))
        return found

    def _read_own(self) -> Sequence[steps.Step]:
        """Reads a step of this worker; if that raises, tells the others first."""
        try:
            return self._source.read(1)
        except Exception:
            # The others wait for a note of this worker, so it tells them first.
            self._exchange.post(report_failure())
            raise

    def _make_empty_step(self, told: Sequence[str]) -> steps.Step:
        """Returns a step of empty parts, like those of a worker with data."""
        like = iter(_parse_note(next(note for note in told if note))[0])
        empty = elements.map_leaves(lambda _: _make_empty(*next(like)), self._node.spec)
        return steps.Step([empty] * self._share.local, None, 0)

    def units(self, found: Sequence[steps.Step]) -> int:
        """Returns the units of the source."""
        return self._source.units(found)

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the position in the source; all workers must do so."""
        # The workers may have read ahead by different numbers of steps, so their notes
        # no longer match: all begin anew with a fresh exchange.
        self._exchange = self._exchange.renew()
        self._source.set_state(state)

    def cancel(self) -> None:
        """Stops waiting for the other workers."""
        self._exchange.cancel()
        super().cancel()


def _make_note(step: steps.Step) -> str:
    """Returns the shape and type of every array of every part, as JSON."""
    return json.dumps(
        [
            [[list(np.shape(x)), elements.as_array(x).dtype.str] for x in leaves]
            for leaves in map(elements.leaves, step.parts())
        ]
    )


def _parse_note(note: str) -> list[Any]:
    """Returns the parts that a note describes."""
    return json.loads(note) if note else []


def _make_empty(shape: list[int], kind: str) -> np.ndarray:
    """Returns an array of no rows."""
    return elements.blank([0, *shape[1:]] if shape else [], np.dtype(kind))


def report_failure() -> str:
    """Returns the note about the exception that is being handled."""
    return _FAILED + traceback.format_exc()[-_LARGEST_REPORT:]


def check_failures(told: Sequence[str]) -> None:
    """Raises if a worker has told that it failed.

    Args:
        told: the notes of all workers.

    Raises:
        WorkerFailedError: with the report of that worker.
    """
    for worker, note in enumerate(told):
        if note.startswith(_FAILED):
            raise errors.WorkerFailedError(
                f"Worker {worker} failed while it read its input:\n{note[1:]}", worker
            )
