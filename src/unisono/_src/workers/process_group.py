"""The group of processes that JAX makes of the workers of a cluster."""

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
_START_SECONDS = 60
_JOIN_SECONDS = 300
_HEARTBEAT_SECONDS = 100
_BIND_VARIABLE = "JAX_COORDINATOR_BIND_ADDRESS"


@final
@dataclasses.dataclass(frozen=True)
class Group:
    """The workers that compute together, and which of them this process is.

    Attributes:
        tasks: job and index of each worker; the first is the chief.
        addresses: ``host:port`` of each worker.
        index: which worker this process is.
    """

    tasks: tuple[tuple[str, int], ...]
    addresses: tuple[str, ...]
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this process does what is to be done once, such as saving."""
        return self.index == 0

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.tasks)

    @property
    def workers(self) -> int:
        """How many workers there are, as `Topology` calls it."""
        return self.size

    @property
    def worker(self) -> int:
        """Which of them this process is, as `Topology` calls it."""
        return self.index


ALONE = Group((("worker", 0),), ("",), 0)


def group_of(
    cluster: dict[str, Any], task_type: str | None, task_id: int | None
) -> Group:
    """The group that a task belongs to.

    Args:
        cluster: addresses by job, as `ClusterSpec.as_dict` gives them.
        task_type: the job of this process; None if there is no cluster.
        task_id: its index in that job.

    Returns:
        The group; `ALONE` without a cluster and for an evaluator, which watches the
        others but does not compute with them.

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
    return Group(tasks, tuple(address for _, address in found), tasks.index(own))


def _addresses(job: Any) -> Sequence[tuple[int, str]]:
    if isinstance(job, dict):
        return sorted((int(i), address) for i, address in job.items())
    return list(enumerate([job] if isinstance(job, str) else job))


def start(group: Group, mode: str, stall_seconds: float) -> None:
    """Connect this process to the others; once, before JAX's backend starts.

    Args:
        group: the workers.
        mode: how the guard watches them.
        stall_seconds: how long one may be behind the others.

    Raises:
        RuntimeError: JAX runs already without the others, or as another group.
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
    """The group of this process; there can be one only."""

    group: Group | None = None
    service: Any = None


_started = _Started()


def current() -> Group:
    """The group that this process has joined; `ALONE` if it has joined none."""
    return _started.group or ALONE


def _initialize(group: Group) -> None:
    if devices.is_started():
        raise RuntimeError(
            "MultiWorkerMirroredStrategy must be made before anything uses JAX's "
            "devices: make it at the start of the program, before the first array, "
            "variable or other strategy."
        )
    # JAX defines the attributes of its options at run time.
    collectives = jax.config.jax_cpu_collectives_implementation  # type: ignore[attr-defined]
    if collectives in (None, "none"):
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    address = group.addresses[0]
    secured = credentials.of_coordination()
    if group.is_chief:
        _start_service(_bind_address(address), group.size, secured)
    # What `jax.distributed.initialize` does, less two things: the service, which has a
    # process of its own, and catching SIGTERM, which shall end a process as anywhere.
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
    """Start the coordination service; it ends after this process and the others."""
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
    # Held for as long as this process lives: the service notices its end by it.
    _started.service = process
    # It outlives this process on purpose.
    process.returncode = 0


def _bind_address(address: str) -> str:
    """Where the coordinator listens: at the address it is known by, not at all.

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
