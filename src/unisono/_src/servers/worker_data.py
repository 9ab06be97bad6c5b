"""Datasets of workers: described on the coordinator, made and read on each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, Protocol, cast, final

import numpy as np

from unisono._src import input as pipelines
from unisono._src.execution import function, host_inputs, signature
from unisono._src.input.api import iterators
from unisono._src.servers import messages
from unisono._src.state import creation


class _WorkerDataset(Protocol):
    """A dataset of unisono, or of another library."""

    @property
    def element_spec(self) -> object:
        """The shapes and types of an element."""

    def __iter__(self) -> Iterator[Any]: ...


@final
class WorkerBatches:
    """A dataset that `experimental_distribute_dataset` gives to every worker.

    Args:
        dataset: the dataset; every worker gets all of it.
    """

    def __init__(self, dataset: _WorkerDataset) -> None:
        self._dataset = dataset

    @property
    def element_spec(self) -> object:
        """The shapes and types of an element."""
        return self._dataset.element_spec

    def make(self) -> _WorkerDataset:
        """Returns the dataset, on a worker."""
        return self._dataset

    def __iter__(self) -> NoReturn:
        raise _read_by_workers_error()


@final
class WorkerFunction:
    """A dataset that each worker makes with `distribute_datasets_from_function`.

    Args:
        dataset_fn: a function of an `InputContext` that returns the dataset.
        replicas: the number of replicas of a worker.
    """

    def __init__(self, dataset_fn: Callable[..., Any], replicas: int) -> None:
        self._dataset_fn = function.python_function(dataset_fn)
        self._replicas = replicas

    def make(self) -> Iterable[Any]:
        """Returns the dataset, on a worker."""
        # One pipeline of one: each worker reads all of its own dataset.
        context = pipelines.input_options.InputContext(1, 0, self._replicas)
        made: Iterable[Any] = pipelines.input_options.call_dataset_fn(
            self._dataset_fn, context
        )
        return made

    def __iter__(self) -> NoReturn:
        raise _read_by_workers_error()


def _read_by_workers_error() -> NotImplementedError:
    return NotImplementedError(
        "A dataset of a ParameterServerStrategy is read by its workers. Give it to "
        "ClusterCoordinator.create_per_worker_dataset, and pass the iterator of that "
        "to a scheduled function."
    )


@final
class WorkerStrategy:
    """Stands for the strategy in dataset functions of workers in other processes.

    Args:
        num_replicas_in_sync: the number of replicas of a worker.

    Attributes:
        num_replicas_in_sync: the number of replicas of a worker.
    """

    def __init__(self, num_replicas_in_sync: int) -> None:
        self.num_replicas_in_sync = num_replicas_in_sync

    def experimental_distribute_dataset(
        self, dataset: _WorkerDataset, options: object = None
    ) -> WorkerBatches:
        """Returns the dataset; this worker gets all of it."""
        return WorkerBatches(dataset)

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[..., Any], options: object = None
    ) -> WorkerFunction:
        """Returns the dataset that the function makes for this worker."""
        return WorkerFunction(dataset_fn, self.num_replicas_in_sync)


@final
class DatasetMaker:
    """Makes a worker's iterator; it travels to the worker.

    Args:
        given: a dataset, a function without arguments that returns one, or what the
            strategy has made of one.
    """

    def __init__(self, given: object) -> None:
        # Programs do not travel, and a dataset needs none.
        self._given: Any = function.python_function(cast("Any", given))

    def __call__(self) -> WorkerIterator:
        """Returns a new iterator over a new dataset, on a worker.

        Raises:
            ValueError: the function has returned something else.
        """
        found = self._given
        if callable(found) and not hasattr(found, "element_spec"):
            with creation.variable_creator_scope(_refuse_variable):
                found = found()
        if isinstance(found, (WorkerBatches, WorkerFunction)):
            found = found.make()
        if not hasattr(found, "__iter__"):
            raise ValueError(
                f"Unexpected dataset type! The dataset function returned {found!r}. "
                "Return a dataset, such as a unisono.data.Dataset."
            )
        return WorkerIterator(found)


def _refuse_variable(next_creator: object, **kwargs: object) -> NoReturn:
    """Raises `ValueError`: the dataset of a worker must make no variables."""
    raise ValueError(
        f"The function of a per-worker dataset creates the variable "
        f"{kwargs.get('name') or 'Variable'!r}. Create variables in strategy.scope(), "
        "outside the function."
    )


@final
class WorkerIterator:
    """Reads a dataset on a worker.

    Args:
        dataset: the dataset.
    """

    def __init__(self, dataset: Iterable[Any]) -> None:
        self._dataset = dataset
        self._iterator: Iterator[Any] = iter(dataset)
        self._returned: list[Any] = []

    def pull(self) -> object:
        """Returns the next element."""
        if isinstance(self._iterator, host_inputs.HostIterator):
            return self._iterator.pull()
        return self._returned.pop() if self._returned else next(self._iterator)

    def put_back(self, element: object) -> None:
        """Takes back an element that was not used."""
        if isinstance(self._iterator, host_inputs.HostIterator):
            # Its position, which checkpoints save, goes back by one, too.
            self._iterator.put_back(element)
        else:
            self._returned.append(element)

    def get_state(self) -> dict[str, Any]:
        """Returns the position as plain data.

        Raises:
            TypeError: the dataset cannot tell it.
        """
        return self._get_positioned().get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Continues from a position.

        Raises:
            TypeError: the dataset cannot do that.
            ValueError: the position is that of another kind of dataset.
        """
        self._get_positioned().set_state(state)

    def _get_positioned(self) -> iterators.PositionedIterator:
        if isinstance(self._iterator, iterators.PositionedIterator):
            return self._iterator
        raise TypeError(
            "The position of a per-worker iterator over a "
            f"{type(self._dataset).__name__} cannot be saved or restored. Make the "
            "dataset with unisono.data.Dataset, such as Dataset.from_loader(loader), "
            "or leave the iterator out of the checkpoint."
        )

    def describe(self) -> messages.DatasetDescription:
        """Returns what the coordinator must know of the dataset."""
        spec = getattr(self._dataset, "element_spec", None)
        try:
            element = self.pull()
        except StopIteration:
            return messages.DatasetDescription(spec)
        self.put_back(element)
        flat: list[Any] = []
        example = signature.flatten(element, flat, None)
        arrays = [np.asarray(x) for x in flat]
        shapes = messages.describe_arrays(arrays)
        return messages.DatasetDescription(spec, example, shapes)


@final
class WorkerNumber(host_inputs.HostIterator):
    """Gives the number of the worker to a closure, as if it came from a dataset."""

    number = messages.INDEX

    def pull(self) -> np.ndarray:
        """Returns a number of the type that workers give."""
        return np.asarray(0, np.int32)

    def put_back(self, element: object) -> None:
        """Does nothing: a worker has only one number."""


NUMBER = WorkerNumber()
