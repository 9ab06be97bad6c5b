"""What the devices of a worker know of the steps that all workers have taken.

Each compiled step of several workers sends two marks to the others, together with its
numbers: one of the steps up to this one, and one of the values that must be equal on
all workers. The devices compare them, and keep in the ledger which step was the first
that differed. Nothing that workers have computed is read before its step's ledger was
looked at. See docs/decisions/0013 and `execution/step_marks`.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from unisono._src.machines.topology import Topology

# The words of a ledger: the mark of all steps so far, the mark of their values, the
# number of steps, and the first step of which each of the two marks differed, or 0.
WORDS = 5
_STEPS, _FIRST_OTHER_STEP, _FIRST_OTHER_VALUE = 2, 3, 4
# After so many steps that nobody has looked at, old ledgers are dropped.
_KEPT = 32


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
        if len(pending) % _KEPT == 0:
            self._drop_old()

    def _drop_old(self) -> None:
        """Drops ledgers of which a newer one that is there tells the same."""
        with self._lock:
            while len(self._pending) > _KEPT and self._pending[_KEPT].is_ready():
                for _ in range(_KEPT):
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
