"""Finds the first step in which workers differ, and says what each did there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import final

import jax

from unisono._src.foundation import errors
from unisono._src.machines.topology import Topology
from unisono._src.workers import step_history, worker_records
from unisono._src.workers.coordination_client import CoordinationClient
from unisono._src.workers.step_ledger import StepLedger

# Where workers write their steps in the coordination service.
_PLACE = "unisono/guard/history"
# How long a worker waits for the steps of one that differs, to name the first of them.
_HISTORY_SECONDS = 1.0


@final
class StepComparison:
    """The steps of this worker beside those of the others.

    The devices compare the steps while they take them, and keep the result in ledgers.
    The workers exchange what their steps were only if these differ.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
        pause: the seconds between two looks at what the others have written.

    Attributes:
        history: the steps of this worker.
    """

    def __init__(self, client: CoordinationClient, worker: int, pause: float) -> None:
        self.history = step_history.StepHistory()
        self._client = client
        self._worker = worker
        self._pause = pause
        self._ledgers: dict[Topology, StepLedger] = {}

    def find_ledger(self, topology: Topology) -> StepLedger:
        """Returns the ledger of the steps on some devices."""
        found = self._ledgers.get(topology)
        if found is None:
            found = self._ledgers[topology] = StepLedger(topology)
        return found

    def find_unfinished(self) -> list[jax.Array]:
        """Returns an array of each ledger that is there when all steps are done."""
        return [ledger.array for ledger in self._ledgers.values()]

    def find_difference(
        self, look: Callable[[], errors.WorkerError | None]
    ) -> errors.WorkerError | None:
        """Returns the error about a step that is done, if workers differed in it.

        Args:
            look: looks at the records of the others, and returns the error that they
                show. They tell more than the devices know.
        """
        # A copy: another thread may add one.
        for ledger in list(self._ledgers.values()):
            found = ledger.find_difference()
            if found is not None:
                return self._explain(ledger, *found, look)
        return None

    def _explain(
        self,
        ledger: StepLedger,
        count: int,
        only_values: bool,
        look: Callable[[], errors.WorkerError | None],
    ) -> errors.WorkerError:
        """Returns the error about a step in which the devices found a difference."""
        step = self.history.find_counted(ledger, count)
        label = (self.history.find(step or 0) or (0, "an earlier step"))[1]
        if only_values:
            return worker_records.value_error(step, label)
        # The others publish their records soon.
        until = time.monotonic() + _HISTORY_SECONDS + 10 * self._pause
        while (told := look()) is None and time.monotonic() < until:
            time.sleep(self._pause)
        return told or worker_records.order_error(step, label)

    def exchange_histories(
        self, others: Collection[int]
    ) -> dict[int, tuple[int, object, str]]:
        """Returns the first step in which each of the other workers differs.

        The records have the last steps only, and the label of the last one. So the
        workers exchange all the steps that they remember.

        Args:
            others: the numbers of the other workers.

        Returns:
            By worker, the step's number, this worker's label and the other's; nothing
            for a worker that does not differ, or has written nothing in time.
        """
        histories: dict[int, str] = {}
        until = time.monotonic() + _HISTORY_SECONDS
        with contextlib.suppress(Exception):
            text = worker_records.clean(self.history.write())
            own = f"{_PLACE}/{self._worker}"
            self._client.key_value_set(own, text, allow_overwrite=True)
            # All of them, because most of the workers are right.
            while time.monotonic() < until and len(histories) < len(others):
                for key, told in self._client.key_value_dir_get(_PLACE):
                    worker = key.rpartition("/")[2]
                    if worker.isdigit() and int(worker) in others:
                        histories[int(worker)] = told
                time.sleep(self._pause)
        found = {
            i: step_history.find_difference(self.history, told)
            for i, told in histories.items()
        }
        return {i: first for i, first in found.items() if first is not None}
