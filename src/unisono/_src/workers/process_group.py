"""Connects the workers of a cluster to one group of JAX processes."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from unisono._src.cluster import launcher_pipes
from unisono._src.foundation import errors, jax_internals
from unisono._src.machines import devices, topology
from unisono._src.workers import (
    coordination_client,
    guarded_reads,
    watchdog,
    worker_guard,
)

# The place of the random number that all workers have, in the coordination service.
_SEED = "unisono/seed"
# Jobs whose tasks compute together, in the order in which their tasks are numbered.
_COMPUTING = ("chief", "master", "worker")
# How long workers may take to join, unless the variable says so.
_JOIN_SECONDS = 300.0
_JOIN_VARIABLE = "UNISONO_JOIN_SECONDS"
# JAX aborts a process in which joining takes longer than JAX was told. So it is told
# more than a program takes that has given up and still ends in order.
_ABORT_SECONDS = 86_400
# Seconds between two looks for a reason to give up a wait.
_LOOK_SECONDS = 0.05


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
        ValueError: the variable ``UNISONO_JOIN_SECONDS`` is not a time.
        WorkerError: another worker ends, or does not come.
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
    # In this order: hear the launcher, join JAX's service, watch the others, wait until
    # all are there, and only then start the backend, which waits for all.
    limit = join_seconds()
    if launcher_pipes.MESSAGES.listen() and mode != worker_guard.OFF:
        # The launcher gives a worker that listens more time to end (decision 0023).
        launcher_pipes.tell_state(launcher_pipes.LISTENS)
    if not jax.distributed.is_initialized():
        _initialize(group, limit)
        _claim_index(group)
    elif jax.process_count() != group.size or jax.process_index() != group.index:
        raise RuntimeError(
            "jax.distributed was started by the program itself, with "
            f"{jax.process_count()} processes of which this is {jax.process_index()}; "
            f"the cluster says {group.size} and {group.index}. Leave starting it to "
            "the strategy, or describe the same cluster."
        )

    def begin() -> None:
        _agree_on_seed(group, limit)
        devices.start(has_peers=True, stall_seconds=stall_seconds)

    if mode == worker_guard.OFF:
        begin()
        _started.group = group
        return
    made = _start_guard(group, mode, stall_seconds)
    made.peers.meet(limit)
    # JAX's backend waits for the backends of the others when it starts.
    with made.connections.find_listener():
        _wait_for(begin, made.peers.explain_absence)
    _started.group = group
    # A worker with one CPU device waits for its peers alone, and its collective breaks
    # when one of them is gone. Where several devices wait for each other, or on an
    # accelerator, the wait may go on.
    if jax.local_device_count() > 1 or jax.default_backend() != "cpu":
        made.results.waits_in_python = True
        topology.THROTTLE.block = made.results.wait_for


def _start_guard(
    group: ProcessGroup, mode: str, stall_seconds: float
) -> worker_guard.Guard:
    client: Any = jax_internals.distributed_state.client
    made = worker_guard.Guard(
        client, group.index, group.size, mode, stall_seconds, _read_claim
    )

    def hear(message: launcher_pipes.LauncherMessage) -> None:
        if (message.job, message.index) in group.tasks:
            made.hear(group.tasks.index((message.job, message.index)), message)

    def leave() -> None:
        if made.peers.is_claimed_twice:
            _leave_without_a_word()

    launcher_pipes.MESSAGES.subscribe(hear)
    # Before JAX leaves, which it has registered earlier.
    atexit.register(leave)
    made.start()
    watchdog.CURRENT.guard = made
    guarded_reads.install()
    return made


def join_seconds() -> float:
    """Returns how long workers may take to join: the variable's value, or 300 s.

    Raises:
        ValueError: the variable ``UNISONO_JOIN_SECONDS`` is not a time.

    >>> join_seconds()
    300.0
    """
    text = os.environ.get(_JOIN_VARIABLE, "")
    try:
        seconds = float(text or _JOIN_SECONDS)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _ABORT_SECONDS:
        raise ValueError(
            f"{_JOIN_VARIABLE} is the time in seconds that workers may take to join, "
            f"up to {_ABORT_SECONDS}; received {text!r}."
        )
    return seconds


def _wait_for(
    work: Callable[[], None], look: Callable[[], errors.WorkerError | None]
) -> None:
    """Runs `work`, which Python cannot interrupt, until `look` finds an error.

    The work goes on in its thread then, while this process ends in order.
    """
    done, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    # A daemon, because it may never come back; Python ends without it.
    threading.Thread(target=run, name="unisono joins", daemon=True).start()
    while not done.wait(_LOOK_SECONDS):
        found = look()
        if found is not None:
            launcher_pipes.tell_state(launcher_pipes.NOTICED)
            raise found
    if failures:
        raise failures[0]


@final
class _Started:
    """The group that this process has joined; a process can join only one."""

    group: ProcessGroup | None = None
    service: subprocess.Popen[bytes] | None = None
    seed: int | None = None


_started = _Started()


def current() -> ProcessGroup:
    """Returns the group that this process has joined; `ALONE` if it joined none."""
    return _started.group or ALONE


def agreed_seed() -> int | None:
    """Returns a random number that all workers have; None without other workers."""
    return _started.seed


def _agree_on_seed(group: ProcessGroup, limit: float) -> None:
    """Gives all workers the random number of the chief."""
    client: Any = jax_internals.distributed_state.client
    if group.is_chief:
        client.key_value_set(_SEED, str(secrets.randbits(63)), allow_overwrite=True)
    _started.seed = int(client.blocking_key_value_get(_SEED, int(limit * 1000)))


def _initialize(group: ProcessGroup, limit: float) -> None:
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
    secured = coordination_client.coordination_arguments()
    if group.is_chief:
        # This holds its pipe open for as long as this process lives.
        _started.service = coordination_client.start_service(
            address, group.size, secured
        )
    # This does what `jax.distributed.initialize` does, but for two things. It does not
    # start the service, which has a process of its own (docs/decisions/0013). And it
    # does not catch SIGTERM, which shall end this process as it ends any other.
    state = jax_internals.distributed_state
    state.coordinator_address = address
    state.num_processes, state.process_id = group.size, group.index
    state.client = jax_internals.make_client(
        address,
        group.index,
        init_timeout=_ABORT_SECONDS,
        # JAX's default of 300 s would hold a worker that ends after another has failed.
        shutdown_timeout=5,
        heartbeat_timeout=coordination_client.HEARTBEAT_SECONDS,
        use_compression=True,
        **secured,
    )
    until = time.monotonic() + limit
    try:
        _wait_for(state.client.connect, lambda: _why_not_joined(group, limit, until))
    except BaseException:
        # JAX would take a client that has not joined for one that has.
        state.client = None
        raise


def _claim_index(group: ProcessGroup) -> None:
    """Raises if another process has joined as the same worker."""
    client: Any = jax_internals.distributed_state.client
    found = coordination_client.claim(client, group.index)
    if found is not None:
        _leave_without_a_word()
        raise found


def _leave_without_a_word() -> None:
    """Keeps JAX from leaving the group at exit, as another process has this index.

    JAX aborts a process that leaves when the other one has left.
    """
    # Its client leaves when it is deleted, too. So this is never deleted.
    state = jax_internals.distributed_state
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(state.client))
    state.client = None


def _read_claim() -> str | None:
    """Returns a note about another process that is the first worker, if any."""
    service = _started.service
    return None if service is None else coordination_client.read_claim(service)


def _why_not_joined(
    group: ProcessGroup, limit: float, until: float
) -> errors.WorkerError | None:
    """Returns the reason why this worker shall not wait for the others any more."""
    claim = _read_claim()
    if claim is not None:
        return coordination_client.claimed_twice_error(claim)
    for ending in launcher_pipes.MESSAGES.endings:
        if (ending.job, ending.index) in group.tasks:
            worker = group.tasks.index((ending.job, ending.index))
            said = f" It wrote:\n{ending.said}" if ending.said else ""
            # With a traceback it raised something; without one it was killed, or left.
            kind = errors.WorkerFailedError if said else errors.WorkerLostError
            return kind(
                f"The process of worker {worker} has ended with {ending.how} before "
                f"all workers had joined, as its launcher says.{said}",
                worker,
            )
    if time.monotonic() > until:
        return errors.WorkerLostError(
            f"Worker {group.index} did not meet all {group.size} workers at "
            f"{group.addresses[0]} within {limit:g} s. Do they run, with the same "
            f"cluster, and can they reach that address? Set {_JOIN_VARIABLE} if they "
            "need more time."
        )
    return None
