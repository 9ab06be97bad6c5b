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

    Every worker runs the same program. Each device holds a copy of every variable, and
    all copies stay equal. With ``state="sharded"``, each device holds a part of each
    large variable instead. All workers must then take part in reading such a variable
    in cross-replica context (`Variable.numpy`, `float`, `get_weights`), but not in
    `Variable.local_part`, `repr` and `describe`.

    Create the strategy at the start of the program, before anything uses JAX's devices,
    because it connects the workers. Without a cluster it behaves like a
    `MirroredStrategy` on all local accelerators, or on one CPU device.

    Args:
        cluster_resolver: says which workers exist and which of them this is: an object
            with `cluster_spec()`, `task_type` and `task_id`. The default reads the
            environment variable ``TF_CONFIG``.
        communication_options: `CommunicationOptions`; XLA chooses how to communicate.
            `timeout_seconds` is how long a worker may be behind the others before all
            of them raise a `WorkerStalledError`; by default 30.
        guard: how workers watch each other. ``"async"`` checks a few times per second,
            and does not slow down steps. With ``"strict"``, all workers agree before
            each step, so variables keep their values if a worker is missing. ``"off"``
            does not check.
        state: as for `MirroredStrategy`; ``"sharded"`` splits large variables, and the
            slots of optimizers, over the devices of all workers.
        shard_above: as for `MirroredStrategy`.
        shard_rules: as for `MirroredStrategy`.
        gather: as for `MirroredStrategy`.
        shard_over: ``"all"`` (the default) splits over the devices of all workers.
            ``"worker"`` splits over the devices of each worker, which then has all
            parts: weights are gathered within a worker, and workers exchange parts of
            gradients.

    Raises:
        ValueError: `guard` or another argument has an invalid value, or the cluster of
            the resolver is not valid.
        TypeError: `shard_rules` is not such a dictionary.

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
