"""`RemoteValue`: the result of a scheduled function, which a worker computes."""

from __future__ import annotations

import abc
import threading
from typing import Generic, NoReturn, TypeVar, cast, final

import numpy as np

from unisono._src.foundation import nest, wide_numbers
from unisono._src.foundation.public_names import publish

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
        # Set last, by the thread of a worker: whoever has waited sees the value or
        # error.
        self._event = threading.Event()
        self._value: object = None
        self._error: BaseException | None = None

    def _wait(self) -> object:
        self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value

    def succeed(self, value: object) -> None:
        """Sets the result; the first one stays."""
        if not self._event.is_set():
            self._value = value
            self._event.set()

    def fail(self, error: BaseException) -> None:
        """Sets the error; a result that is there stays."""
        if not self._event.is_set():
            self._error = error
            self._event.set()


def _as_numpy(x: object) -> object:
    if isinstance(x, np.ndarray):
        return x[()] if x.ndim == 0 else x
    return x


def _as_array(x: object) -> object:
    if not isinstance(x, (np.ndarray, np.generic)):
        return x
    return wide_numbers.as_jax(x, None, "the result of a closure")


publish("unisono.distribute.coordinator", RemoteValue)
