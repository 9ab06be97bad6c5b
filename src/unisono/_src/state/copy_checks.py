"""Takes checksums of the copies of mirrored variables, every so many steps.

Compiled steps and the steps of Keras call `note_step`, if the program runs with
``unisono launch --check-replicas`` or its environment variable. Several workers compare
the checksums by their records (`workers/copy_comparison`). A process that belongs to no
group compares the copies on its own devices.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import final

import jax

from unisono._src.cluster import replica_checks
from unisono._src.foundation import errors
from unisono._src.state import storage
from unisono._src.state.storage import Cell
from unisono._src.values import bit_sums
from unisono._src.workers import process_exit, watchdog
from unisono._src.workers.copy_comparison import CopyComparison, TakenSums
from unisono._src.workers.worker_records import RUNS

# How long the end of a program waits for the last checksums.
_END_SECONDS = 5.0


@final
class CopyChecks:
    """The comparisons of this process.

    Args:
        every: after how many steps copies are compared again.

    Attributes:
        every: the same.
        process: the number of the process that compares.
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.process = os.getpid()
        self._due = every
        self._steps = 0
        self._alone = CopyComparison(None, 0, 0.0)

    def note_step(
        self, find: Callable[[], Mapping[Cell, jax.Array]] | None = None
    ) -> None:
        """Takes the checksums if they are due; raises if copies are known to differ.

        Args:
            find: returns the arrays of variables whose values a loop has taken over.

        Raises:
            WorkerMismatchError: copies on devices of this process differ. Where there
                are other workers, the next step raises it.
        """
        guard = watchdog.CURRENT.guard
        self._steps = self._steps + 1 if guard is None else guard.step
        if self._steps >= self._due:
            self._due = (self._steps // self.every + 1) * self.every
            self._take(self._steps, {} if find is None else find())
        if guard is None and self._alone.collect():
            found = self._alone.find_difference({})
            if found is not None:
                raise found

    def _take(self, step: int, given: Mapping[Cell, jax.Array]) -> None:
        """Has the devices compute the checksums of all copies."""
        guard = watchdog.CURRENT.guard
        comparison = self._alone if guard is None else guard.copies
        # No other thread may donate an array between here and the call.
        with storage.LOCK:
            found = _find_copies(given, guard is not None)
            taken = [
                TakenSums(
                    {_number(c): c.name for c in arrays},
                    bit_sums.sum_copies(list(arrays.values()), devices),
                )
                for devices, arrays in found.items()
            ]
        if taken:
            comparison.add(step, taken)

    def finish(self) -> None:
        """Compares the copies once more, when the program ends."""
        guard = watchdog.CURRENT.guard
        if guard is not None and (guard.own.state != RUNS or guard.own.verdict):
            return
        step = (self._steps if guard is None else guard.step) + 1
        until = time.monotonic() + _END_SECONDS
        comparison = self._alone if guard is None else guard.copies
        found: errors.WorkerError | None = None
        # The backend may be gone, or a step may have failed; both have been told.
        with contextlib.suppress(Exception):
            self._take(step, {})
            while comparison.is_waiting and time.monotonic() < until:
                comparison.collect()
                time.sleep(0.001)
            if guard is None:
                found = comparison.find_difference({})
        if found is not None:
            process_exit.end_with(found)


_Copies = dict[tuple[jax.Device, ...], dict[Cell, jax.Array]]


def _find_copies(given: Mapping[Cell, jax.Array], in_group: bool) -> _Copies:
    """Returns the arrays of which devices of this process have copies, by devices.

    Args:
        given: the arrays of variables whose cells have none now.
        in_group: whether other workers have copies, too.
    """
    found: _Copies = {}
    every = dict.fromkeys([*storage.live_cells(), *given])
    for cell in sorted(every, key=_number):
        array = given.get(cell, cell.array)
        # Copies that replicas write one by one may differ until they have all done so.
        if not cell.is_replicated or cell.is_suspect or array.is_deleted():
            continue
        # A copy of a variable that one worker makes for itself has no like.
        if in_group and not (cell.is_spread and cell.born):
            continue
        found.setdefault(cell.topology.own_devices, {})[cell] = array
    return {devices: _put_small_first(arrays) for devices, arrays in found.items()}


def _put_small_first(arrays: dict[Cell, jax.Array]) -> dict[Cell, jax.Array]:
    """Returns the same arrays in the order that few programs can compute."""
    # The sort is stable, so that the order is the same on all workers.
    return dict(sorted(arrays.items(), key=lambda x: x[1].nbytes > bit_sums.LARGE))


def _number(cell: Cell) -> int:
    """Returns the number of a cell; with other workers the same on all of them."""
    return cell.born or cell.serial


@final
class _Current:
    """The comparisons of this process, if it asks for any."""

    checks: CopyChecks | None = None


def find_checks() -> CopyChecks | None:
    """Returns the comparisons of this process; None if it asks for none.

    Raises:
        ValueError: the environment variable is not a number of steps.
    """
    every = replica_checks.check_interval()
    if not every:
        return None
    if _Current.checks is None or _Current.checks.every != every:
        if _Current.checks is None:
            # It runs before the guard tells the other workers that this one leaves.
            atexit.register(_finish)
        _Current.checks = CopyChecks(every)
    return _Current.checks


def _finish() -> None:
    checks = _Current.checks
    # A forked child ends as well, and must not use JAX.
    if checks is not None and checks.process == os.getpid():
        checks.finish()
