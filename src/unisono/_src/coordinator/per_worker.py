"""Datasets of which each worker has its own, as the coordinator sees them."""

from __future__ import annotations

import abc
import weakref
from typing import Any, NoReturn, final

import jax
import numpy as np

from unisono._src.coordinator.resources import Resources
from unisono._src.coordinator.worker_data import DatasetMaker
from unisono._src.execution import host_inputs, signature
from unisono._src.foundation import errors
from unisono._src.foundation.public_names import publish
from unisono._src.state import frames


class PerWorkerValue(abc.ABC):  # noqa: B024
    """Something of which each worker has its own; abstract.

    A scheduled function that is given one, or uses one, sees the component of the
    worker that runs it.
    """


@final
class PerWorkerIterator(host_inputs.HostIterator, PerWorkerValue):
    """An iterator of each worker over its own dataset.

    Args:
        given: what each worker makes its dataset of.
        resources: where the workers' iterators are noted.
        workers: how many workers there are.
    """

    def __init__(self, given: Any, resources: Resources, workers: int) -> None:
        super().__init__()
        self._resources, self._workers = resources, workers
        self.number = resources.add(DatasetMaker(given))
        # When nobody can use the iterator any more, the workers let theirs go.
        weakref.finalize(self, resources.drop, self.number)
        self._found: Any = None
        self.shapes: Any = None

    def _describe(self) -> Any:
        """Returns what the first worker that answers says of its iterator."""
        worker = 0
        while self._found is None:
            try:
                self._found = self._resources.describe(worker, self.number)
            except errors.UnavailableError:
                if worker + 1 == self._workers:
                    self._resources.recover(0)
                worker = (worker + 1) % self._workers
        return self._found

    @property
    def element_spec(self) -> Any:
        """The shapes and types of an element."""
        return self._describe()[0]

    def pull(self) -> Any:
        """Returns an element like those of workers, to trace a function with."""
        _, example, shapes = self._describe()
        if example is None:
            raise StopIteration
        wanted = self.shapes or shapes
        return signature.rebuild(
            example,
            iter([np.broadcast_to(np.zeros((), _dtype(t)), s) for s, t in wanted]),
        )

    def put_back(self, element: Any) -> None:
        """Takes back an element that was only traced with."""

    def __next__(self) -> Any:
        if frames.frame().is_compiled:
            return super().__next__()
        raise NotImplementedError(
            "Iterating over a per-worker iterator on the coordinator is not supported. "
            "Call next(iterator) in a function that you give to "
            "ClusterCoordinator.schedule."
        )

    def get_next(self) -> Any:
        """Returns the next element of the worker, in a scheduled function."""
        return next(self)


@final
class PerWorkerDataset(PerWorkerValue):
    """A dataset of each worker; `create_per_worker_dataset` makes it.

    Iterate over it once, outside functions, and give the iterator to scheduled
    functions.
    """

    def __init__(self, given: Any, resources: Resources, workers: int) -> None:
        self._given, self._resources, self._workers = given, resources, workers
        self._last: PerWorkerIterator | None = None

    def __iter__(self) -> PerWorkerIterator:
        """Returns a new iterator on each worker.

        Raises:
            RuntimeError: called in a function that is being traced.
        """
        if frames.frame().is_compiled:
            raise RuntimeError(
                "__iter__() is not supported inside of tf.function. Call iter() on the "
                "dataset outside, and pass the iterator to the function."
            )
        self._last = PerWorkerIterator(self._given, self._resources, self._workers)
        return self._last

    def __next__(self) -> NoReturn:
        raise NotImplementedError(
            "A per-worker dataset is no iterator; call iter() on it first."
        )

    @property
    def element_spec(self) -> Any:
        """The shapes and types of an element."""
        return (self._last or iter(self)).element_spec


def _dtype(name: str) -> Any:
    return np.dtype(getattr(jax.numpy, name, name))


publish("unisono.distribute.coordinator", PerWorkerValue)
