"""Objects that each worker makes for itself, such as a dataset's iterator."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Any, final

from unisono._src.foundation import errors
from unisono._src.foundation.public_names import publish
from unisono._src.servers import carrier as carrier_lib
from unisono._src.servers.carrier import WORKER, Carrier
from unisono._src.servers.messages import DatasetDescription


class ClosureInputError(Exception):
    """A worker could not create a dataset that a scheduled function uses.

    Its cause is the error that the dataset function raised.
    """


@final
class Resources:
    """Keeps the functions that make resources, and notes which worker has made which.

    Args:
        carrier: reaches the workers.
        workers: how many there are.

    Attributes:
        rounds: for each worker, how often it was replaced.
    """

    def __init__(self, carrier: Carrier, workers: int) -> None:
        self._carrier = carrier
        self.workers = workers
        self.rounds = [0] * workers
        self._numbers = itertools.count()
        self._makers: dict[int, Callable[[], object]] = {}
        self._built: list[dict[int, DatasetDescription | Exception]] = [
            {} for _ in range(workers)
        ]
        # One lock for each worker: two threads must not make one resource twice.
        self._locks = [threading.RLock() for _ in range(workers)]
        self._dropped: list[set[int]] = [set() for _ in range(workers)]

    def add(self, make: Callable[[], object]) -> int:
        """Adds a resource, which each worker makes when it is first needed."""
        number = next(self._numbers)
        self._makers[number] = make
        return number

    def drop(self, number: int) -> None:
        """Forgets a resource that no closure can use any more."""
        # Called when an iterator is garbage: only notes, no locks and no calls.
        self._makers.pop(number, None)
        for dropped in self._dropped:
            dropped.add(number)

    def build(self, worker: int, numbers: Iterable[int]) -> None:
        """Lets a worker make those of the resources that it does not have.

        Raises:
            ClosureInputError: making one has failed.
            UnavailableError: the worker is gone.
        """
        for number in numbers:
            # -1 is the worker's own number, which it has.
            if number >= 0:
                self.describe(worker, number)

    def describe(self, worker: int, number: int) -> DatasetDescription:
        """Returns a worker's description of a resource, which it makes if need be."""
        with self._locks[worker]:
            self._forget(worker)
            built = self._built[worker]
            if number not in built:
                try:
                    told = self.call(worker, "build", number, self._makers[number])
                    # A carrier may turn named tuples into plain ones.
                    built[number] = DatasetDescription(*told)
                except errors.UnavailableError:
                    raise
                except Exception as error:
                    # Kept: each closure that uses the resource gets the error, and the
                    # dataset function does not run again for each of them.
                    built[number] = error
            found = built[number]
        if isinstance(found, Exception):
            raise ClosureInputError(
                f"The worker {worker} could not make its dataset: "
                f"{type(found).__name__}: {found}"
            ) from found
        return found

    def ask(self, worker: int, number: int, method: str, *args: object) -> Any:
        """Calls a method of a worker's resource, which it makes if need be.

        A worker that is gone is replaced first.

        Raises:
            ClosureInputError: making the resource has failed.
            UnavailableError: there is no place for a new worker yet.
        """
        try:
            self.describe(worker, number)
            return self.call(worker, "ask", number, method, *args)
        except errors.UnavailableError:
            self.recover(worker)
            return self.call(worker, "ask", number, method, *args)

    def _forget(self, worker: int) -> None:
        dropped = self._dropped[worker]
        if dropped:
            # One by one, because `drop` may add to the set at any moment.
            gone = [dropped.pop() for _ in range(len(dropped))]
            held = [n for n in gone if self._built[worker].pop(n, None) is not None]
            if held:
                self.call(worker, "forget", held)

    def recover(self, worker: int) -> None:
        """Replaces a worker that is gone, and lets the new one make all resources.

        Raises:
            ClosureInputError: making a resource has failed.
            UnavailableError: there is no place for a new worker yet.
        """
        with self._locks[worker]:
            try:
                # Another thread may have replaced the worker already.
                self.call(worker, "ping")
            except errors.UnavailableError:
                self._built[worker].clear()
                self._carrier.replace(WORKER, worker)
                # By this the runner notices that the worker has none of its programs.
                self.rounds[worker] += 1
            self.build(worker, list(self._makers))

    def call(self, worker: int, method: str, *args: object) -> Any:
        """Calls a method of a worker, and returns its result."""
        made = self._carrier.worker(worker).call(method, *args)
        return carrier_lib.wait(made, WORKER, worker, f"'{method}'")


publish("unisono.distribute.coordinator", ClosureInputError)
