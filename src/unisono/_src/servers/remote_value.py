"""`RemoteValue`: the result of a scheduled function, which a worker computes."""

from __future__ import annotations

import abc
import contextlib
from concurrent.futures import Future, InvalidStateError
from typing import Generic, NoReturn, TypeVar, cast, final

import numpy as np

from unisono._src.foundation import nest, wide_numbers
from unisono._src.values.array_operators import unpack_scalar

_R = TypeVar("_R")


class RemoteValue(abc.ABC, Generic[_R]):
    """The result of a function that `ClusterCoordinator.schedule` was given.

    `schedule` returns it at once; its content comes when a worker has run the function.

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
        """Waits for the result, and returns it with NumPy arrays.

        Raises:
            CancelledError: the function was cancelled because another one has failed,
                or because the coordinator is gone.
            Exception: the error of the function itself.
        """
        return cast(_R, nest.map_structure(_as_numpy, self._wait()))

    def get(self) -> _R:
        """Waits for the result, and returns it with JAX's arrays on this process.

        Raises:
            CancelledError: as for `fetch`; also the error of the function itself.
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
