"""The history of a worker's steps, in a form that workers can compare.

Each step has a mark that depends on the step and on all steps before it. So two workers
with equal marks at one step have done the same up to there, and a difference long ago
still shows in the newest marks.

Each compiled step of several workers sends two marks to the others, together with its
numbers: one of the steps up to this one, and one of the values that must be equal on
all workers. The devices compare them, and keep in the ledger which step was the first
that differed. Nothing that workers have computed is read before its step's ledger was
looked at. See docs/decisions/0013 and `execution/step_marks`.
"""

from __future__ import annotations

import collections
import json
import threading
import zlib
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from unisono._src.machines.topology import Topology

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


# The words of a ledger: the mark of all steps so far, the mark of their values, the
# number of steps, and the first step of which each of the two marks differed, or 0.
WORDS = 5
_STEPS, _FIRST_OTHER_STEP, _FIRST_OTHER_VALUE = 2, 3, 4
# After so many steps that nobody has looked at, old ledgers are dropped.
_KEPT_LEDGERS = 32


@final
class _LedgerReader:
    """Reads the array of a ledger.

    Attributes:
        read: JAX's own way, once `guarded_reads` has put another one in its place,
            which would look at the ledger first.
    """

    read: Callable[[Any], Any] = staticmethod(np.asarray)


READER = _LedgerReader()


@final
class StepLedger:
    """The ledger of the steps on the devices of one topology.

    Args:
        topology: the devices.

    Attributes:
        count: how many steps have gone into it.
    """

    def __init__(self, topology: Topology) -> None:
        self.count = 0
        self._array: Any = topology.spread(np.zeros(WORDS, np.uint32))
        self._devices = len(topology.own_devices)
        # Those of steps whose results nobody has read yet, oldest first. Each tells of
        # all steps before it, too.
        self._pending: collections.deque[Any] = collections.deque()
        self._difference: tuple[int, bool] | None = None
        # Held while a ledger is looked at, so that no other thread reads a number in
        # between.
        self._lock = threading.Lock()

    @property
    def array(self) -> Any:
        """The ledger after the last step, on the devices; a step takes it over."""
        return self._array

    @array.setter
    def array(self, new: jax.Array) -> None:
        self._array = new
        self.count += 1
        pending = self._pending
        pending.append(new)
        if len(pending) % _KEPT_LEDGERS == 0:
            self._drop_old()

    def _drop_old(self) -> None:
        """Drops ledgers of which a newer one that is there tells the same."""
        with self._lock:
            while (
                len(self._pending) > _KEPT_LEDGERS
                and self._pending[_KEPT_LEDGERS].is_ready()
            ):
                for _ in range(_KEPT_LEDGERS):
                    self._pending.popleft()

    def find_difference(self) -> tuple[int, bool] | None:
        """Returns the first step in which workers differed, as far as steps are done.

        A caller that holds a result of a step finds that step done.

        Returns:
            How many steps of this ledger the workers had taken, that one included, and
            whether they took the same step and differed in its values only. None if
            they do not differ.
        """
        if self._pending:
            with self._lock:
                words = self._take_newest()
                if words is not None and self._difference is None:
                    self._difference = _read_difference(words)
        return self._difference

    def _take_newest(self) -> Any:
        """Returns the words of the newest ledger that is there, and drops older ones.

        Returns:
            None if there is none that can be read.
        """
        pending = self._pending
        at, piece = len(pending), None
        while piece is None and at:
            at -= 1
            piece = self._find_piece(pending[at])
        if piece is None:
            return None
        for _ in range(at + 1):
            pending.popleft()
        return READER.read(piece)

    def _find_piece(self, array: Any) -> Any:
        """Returns a ledger on a device that has it; None if no device does yet."""
        # The devices of this process may be at different steps for a moment. What was
        # read may come from the one that is ahead.
        for i in range(self._devices):
            try:
                piece = array.addressable_data(i)
                if piece.is_ready():
                    return piece.block_until_ready()
            except (RuntimeError, ValueError):
                # The step has failed; whoever reads its results gets the error.
                return None
        return None


def _read_difference(words: np.ndarray) -> tuple[int, bool] | None:
    """Returns the first step that differed, and whether only its values did."""
    step, value = int(words[_FIRST_OTHER_STEP]), int(words[_FIRST_OTHER_VALUE])
    if not step and not value:
        return None
    only_values = bool(value) and (not step or value < step)
    return (value, True) if only_values else (step, False)
