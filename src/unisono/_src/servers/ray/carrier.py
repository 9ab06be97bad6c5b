"""The carrier that runs servers and workers as processes, by Ray."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, final

import jax

from unisono._src.cluster import paused_processes
from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.foundation import errors
from unisono._src.machines import devices
from unisono._src.servers.carrier import SERVER, WORKER, Carrier, Handle
from unisono._src.servers.ray import (
    actors,
    connection,
    library,
    node,
    shared_memory,
)
from unisono._src.servers.ray.handles import RayHandle

CHIEF = "chief"
# How long to wait for a replacement that is just being started when all ends.
_STOP_SECONDS = 10.0


@final
class RayCarrier(Carrier):
    """Runs servers and workers as processes, on one or several machines, with Ray.

    If you give the address of a running Ray cluster, they run there. Otherwise, if the
    cluster of the strategy has a chief, for example in TF_CONFIG, the head of a Ray
    cluster is started at the address of the chief, and the machines of the other tasks
    join it with `distribute.Server`. Otherwise they run in the Ray cluster that this
    process is connected to, or in a new one that only this machine can reach. A Ray
    cluster that unisono starts requires a token: whoever knows it can run code.

    Args:
        address: the address of a running Ray cluster. The default is the environment
            variable ``RAY_ADDRESS``, if it is set.
        gpus_per_worker: how many GPUs each worker takes. The default is an equal share
            of the available GPUs.
        timeout_seconds: how long to wait until all servers and workers answer.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ValueError: the address is malformed, or `timeout_seconds` is not positive.

    >>> RayCarrier("10.0.0.7")
    Traceback (most recent call last):
    ...
    ValueError: The address of a cluster of Ray is '10.0.0.7', without a port; use
    'host:port'.
    """

    is_remote = True

    def __init__(
        self,
        address: str | None = None,
        *,
        gpus_per_worker: int | None = None,
        timeout_seconds: float = 120.0,
    ) -> None:
        library.load()
        self._wanted = address or os.environ.get(connection.ADDRESS) or None
        if self._wanted is not None:
            connection.split(self._wanted)
        if timeout_seconds <= 0:
            raise ValueError(
                f"timeout_seconds must be positive, received {timeout_seconds}."
            )
        self._gpus_per_worker = gpus_per_worker
        self._timeout = timeout_seconds
        self._cluster: ClusterSpec | None = None
        self._connection: connection.Connection | None = None
        self._actors: dict[tuple[str, int], Any] = {}
        self._handles: dict[tuple[str, int], RayHandle] = {}
        # Guards these, and the number of replacements that are being made.
        self._changed = threading.Condition()
        self._replacing = 0
        self._probe = shared_memory.Segment()

    def start(self, cluster: ClusterSpec) -> None:
        """Starts all servers and workers; see `Carrier`.

        Raises:
            PermissionError: the Ray cluster does not accept the token.
            RuntimeError: a cluster of several machines has no token.
            UnavailableError: the cluster, a server or a worker does not answer.
        """
        self._cluster = cluster
        _leave_accelerators()
        if shared_memory.find_machine():
            # Actors try to open it, which tells whether memory can be shared with them.
            self._probe.reserve(1)
        # From here on `stop` must be able to undo everything,
        # however far the start came.
        self._connection = self._connect(cluster)
        self._connection.listeners.append(self._note_loss)
        try:
            self._wait_for_nodes(cluster)
            self._start_all(cluster)
        except BaseException:
            self.stop()
            raise

    def _note_loss(self, error: errors.UnavailableError) -> None:
        """Ends all calls, because the head of the cluster is gone."""
        with self._changed:
            held = list(self._handles.values())
        for handle in held:
            handle.fail(error)

    def _connect(self, cluster: ClusterSpec) -> connection.Connection:
        if self._wanted is not None:
            return connection.open_existing(self._wanted, self._timeout)
        if CHIEF in cluster.jobs:
            address = cluster.task_address(CHIEF, 0)
            return connection.open_chief(address, self._timeout)
        return connection.open_local(self._timeout)

    def _wait_for_nodes(self, cluster: ClusterSpec) -> None:
        """Waits until every task of a cluster with a chief has its node."""
        if not self._has_nodes:
            return
        tasks = [(k, i) for k in (SERVER, WORKER) for i in cluster.task_indices(k)]
        missing: list[tuple[str, int]] = []

        def are_there() -> bool:
            known = _find_nodes()
            missing[:] = [t for t in tasks if _label(*t) not in known]
            return not missing

        try:
            node.wait_for(are_there, "nodes", self._timeout)
        except errors.UnavailableError:
            named = ", ".join(
                f"{k} {i} at {cluster.task_address(k, i)}" for k, i in missing
            )
            raise errors.UnavailableError(
                f"Waited {self._timeout:g} s for {named}. Each of them has to run "
                "unisono.distribute.Server(cluster, job_name, task_index).join() with "
                "the same token.",
                *missing[0],
            ) from None

    @property
    def _has_nodes(self) -> bool:
        """Whether every task has a node of its own."""
        assert self._cluster is not None
        return self._wanted is None and CHIEF in self._cluster.jobs

    def _start_all(self, cluster: ClusterSpec) -> None:
        """Starts all servers and workers at the same time, and waits for them."""
        tasks = [(k, i) for k in (SERVER, WORKER) for i in cluster.task_indices(k)]
        # All are started before the first is waited for: each imports JAX, for seconds.
        started = [(*task, self._make_actor(*task)) for task in tasks]
        for task in started:
            self._meet(*task)
        for index in cluster.task_indices(WORKER):
            self._introduce(index)

    def _introduce(self, worker: int) -> None:
        """Gives a worker the handles of all servers."""
        servers = [h for (k, _), h in sorted(self._handles.items()) if k == SERVER]
        self.worker(worker).call("connect", servers).result(self._timeout)

    def _make_actor(self, kind: str, index: int) -> Any:
        """Starts the process of a server or worker, and returns Ray's handle of it."""
        ray = library.load()
        assert self._cluster is not None
        placed: dict[str, Any] = {}
        nodes = [n for n in ray.nodes() if n["Alive"]]
        if self._has_nodes:
            found = _find_nodes().get(_label(kind, index))
            if found is None:
                raise errors.UnavailableError(
                    f"The machine of the {kind} {index} "
                    f"({self._cluster.task_address(kind, index)}) is gone.",
                    kind,
                    index,
                )
            nodes = [found]
            placed["scheduling_strategy"] = _pin_to_node(found["NodeID"])
        # Tasks of one kind that share a machine share its cores and GPUs.
        count = 1 if self._has_nodes else self._cluster.num_tasks(kind)
        gpus = self._count_gpus(nodes, count) if kind == WORKER else 0
        actor_class = ray.remote(
            # No CPUs are reserved, so that any number of tasks fits on a machine.
            num_cpus=0,
            num_gpus=gpus,
            # The coordinator replaces what is lost, and sends calls again, itself.
            max_restarts=0,
            max_task_retries=0,
            # A record of each call, for the dashboard, would cost a third of its time.
            enable_task_events=False,
            **placed,
        )(actors.TaskActor)
        made = actor_class.remote(
            kind,
            index,
            actors.read_options(),
            max(1, (os.cpu_count() or 1) // count),
            not gpus,
            paused_processes.limit_seconds(),
        )
        self._actors[kind, index] = made
        return made

    def _count_gpus(self, nodes: Sequence[Any], workers: int) -> int:
        if self._gpus_per_worker is not None:
            return self._gpus_per_worker
        total = int(sum(n["Resources"].get("GPU", 0) for n in nodes))
        return total // workers

    def _meet(self, kind: str, index: int, actor: Any) -> None:
        """Waits until a server or worker answers, and keeps its handle."""
        import ray.exceptions as ray_errors

        ray = library.load()
        key = kind, index
        held = self._connection
        if held is None:
            raise errors.UnavailableError("The strategy was shut down.", *key)
        asked = actor.where.remote(self._probe.place).future()
        try:
            # In Python: Ray would go on waiting if its head ended.
            node.wait_for(lambda: asked.done() or held.is_lost, "it", self._timeout)
        except errors.UnavailableError:
            ray.kill(actor)
            raise errors.UnavailableError(
                f"Waited {self._timeout:g} s for the {kind} {index} to start.", *key
            ) from None
        held.check()
        try:
            where = asked.result()
        except ray_errors.RayActorError as error:
            raise errors.UnavailableError(
                f"The {kind} {index} ended at its start: {error}", *key
            ) from error
        address = f"{where.host}, process {where.pid}"
        if self._has_nodes:
            assert self._cluster is not None
            address = f"{self._cluster.task_address(*key)}, process {where.pid}"
        with self._changed:
            self._handles[key] = RayHandle(actor, kind, index, where, address)

    def server(self, index: int) -> Handle:
        """Returns a handle of a server; see `Carrier`."""
        return self._handles[SERVER, index]

    def worker(self, index: int) -> Handle:
        """Returns a handle of a worker; see `Carrier`."""
        return self._handles[WORKER, index]

    def address(self, kind: str, index: int) -> str:
        """Returns where a server or worker runs; see `Carrier`."""
        return self._handles[kind, index].address

    def process(self, kind: str, index: int) -> int:
        """Returns the process ID of a server or worker on its machine."""
        return self._handles[kind, index].where.pid

    def replace(self, kind: str, index: int) -> None:
        """Starts a new, empty task in place of a lost one; see `Carrier`."""
        with self._changed:
            if self._connection is None:
                raise errors.UnavailableError(
                    "The strategy was shut down.", kind, index
                )
            self._connection.check()
            self._replacing += 1
        try:
            # It may only seem to be gone, and must not go on beside the new one.
            self.lose(kind, index)
            self._meet(kind, index, self._make_actor(kind, index))
            if kind == WORKER:
                self._introduce(index)
        finally:
            with self._changed:
                self._replacing -= 1
                self._changed.notify_all()

    def lose(self, kind: str, index: int) -> None:
        """Ends a server or worker at once; see `Carrier`."""
        ray = library.load()
        # Without a connection Ray would start a new cluster for the call.
        if ray.is_initialized():
            # Ray raises this for an actor of a cluster that has ended since.
            with contextlib.suppress(ValueError):
                ray.kill(self._actors[kind, index])

    def stop(self) -> None:
        """Ends all servers and workers, and the cluster if it was started for them."""
        with self._changed:
            # From now on `replace` refuses, and a second `stop` does nothing.
            held, self._connection = self._connection, None
        if held is None:
            return
        # First the handles, so that no call waits for an actor that is being ended.
        for handle in list(self._handles.values()):
            handle.is_closed = True
        self._end_actors(held)
        held.listeners.remove(self._note_loss)
        held.close()
        self._probe.release()

    def _end_actors(self, held: connection.Connection) -> None:
        """Ends all servers and workers, also those that are just being started."""
        ray = library.load()
        until = time.monotonic() + _STOP_SECONDS
        # Ray may have ended already, if the program ends or its head is gone.
        while ray.is_initialized() and not held.is_lost:
            # Again and again, because a replacement may add an actor meanwhile.
            for actor in list(self._actors.values()):
                ray.kill(actor)
            with self._changed:
                self._changed.wait_for(lambda: not self._replacing, 0.2)
                if not self._replacing or time.monotonic() > until:
                    return


def _label(kind: str, index: int) -> str:
    return f"{kind}-{index}"


def _find_nodes() -> dict[str, Any]:
    """Returns the live nodes of Ray by the task that they are labelled with."""
    found = [n for n in library.load().nodes() if n["Alive"]]
    return {n["Labels"][node.LABEL]: n for n in found if node.LABEL in n["Labels"]}


def _pin_to_node(node_id: str) -> Any:
    import ray.util.scheduling_strategies as strategies

    # Not soft: a task whose machine is gone must not move to another task's machine.
    return strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)


def _leave_accelerators() -> None:
    """Keeps this process, which only coordinates, away from accelerators."""
    # A platform that the program has chosen itself stays.
    is_chosen = getattr(jax.config, "jax_platforms", None)
    if not devices.is_started() and not is_chosen:
        jax.config.update("jax_platforms", "cpu")
