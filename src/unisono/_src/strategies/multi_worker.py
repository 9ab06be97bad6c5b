"""`MultiWorkerMirroredStrategy`: replicas on the devices of several processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.cluster.resolvers.tf_config import TFConfigClusterResolver
from unisono._src.foundation import options
from unisono._src.machines import devices, shard_plan
from unisono._src.machines.topology import Topology
from unisono._src.state.storage import Policy
from unisono._src.strategies import base, local, replicated
from unisono._src.workers import process_group, worker_guard

# As long as a worker may be behind the others if the program does not say so.
_STALL_SECONDS = 30.0
_check_mode = worker_guard.check_mode


class MultiWorkerMirroredStrategy(base.Strategy):
    """Trains synchronously on the devices of several machines or processes.

    Every worker runs the same program. Each of their devices holds a copy of every
    variable, and all copies stay equal; or, with ``state="sharded"``, a part of each
    large one. Then reading the whole of such a variable across replicas is a matter of
    all workers (`Variable.numpy`, `float`, `get_weights`); `Variable.local_part`,
    `repr` and `describe` ask nobody. Make the strategy at the start of the program,
    before anything uses JAX's devices: it connects the workers. Without a cluster it
    behaves like a `MirroredStrategy` on all local accelerators, or on one CPU device.

    Args:
        cluster_resolver: tells who the workers are and which one this is: an object
            with `cluster_spec()`, `task_type` and `task_id`. The default reads the
            environment variable ``TF_CONFIG``.
        communication_options: `CommunicationOptions`; XLA chooses how to communicate.
            `timeout_seconds` is how long a worker may be behind the others before all
            get a `WorkerStalledError`; default 30.
        guard: how workers watch each other. ``"async"`` looks a few times a second and
            costs a step nothing; ``"strict"`` has all workers agree before each step,
            so that the variables are intact when one is missing; ``"off"`` does not
            look.
        state: as for `MirroredStrategy`; ``"sharded"`` splits large variables, and the
            slots of optimizers, over the devices of all workers.
        shard_above: as for `MirroredStrategy`, and so are the next two.
        shard_rules: see `shard_above`.
        gather: see `shard_above`.
        shard_over: ``"all"`` (default) splits over the devices of all workers,
            ``"worker"`` over those of each worker, which then has all parts: weights
            are gathered within a worker, and workers exchange parts of gradients.

    Raises:
        ValueError: `guard` or another argument has another value than these, or the
            resolver's cluster is not valid.
        TypeError: `shard_rules` has other types.

    >>> strategy = MultiWorkerMirroredStrategy()
    >>> strategy.num_replicas_in_sync, strategy.extended.should_checkpoint
    (1, True)
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: options.CommunicationOptions | None = None,
        *,
        guard: Literal["async", "strict", "off"] = "async",
        state: Literal["mirrored", "sharded"] = "mirrored",
        shard_above: int | None = None,
        shard_rules: Mapping[str, int | None] | None = None,
        gather: Literal["use", "step"] | None = None,
        shard_over: Literal["all", "worker"] | None = None,
    ) -> None:
        mode = _check_mode(guard)
        plan = shard_plan.make_plan(state, shard_above, shard_rules, gather, shard_over)
        wanted = communication_options or options.CommunicationOptions()
        stall = wanted.timeout_seconds or _STALL_SECONDS
        resolver = cluster_resolver or TFConfigClusterResolver()
        spec, job = resolver.cluster_spec(), resolver.task_type
        group = process_group.group_of(spec.as_dict(), job, resolver.task_id)
        # Before the topology, which asks for devices: JAX must know all processes by
        # then.
        process_group.start(group, mode, stall)
        if group.size == 1:
            # As in TensorFlow: alone and without a cluster, a CPU is one replica.
            names = devices.default_names()
            is_alone = not spec.as_dict() and "CPU" in names[0]
            topology = Topology.of(names[:1] if is_alone else names)
        else:
            topology = Topology.from_tasks(group.tasks, group.index)
        self._resolver = resolver
        placement = local.home_placement(self, topology, Policy.MIRRORED, plan)
        super().__init__(
            replicated.ReplicatedExtended(self, placement, communication_options)
        )


class ExperimentalMultiWorkerMirroredStrategy(MultiWorkerMirroredStrategy):
    """`MultiWorkerMirroredStrategy` with the arguments of TensorFlow's older class.

    Args:
        communication: a `CommunicationImplementation` or its name.
        cluster_resolver: as for `MultiWorkerMirroredStrategy`.

    >>> import unisono
    >>> experimental = unisono.distribute.experimental
    >>> strategy = experimental.MultiWorkerMirroredStrategy("NCCL")
    >>> isinstance(strategy, unisono.distribute.MultiWorkerMirroredStrategy)
    True
    """

    def __init__(
        self,
        communication: options.CommunicationImplementation
        | str = options.CommunicationImplementation.AUTO,
        cluster_resolver: ClusterResolver | None = None,
    ) -> None:
        chosen = options.CommunicationOptions(implementation=communication)
        super().__init__(cluster_resolver, chosen)
