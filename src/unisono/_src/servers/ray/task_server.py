"""`distribute.Server`: lends this machine to a cluster, for one task."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Iterator
from typing import Any, final

from unisono._src.cluster import untrusted
from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.cluster.session_config import ConfigProto
from unisono._src.foundation import errors
from unisono._src.servers.ray import connection, library, node

_log = logging.getLogger("unisono")

_CHIEF = "chief"
# Seconds; TensorFlow's coordinator waits as long for a worker that was lost.
_PATIENCE = 3600.0
# Seconds between two warnings that name the task that is waited for.
_NEWS = 60.0
_PAUSE = 0.2


@final
class Server:
    """Makes this machine available to a `ParameterServerStrategy`, as one of its tasks.

    Run it on every machine with a ``worker`` or ``ps`` task. It starts a Ray node in a
    child process, which joins the cluster that the chief starts. The strategy then runs
    the worker or the parameter server on this node. The chief may start later, and may
    be restarted.

    A program that creates all servers and the strategy in one process does not need a
    chief, as in TensorFlow's tutorial: the strategy starts local workers and parameter
    servers.

    If the tasks are in several processes, they all need the same secret in the
    environment variable ``RAY_AUTH_TOKEN``. `unisono launch --ps` sets it. Whoever
    knows it can run code in the job.

    Args:
        server_or_cluster_def: the cluster: a `ClusterSpec` or a dictionary of jobs.
        job_name: the job of this task, such as ``"worker"``. You can leave it out if
            the cluster has one job.
        task_index: the index of this task. You can leave it out if its job has one
            task.
        protocol: ``"grpc"``, which Ray uses, or None.
        config: a `compat.v1.ConfigProto`, which has no effect, or None.
        start: whether to start immediately.

    Raises:
        ValueError: the cluster does not have this task, or it has other machines and no
            chief.
        RuntimeError: there is no token.
        ModuleNotFoundError: Ray is not installed.

    >>> import os, unisono
    >>> if os.environ.get("TF_CONFIG"):
    ...     resolver = unisono.distribute.cluster_resolver.TFConfigClusterResolver()
    ...     if resolver.task_type in ("worker", "ps"):
    ...         unisono.distribute.Server(
    ...             resolver.cluster_spec(), resolver.task_type, resolver.task_id
    ...         ).join()
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = None,
        config: ConfigProto | None = None,
        start: bool = True,
    ) -> None:
        if protocol not in (None, "grpc"):
            raise ValueError(
                f"The protocol is {untrusted.excerpt(protocol)}; Ray speaks 'grpc'."
            )
        if not isinstance(config, ConfigProto | None):
            raise ValueError(
                "The config of a Server is a compat.v1.ConfigProto, or None; received "
                f"{untrusted.excerpt(config)}."
            )
        library.load()
        cluster = ClusterSpec(server_or_cluster_def)
        self._job, self._index = _find_task(cluster, job_name, task_index)
        self._address = cluster.task_address(self._job, self._index)
        self._node_loop: _NodeLoop | None = None
        self._chief = self._token = ""
        if _CHIEF in cluster.jobs:
            self._chief = cluster.task_address(_CHIEF, 0)
            self._token = connection.require_token(self._address)
        elif not node.is_loopback(connection.split(self._address)[0]):
            raise _no_chief_error()
        if start:
            self.start()

    @classmethod
    def create_local_server(
        cls, config: ConfigProto | None = None, start: bool = True
    ) -> Server:
        """Creates the server of a cluster with only this task, on a free port.

        Args:
            config: a `compat.v1.ConfigProto`, which has no effect, or None.
            start: whether to start immediately.

        >>> import unisono
        >>> server = unisono.distribute.Server.create_local_server()
        >>> server.target.rpartition(":")[0]
        'grpc://localhost'
        """
        cluster = {"localhost": [f"localhost:{node.find_free_port()}"]}
        return cls(cluster, config=config, start=start)

    @property
    def target(self) -> str:
        """The address of this task, with the protocol."""
        return f"grpc://{self._address}"

    def start(self) -> None:
        """Starts to wait for the chief and to serve it, if this has not started yet."""
        # Without a chief, the strategy of this process runs the task by itself.
        if self._node_loop is None and self._chief:
            task = f"{self._job}-{self._index}"
            self._node_loop = _NodeLoop(self._chief, self._address, task, self._token)
            weakref.finalize(self, self._node_loop.stop)

    def join(self) -> None:
        """Serves the cluster for as long as this process runs.

        Raises:
            UnavailableError: no chief has started in an hour, or the node cannot start.
            ValueError: the cluster has no chief.
        """
        self.start()
        if self._node_loop is None:
            raise _no_chief_error()
        with _exit_at_signal():
            try:
                self._node_loop.wait()
            finally:
                self._node_loop.stop()


@final
class _NodeLoop:
    """Runs a node whenever there is a chief, in a thread.

    Args:
        chief: the address of the chief.
        address: the address of this task.
        task: the task, as nodes are labelled.
        token: the cluster's secret.
    """

    def __init__(self, chief: str, address: str, task: str, token: str) -> None:
        self._chief, self._address = chief, address
        self._task, self._token = task, token
        self._is_stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"unisono node of {task}", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Waits until the thread has ended; raises its error."""
        while self._thread.is_alive():
            # With a timeout, so that Ctrl-C is noticed.
            self._thread.join(1.0)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends the node and the thread."""
        self._is_stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_stopped.is_set():
                if self._find_chief():
                    self._serve()
        except BaseException as error:
            self._error = error

    def _find_chief(self) -> bool:
        """Waits for the chief; returns whether it is there."""
        host, port = connection.split(self._chief)
        started = told = time.monotonic()
        while not node.is_listening(host, port):
            if self._is_stopped.wait(_PAUSE):
                return False
            now = time.monotonic()
            if now > started + _PATIENCE:
                raise errors.UnavailableError(
                    f"The chief at {self._chief} has not started in {_PATIENCE:.0f} s."
                )
            if now > told + _NEWS:
                told = now
                _log.warning(
                    "%s waits for the chief at %s, %.0f s so far.",
                    *(self._task, self._chief, now - started),
                )
        return not self._is_stopped.is_set()

    def _serve(self) -> None:
        """Runs a node until the chief is gone."""
        host, port = connection.split(self._address)
        chief_host, chief_port = connection.split(self._chief)
        made = node.RayNode(
            host,
            self._token,
            [
                f"--address={self._chief}",
                f"--node-manager-port={port}",
                f"--labels={node.LABEL}={self._task}",
                *(["--num-gpus=0"] if self._task.startswith("ps-") else []),
            ],
        )
        try:
            # A node by itself would go on looking for the head that is gone.
            while made.is_running and not self._is_stopped.wait(_PAUSE):
                if not node.is_listening(chief_host, chief_port):
                    return
            if not self._is_stopped.is_set():
                self._explain(made)
        finally:
            # Without the chief there is no cluster to leave.
            is_there = node.is_listening(chief_host, chief_port)
            made.stop(leaves_in_order=is_there)

    def _explain(self, made: node.RayNode) -> None:
        """Says why a node has ended by itself; raises if another would not help."""
        words = made.read_last_output()
        if "InvalidAuthToken" in words:
            raise PermissionError(
                f"The chief at {self._chief} does not accept the token of "
                f"{self._task}: set RAY_AUTH_TOKEN to the same for all tasks."
            )
        _log.warning("The node of %s has ended and starts anew.", self._task)
        _log.debug("The node of %s said: %s", self._task, words)
        self._is_stopped.wait(1.0)


@contextlib.contextmanager
def _exit_at_signal() -> Iterator[None]:
    """Lets SIGTERM end the node before this process, unless the program handles it."""
    is_free = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_free:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: types.FrameType | None) -> None:
    # As a shell shows the end by a signal.
    sys.exit(128 + number)


def _no_chief_error() -> ValueError:
    return ValueError(
        "The cluster has no chief, which all tasks must find: add its address, as in "
        "{'chief': ['10.0.0.1:2222'], 'worker': [...], 'ps': [...]}. Only the tasks of "
        "one process need none: a ParameterServerStrategy there runs them by itself."
    )


def _find_task(
    cluster: ClusterSpec, job: str | None, index: int | None
) -> tuple[str, int]:
    """Returns the job and the number of the task that runs here.

    Raises:
        ValueError: the task is not in the cluster, or was left out and is ambiguous.
    """
    if job is None:
        if len(cluster.jobs) != 1:
            raise ValueError(
                f"job_name is missing, and the cluster has the jobs {cluster.jobs}."
            )
        (job,) = cluster.jobs
    if job not in cluster.jobs:
        raise ValueError(
            f"job_name is {untrusted.excerpt(job)}; the cluster has {cluster.jobs}."
        )
    indices = cluster.task_indices(job)
    if index is None:
        if len(indices) != 1:
            raise ValueError(f"task_index is missing, and '{job}' has tasks {indices}.")
        (index,) = indices
    if index not in indices:
        raise ValueError(
            f"task_index is {untrusted.excerpt(index)}; '{job}' has tasks {indices}."
        )
    return job, index
