"""The history of a worker's steps, in a form that workers can compare.

Each step has a mark that depends on the step and on all steps before it. So two workers
with equal marks at one step have done the same up to there, and a difference long ago
still shows in the newest marks.
"""

from __future__ import annotations

import collections
import json
import zlib
from typing import final

from unisono._src.workers.step_ledger import StepLedger

# A worker remembers so many of its own steps.
_KEPT = 4096
# In characters: a longer history of another worker is ignored.
_LARGEST = 1 << 22


@final
class StepHistory:
    """The last steps of this worker, with their marks.

    Attributes:
        step: the number of the last step.
        mark: its mark.
    """

    def __init__(self) -> None:
        self.step, self.mark = 0, 0
        self._steps: collections.deque[tuple[int, int, object]] = collections.deque(
            maxlen=_KEPT
        )
        # Steps that a ledger counts: the ledger, its count, and the step's number.
        self._counted: collections.deque[tuple[StepLedger, int, int]] = (
            collections.deque(maxlen=_KEPT)
        )

    def add(self, label: object, text: str, ledger: StepLedger | None = None) -> None:
        """Adds a step.

        Args:
            label: what the step is, for people.
            text: the same as a text, in which all kinds of steps differ.
            ledger: the ledger that counts the step, if one does.
        """
        self.step += 1
        if ledger is not None:
            self._counted.append((ledger, ledger.count + 1, self.step))
        self.mark = zlib.crc32(text.encode(), self.mark)
        self._steps.append((self.step, self.mark, label))

    def take_back(self) -> None:
        """Removes the last step, which was not taken."""
        self._steps.pop()
        if self._counted and self._counted[-1][2] == self.step:
            self._counted.pop()
        self.step -= 1
        self.mark = self._steps[-1][1] if self._steps else 0

    def find_counted(self, ledger: StepLedger, count: int) -> int | None:
        """Returns the number of the step that a ledger counts as `count`, if known."""
        every = self._counted.copy()
        found = (n for which, c, n in every if which is ledger and c == count)
        return next(found, None)

    def last(self, count: int) -> list[tuple[int, int, object]]:
        """Returns the number, mark and label of the last steps."""
        # The program goes on while a thread reads this; a copy of a deque is atomic.
        return list(self._steps.copy())[-count:]

    def marks(self) -> dict[int, int]:
        """Returns the marks of all steps that are remembered, by number."""
        return {n: mark for n, mark, _ in self._steps.copy()}

    def find(self, step: int) -> tuple[int, object] | None:
        """Returns the mark and the label of a step; None if it is not remembered."""
        # The numbers are consecutive. While a thread looks, the program may add a step
        # and drop the oldest one, so that all move down by one.
        for _ in range(3):
            try:
                number, mark, label = self._steps[step - self._steps[0][0]]
            except IndexError:
                return None
            if number == step:
                return mark, label
        return None

    def write(self) -> str:
        """Returns the history as a text for other workers."""
        steps = list(self._steps.copy())
        # Each label once: a program repeats few steps many times.
        texts = list(dict.fromkeys(repr(x)[:500] for _, _, x in steps))
        numbers = {text: i for i, text in enumerate(texts)}
        told = [[n, mark, numbers[repr(x)[:500]]] for n, mark, x in steps]
        return json.dumps({"labels": texts, "steps": told})


def find_difference(own: StepHistory, told: str) -> tuple[int, object, str] | None:
    """Returns the first step in which another worker differs, if the texts show it.

    Args:
        own: the history of this worker.
        told: what the other one has written.

    Returns:
        The number of the step, this worker's label and the other's.
    """
    if len(told) > _LARGEST:
        return None
    try:
        found = json.loads(told)
        labels = [str(x) for x in found["labels"]]
        theirs = {int(n): (int(m), labels[int(i)]) for n, m, i in found["steps"]}
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    mine = own.marks()
    shared = sorted(mine.keys() & theirs.keys())
    differing = [n for n in shared if mine[n] != theirs[n][0]]
    # Only a step whose predecessor is the same for both is known to be the first.
    if not differing or (differing[0] == shared[0] and shared[0] > 1):
        return None
    first = differing[0]
    return first, (own.find(first) or (0, None))[1], theirs[first][1]
