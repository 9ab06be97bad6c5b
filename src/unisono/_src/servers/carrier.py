"""Carriers: how the coordinator reaches servers and workers, and workers reach servers.

A carrier starts a `ParameterServer` for each server and a `Worker` for each worker, in
processes or threads of its own, and carries calls of their methods. All that crosses it
is plain data: numbers, strings, bytes, NumPy arrays, tuples, lists and dictionaries of
these, and the named tuples of `messages`. Dataset functions are the one exception.
"""

from __future__ import annotations

import abc
import concurrent.futures
import logging
from concurrent.futures import Future
from typing import Any, TypeVar

from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.foundation import errors

_log = logging.getLogger("unisono")

_R = TypeVar("_R")
SERVER, WORKER = "ps", "worker"
# Seconds; TensorFlow waits as long for a worker that was lost.
PATIENCE = 3600.0
# Seconds after which a warning says, once, which task has not answered.
_NEWS = 60.0


class Handle(abc.ABC):
    """Calls the methods of one server or one worker; abstract.

    A carrier passes the handles of the servers to workers, so it must be able to send
    handles.
    """

    @abc.abstractmethod
    def call(self, method: str, *args: object) -> Future[Any]:
        """Calls a method of the server or worker, and returns immediately.

        The calls from one caller to one object run in order, one at a time.

        Args:
            method: the name of the method.
            *args: its arguments.

        Returns:
            A future with the result, or with the error that the method raised. If the
            server or worker was lost, the error is an `UnavailableError` that names it.
        """


class Carrier(abc.ABC):
    """Runs servers and workers, and returns handles to call them; abstract.

    Attributes:
        is_synchronous: whether `Handle.call` returns only when the call is done, so
            that the order of all calls is known.
        is_remote: whether calls go to other processes, which makes each call expensive.
    """

    is_synchronous = False
    is_remote = False

    @abc.abstractmethod
    def start(self, cluster: ClusterSpec) -> None:
        """Starts all servers and workers, and returns when they answer.

        Args:
            cluster: the servers and workers, with their addresses if they have any.

        Raises:
            UnavailableError: one of them does not answer.
        """

    @abc.abstractmethod
    def server(self, index: int) -> Handle:
        """Returns a handle of a server, which can be passed to workers."""

    @abc.abstractmethod
    def worker(self, index: int) -> Handle:
        """Returns a handle of a worker."""

    @abc.abstractmethod
    def address(self, kind: str, index: int) -> str:
        """Returns where a server or worker runs, for messages.

        Args:
            kind: SERVER or WORKER.
            index: which one.
        """

    @abc.abstractmethod
    def replace(self, kind: str, index: int) -> None:
        """Starts a new, empty server or worker in place of a lost one.

        It returns when the new one answers. Handles that `server` and `worker` return
        from then on call the new one.

        Args:
            kind: SERVER or WORKER.
            index: which one.

        Raises:
            UnavailableError: it cannot be started yet; the caller tries again.
        """

    @abc.abstractmethod
    def lose(self, kind: str, index: int) -> None:
        """Ends a server or worker at once, as if its process were killed."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends all servers and workers, and everything that was started for them."""


def wait(call: Future[_R], kind: str, index: int, what: str) -> _R:
    """Returns the result of a call, or raises its error.

    Args:
        call: the call.
        kind: the kind of the task that was called.
        index: the number of that task.
        what: what the task was asked to do, for messages.

    Raises:
        UnavailableError: it has not answered for an hour, or is gone.
    """
    try:
        return call.result(_NEWS)
    except concurrent.futures.TimeoutError:
        # The error of the call itself, or a result that came as the wait ended.
        if call.done():
            return call.result()
    _log.warning("The %s %d has not answered for %d s: %s.", kind, index, _NEWS, what)
    try:
        return call.result(PATIENCE - _NEWS)
    except concurrent.futures.TimeoutError:
        if call.done():
            return call.result()
        raise errors.UnavailableError(
            f"The {kind} {index} has not answered for {PATIENCE:.0f} s: {what}.",
            kind,
            index,
        ) from None
