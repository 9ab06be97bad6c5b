"""What workers have, as the coordinator sees it: results, and datasets of their own."""

from __future__ import annotations

import abc
import contextlib
import weakref
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, NoReturn, TypeVar, cast, final

import jax
import numpy as np

from unisono._src.execution import host_inputs, signature
from unisono._src.foundation import errors, nest, wide_numbers
from unisono._src.servers.messages import ArrayShapes, DatasetDescription
from unisono._src.servers.resources import Resources
from unisono._src.servers.worker_data import DatasetMaker
from unisono._src.state import frames
from unisono._src.values.array_operators import unpack_scalar

# The kind of position in a saved state.
_KIND = "per-worker iterator"


class PerWorkerValue(abc.ABC):  # noqa: B024
    """A value with a component for each worker; abstract.

    A scheduled function that takes or uses one sees the component of the worker that
    runs it.
    """


@final
class PerWorkerIterator(host_inputs.HostIterator, PerWorkerValue):
    """An iterator of each worker over its own dataset.

    A checkpoint saves and restores the position of each worker in its dataset.

    Args:
        given: what each worker makes its dataset of.
        resources: where the workers' iterators are noted.
        workers: how many workers there are.
    """

    # Workers may need the lock that checkpoints hold while they read variables.
    _checkpoint_waits = True

    def __init__(self, given: object, resources: Resources, workers: int) -> None:
        super().__init__()
        self._resources, self._workers = resources, workers
        self.number = resources.add(DatasetMaker(given))
        # When nobody can use the iterator any more, the workers let theirs go.
        weakref.finalize(self, resources.drop, self.number)
        self._found: DatasetDescription | None = None
        self.shapes: ArrayShapes | None = None

    def _describe(self) -> DatasetDescription:
        """Returns the description of an iterator by the first worker that answers."""
        # Any worker will do: all make the dataset by the same function.
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
    def element_spec(self) -> object:
        """The shapes and types of an element."""
        return self._describe().spec

    def pull(self) -> Any:
        """Returns an element like those of workers, to trace a function with."""
        _, example, shapes = self._describe()
        if example is None:
            raise StopIteration
        # Zeros that take no memory: a trace looks at shapes and types only.
        wanted = self.shapes or shapes
        return signature.rebuild(
            example,
            iter([np.broadcast_to(np.zeros((), _dtype(t)), s) for s, t in wanted]),
        )

    def put_back(self, element: object) -> None:
        """Does nothing: the element was only an example for a trace."""

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

    def get_state(self) -> dict[str, Any]:
        """Returns the position of each worker as plain data.

        It counts the elements of functions that have ended by now; those of functions
        that wait are not taken yet.

        Raises:
            TypeError: a worker's dataset cannot tell its position.
        """
        workers = range(self._workers)
        return {"kind": _KIND, "workers": [self._ask(i, "get_state") for i in workers]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Lets each worker continue from its position.

        Args:
            state: what `get_state` has returned.

        Raises:
            TypeError: a worker's dataset cannot do that.
            ValueError: the positions are those of another number of workers, or of
                another kind of dataset; nothing has changed then.
        """
        if not isinstance(state, dict) or state.get("kind") != _KIND:
            raise ValueError(
                "Expected the positions that get_state() of a per-worker iterator "
                f"returned, received {state!r:.200}."
            )
        wanted = state["workers"]
        if len(wanted) != self._workers:
            raise ValueError(
                f"The positions are those of {len(wanted)} workers, and there are "
                f"{self._workers} now. Use as many workers, or leave the iterator out "
                "of the checkpoint."
            )
        # All workers or none: what has moved goes back if one refuses.
        before = self.get_state()["workers"]
        try:
            for worker, position in enumerate(wanted):
                self._ask(worker, "set_state", position)
        except Exception:
            for worker, position in enumerate(before):
                self._ask(worker, "set_state", position)
            raise

    def _ask(self, worker: int, method: str, *args: object) -> Any:
        return self._resources.ask(worker, self.number, method, *args)


@final
class PerWorkerDataset(PerWorkerValue):
    """A dataset of each worker; `create_per_worker_dataset` makes it.

    Iterate over it once, outside functions, and give the iterator to scheduled
    functions.
    """

    def __init__(self, given: object, resources: Resources, workers: int) -> None:
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
    def element_spec(self) -> object:
        """The shapes and types of an element."""
        return (self._last or iter(self)).element_spec


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(jax.numpy, name, name))


_R = TypeVar("_R")


class RemoteValue(abc.ABC, Generic[_R]):
    """The result of a function that was passed to `ClusterCoordinator.schedule`.

    `schedule` returns it immediately. Its value is known when a worker has run the
    function.

    >>> import unisono
    >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     unisono.distribute.cluster_resolver.SimpleClusterResolver(cluster),
    ...     carrier="threads",
    ... )
    >>> coordinator = unisono.distribute.coordinator.ClusterCoordinator(strategy)
    >>> remote = coordinator.schedule(unisono.function(lambda: {"loss": 0.5}))
    >>> remote.fetch(), remote.get()
    ({'loss': np.float32(0.5)}, {'loss': Array(0.5, dtype=float32...)})
    >>> strategy.shutdown()
    """

    def fetch(self) -> _R:
        """Waits for the result, and returns it as NumPy arrays.

        Raises:
            CancelledError: the function was cancelled because another one failed, or
                because the coordinator does not exist any more.
            Exception: the error of the function itself.
        """
        return cast(_R, nest.map_structure(_as_numpy, self._wait()))

    def get(self) -> _R:
        """Waits for the result, and returns it as JAX arrays of this process.

        Raises:
            CancelledError: as for `fetch`.
            Exception: the error of the function itself.
        """
        return cast(_R, nest.map_structure(_as_array, self._wait()))

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise TypeError(
            "A RemoteValue is the result of a scheduled function, which may not be "
            "there yet: use its fetch() or get(), and pass what these return to "
            "other functions."
        )

    @abc.abstractmethod
    def _wait(self) -> object:
        """Waits for the result, and returns it as it came, or raises its error."""


@final
class ScheduledValue(RemoteValue[_R]):
    """A `RemoteValue` as the coordinator sees it, which sets the result."""

    def __init__(self) -> None:
        self._outcome: Future[object] = Future()

    def _wait(self) -> object:
        return self._outcome.result()

    def succeed(self, value: object) -> None:
        """Sets the result; the first one stays."""
        with contextlib.suppress(InvalidStateError):
            self._outcome.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Sets the error; a result that is there stays."""
        with contextlib.suppress(InvalidStateError):
            self._outcome.set_exception(error)


def _as_numpy(x: object) -> object:
    return unpack_scalar(x) if isinstance(x, np.ndarray) else x


def _as_array(x: object) -> object:
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    return wide_numbers.as_jax(x, None, "the result of a closure")
