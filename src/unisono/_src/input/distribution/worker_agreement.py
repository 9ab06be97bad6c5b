"""Workers agree, step by step, who still has data and whether their parts are alike."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from unisono._src.foundation import errors
from unisono._src.input.distribution import sharding_rule, steps
from unisono._src.input.plan import cursors, elements, nodes, seeds
from unisono._src.workers import worker_notes

_LOG = logging.getLogger("unisono")
_FAILED = "!"
_LARGEST_REPORT = 4000


@final
class Together(cursors.OfSource):
    """Steps of several workers, as many for each as the one with the most data has.

    A worker without data gets empty parts, so that all make the same steps. What each
    one has is told ahead of the step that uses it, by the thread that reads.

    Args:
        source: the steps of this worker.
        node: its plan, which tells the structure of an element.
        share: how many replicas this worker has.
        notes: where the workers meet.
        is_whole: whether the steps end when one worker has no more data.
    """

    def __init__(
        self,
        source: cursors.Cursor,
        node: nodes.Node,
        share: steps.Share,
        notes: worker_notes.Board,
        is_whole: bool = False,
    ) -> None:
        super().__init__(source)
        self._enough = all if is_whole else any
        self._node, self._share, self._board = node, share, notes
        self._settled: bool | None = None

    def _settle(self) -> bool:
        """Whether nothing needs to be said: all have endless steps of one shape."""
        if self._settled is None:
            own = str(self._node.spec) if sharding_rule.is_constant(self._node) else ""
            told = self._board.post(own)
            self._settled = bool(own) and len(set(told)) == 1
        return self._settled

    def read(self, count: int) -> list[steps.Step]:
        """Agree on each step."""
        if self._settle():
            return [s._replace(even=True) for s in self._source.read(count)]
        found: list[steps.Step] = []
        while len(found) < count:
            own = self._own()
            told = self._board.post(_note(own[0]) if own else "")
            _check(told)
            if not self._enough(told):
                break
            shapes = {json.dumps(part) for note in told for part in _parts(note)}
            even = all(told) and len(shapes) == 1
            step = own[0] if own else self._without_data(told)
            found.append(step._replace(even=even))
        return found

    def _own(self) -> Sequence[steps.Step]:
        try:
            return self._source.read(1)
        except Exception:
            # The others would wait for this worker's part.
            report = traceback.format_exc()[-_LARGEST_REPORT:]
            self._board.post(_FAILED + report)
            raise

    def _without_data(self, told: Sequence[str]) -> steps.Step:
        like = iter(_parts(next(note for note in told if note))[0])
        empty = elements.map_leaves(lambda _: _empty(*next(like)), self._node.spec)
        return steps.Step([empty] * self._share.local, None, 0)

    def units(self, found: Sequence[steps.Step]) -> int:
        """Those of the source."""
        return self._source.units(found)

    def skip(self, count: int) -> int:
        """In the units of the source; each worker by itself."""
        return self._source.skip(count)

    def get_state(self) -> dict[str, Any]:
        """The position in the source."""
        return self._source.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the position in the source, on all workers."""
        # Those of the others may have read further ahead than this one, or less far.
        self._board = self._board.renew()
        self._source.set_state(state)

    def cancel(self) -> None:
        """Wait no more for the others."""
        self._board.cancel()
        super().cancel()


def _note(step: steps.Step) -> str:
    """Shape and type of every array of every part."""
    return json.dumps(
        [
            [[list(np.shape(x)), elements.as_array(x).dtype.str] for x in leaves]
            for leaves in map(elements.leaves, step.parts())
        ]
    )


def _parts(note: str) -> list[Any]:
    return json.loads(note) if note else []


def _check(told: Sequence[str]) -> None:
    for worker, note in enumerate(told):
        if note.startswith(_FAILED):
            raise errors.WorkerFailedError(
                f"Worker {worker} failed while it read its input:\n{note[1:]}", worker
            )


def _empty(shape: list[int], kind: str) -> np.ndarray:
    dtype = np.dtype(kind)
    if shape:
        shape = [0, *shape[1:]]
    return np.full(shape, b"", object) if dtype.kind == "O" else np.zeros(shape, dtype)


def share_seeds(node: nodes.Node, notes: worker_notes.Board) -> None:
    """Give every worker the seeds of worker 0.

    Workers that keep their share of every batch, or of a list of files, must have it in
    the same order, or examples are lost and others come twice.
    """
    if any(getattr(n, "is_random", False) for n in nodes.walk(node)):
        _LOG.warning(
            "Every worker reads the whole loader and keeps its share of each batch, "
            "but this one shuffles by itself, so workers would read different batches, "
            "and examples would be lost and others come twice. Give it a generator "
            "with the same seed on all workers: torch.Generator().manual_seed(0)."
        )
    found = seeds.Orders([node])
    told = notes.post(json.dumps(found.get_state()))
    found.set_state(json.loads(told[0]))
