"""Connects the workers of a cluster to one group of JAX processes."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, final

import jax
from jax._src import distributed
from jax._src.lib import _jax  # type: ignore[attr-defined]

from unisono._src.foundation import errors
from unisono._src.machines import devices
from unisono._src.workers import coordination_service, credentials, watchdog

# Jobs whose tasks compute together, in the order in which their tasks are numbered.
_COMPUTING = ("chief", "master", "worker")
# How long the coordination service may take to listen, how long workers may take to
# join, and after how long without a sign of life JAX gives a worker up. The guard finds
# a lost worker much earlier.
_START_SECONDS = 60
_JOIN_SECONDS = 300
_HEARTBEAT_SECONDS = 100
_BIND_VARIABLE = "JAX_COORDINATOR_BIND_ADDRESS"


@final
@dataclasses.dataclass(frozen=True)
class ProcessGroup:
    """The workers that compute together, and which of them this process is.

    Attributes:
        tasks: the job and index of each worker; the first worker is the chief.
        addresses: the address ``host:port`` of each worker.
        index: the number of this process among the workers.
    """

    tasks: tuple[tuple[str, int], ...]
    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that does work such as saving for all."""
        return self.index == 0

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.tasks)

    @property
    def workers(self) -> int:
        """The number of workers, under `Topology`'s name for it."""
        return self.size

    @property
    def worker(self) -> int:
        """The number of this process, under `Topology`'s name for it."""
        return self.index


ALONE = ProcessGroup((("worker", 0),), ("",), 0)


def group_of(
    cluster: dict[str, Any], task_type: str | None, task_id: int | None
) -> ProcessGroup:
    """Returns the group that a task belongs to.

    Args:
        cluster: addresses by job, as `ClusterSpec.as_dict` gives them.
        task_type: the job of this process; None if there is no cluster.
        task_id: its index in that job.

    Returns:
        The group. It is `ALONE` without a cluster, and for an evaluator, which reads
        the others' checkpoints but does not compute with them.

    Raises:
        ValueError: the task is not one of the cluster, or cannot be a worker.
    """
    if not cluster or task_type is None or task_type == "evaluator":
        return ALONE
    if task_type not in _COMPUTING:
        raise ValueError(
            f"A task of the job {task_type!r} cannot run this strategy; expected one "
            f"of {', '.join(_COMPUTING)} or evaluator."
        )
    found = [
        ((job, i), address)
        for job in _COMPUTING
        for i, address in _addresses(cluster.get(job, ()))
    ]
    tasks = tuple(task for task, _ in found)
    own = (task_type, int(task_id or 0))
    if own not in tasks:
        raise ValueError(
            f"This process is said to be task {own[1]} of the job {own[0]!r}, but the "
            f"cluster has {', '.join(f'{j}:{i}' for j, i in tasks) or 'no workers'}."
        )
    return ProcessGroup(tasks, tuple(address for _, address in found), tasks.index(own))


def _addresses(job: Any) -> Sequence[tuple[int, str]]:
    if isinstance(job, dict):
        return sorted((int(i), address) for i, address in job.items())
    return list(enumerate([job] if isinstance(job, str) else job))


def start(group: ProcessGroup, mode: str, stall_seconds: float) -> None:
    """Connects this process to the others, once, before JAX's backend starts.

    Args:
        group: the workers.
        mode: the mode of the guard that watches them.
        stall_seconds: how long a worker may be behind the others.

    Raises:
        RuntimeError: JAX already runs without the others, or as another group.
    """
    if group.size == 1:
        devices.start()
        return
    if _started.group is not None:
        if _started.group != group:
            raise RuntimeError(
                "This process already belongs to another group of workers; the cluster "
                "cannot change while a program runs."
            )
        return
    if not jax.distributed.is_initialized():
        _initialize(group)
    elif jax.process_count() != group.size or jax.process_index() != group.index:
        raise RuntimeError(
            "jax.distributed was started by the program itself, with "
            f"{jax.process_count()} processes of which this is {jax.process_index()}; "
            f"the cluster says {group.size} and {group.index}. Leave starting it to "
            "the strategy, or describe the same cluster."
        )
    devices.start(has_peers=True, stall_seconds=stall_seconds)
    _started.group = group
    if mode != watchdog.OFF:
        client = distributed.global_state.client
        made = watchdog.Guard(client, group.index, group.size, mode, stall_seconds)
        made.start()
        watchdog.CURRENT.guard = made


@final
class _Started:
    """The group that this process has joined; a process can join only one."""

    group: ProcessGroup | None = None
    service: Any = None


_started = _Started()


def current() -> ProcessGroup:
    """Returns the group that this process has joined; `ALONE` if it joined none."""
    return _started.group or ALONE


def _initialize(group: ProcessGroup) -> None:
    if devices.is_started():
        raise RuntimeError(
            "MultiWorkerMirroredStrategy must be made before anything uses JAX's "
            "devices: make it at the start of the program, before the first array, "
            "variable or other strategy."
        )
    # JAX defines the attributes of its options at run time.
    options: Any = jax.config
    if options.jax_cpu_collectives_implementation in (None, "none"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = group.addresses[0]
    secured = credentials.coordination_arguments()
    if group.is_chief:
        _start_service(_bind_address(address), group.size, secured)
    # This does what `jax.distributed.initialize` does, but for two things. It does not
    # start the service, which has a process of its own (docs/decisions/0013). And it
    # does not catch SIGTERM, which shall end this process as it ends any other.
    state = distributed.global_state
    state.coordinator_address = address
    state.num_processes, state.process_id = group.size, group.index
    state.client = _jax.get_distributed_runtime_client(
        address,
        group.index,
        init_timeout=_JOIN_SECONDS,
        shutdown_timeout=5,
        heartbeat_timeout=_HEARTBEAT_SECONDS,
        use_compression=True,
        **secured,
    )
    try:
        state.client.connect()
    except RuntimeError as error:
        state.client = None
        raise errors.WorkerLostError(
            f"Worker {group.index} did not meet all {group.size} workers at {address} "
            f"within {_JOIN_SECONDS} s. Do they run, with the same cluster, and can "
            f"they reach that address? {error}"
        ) from None


def _start_service(address: str, workers: int, secured: dict[str, Any]) -> None:
    """Starts the coordination service; it ends after this process and the others."""
    command = [sys.executable, "-P", coordination_service.__file__]
    process = subprocess.Popen(
        [*command, address, str(workers), str(_HEARTBEAT_SECONDS), json.dumps(secured)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        start_new_session=True,
    )
    assert process.stdout is not None
    is_there = select.select([process.stdout], [], [], _START_SECONDS)[0]
    said = process.stdout.readline() if is_there else b""
    process.stdout.close()
    if said != b"ready\n":
        process.kill()
        process.wait()
        raise errors.WorkerLostError(
            f"The coordination service could not listen at {address}; see what it "
            "printed. Is the port taken, or is this not an address of this machine?"
        )
    # This holds the pipe open for as long as this process lives. The service notices
    # the end of this process when the pipe closes.
    _started.service = process
    # The service outlives this process on purpose. With a return code, `Popen` does not
    # warn at exit that it still runs.
    process.returncode = 0


def _bind_address(address: str) -> str:
    """Returns the one address at which the coordinator listens, not all of its host's.

    >>> _bind_address("localhost:1234"), _bind_address("10.0.0.1:1234")
    ('127.0.0.1:1234', '10.0.0.1:1234')
    """
    given = os.environ.get(_BIND_VARIABLE)
    if given:
        return given
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if _is_loopback(host) else address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
