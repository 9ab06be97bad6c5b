"""`MultiWorkerMirroredStrategy`: replicas on the devices of several processes."""

from __future__ import annotations

from typing import Literal

from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.cluster.resolvers.tf_config import TFConfigClusterResolver
from unisono._src.foundation import options
from unisono._src.foundation.public_names import publish
from unisono._src.machines import devices
from unisono._src.machines.topology import Topology
from unisono._src.state.frames import Policy
from unisono._src.strategies import base, local, replicated
from unisono._src.workers import process_group, watchdog

_STALL_SECONDS = 30.0
_check_mode = watchdog.check_mode


class MultiWorkerMirroredStrategy(base.Strategy):
    """Synchronous training on the devices of several machines or processes.

    Every worker runs the same program. Each of their devices holds a copy of every
    variable, kept equal. Make it at the start of the program, before anything uses
    JAX's devices: it connects the workers. Without a cluster it is alone and behaves
    like a `MirroredStrategy` on all local accelerators, or on one CPU device.

    Args:
        cluster_resolver: says who the workers are and which one this is: an object
            with `cluster_spec()`, `task_type` and `task_id`. The default reads the
            environment variable ``TF_CONFIG``.
        communication_options: `CommunicationOptions`; XLA chooses how to communicate.
            `timeout_seconds` is how long a worker may be behind the others before all
            get a `WorkerStalledError`; default 30.
        guard: how workers watch each other. ``"async"`` looks a few times a second and
            costs a step nothing; ``"strict"`` has all workers agree before each step,
            so that the variables are intact when one is missing; ``"off"``.

    >>> strategy = MultiWorkerMirroredStrategy()
    >>> strategy.extended.should_checkpoint
    True
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: options.CommunicationOptions | None = None,
        *,
        guard: Literal["async", "strict", "off"] = "async",
    ) -> None:
        mode = _check_mode(guard)
        wanted = communication_options or options.CommunicationOptions()
        stall = wanted.timeout_seconds or _STALL_SECONDS
        resolver = cluster_resolver or TFConfigClusterResolver()
        spec, job = resolver.cluster_spec(), resolver.task_type
        group = process_group.group_of(spec.as_dict(), job, resolver.task_id)
        process_group.start(group, mode, stall)
        if group.size == 1:
            names = devices.default_names()
            is_alone = not spec.as_dict() and "CPU" in names[0]
            topology = Topology.of(names[:1] if is_alone else names)
        else:
            topology = Topology.over_workers(group.tasks, group.index)
        self._resolver = resolver
        placement = local.home_placement(self, topology, Policy.MIRRORED)
        super().__init__(replicated.ReplicatedExtended(self, placement))
        merged = self.extended._default_options.merge(communication_options)
        self.extended._default_options = merged


def experimental_multi_worker(
    communication: options.CommunicationImplementation
    | str = options.CommunicationImplementation.AUTO,
    cluster_resolver: ClusterResolver | None = None,
) -> MultiWorkerMirroredStrategy:
    """TensorFlow's older signature of `MultiWorkerMirroredStrategy`."""
    chosen = options.CommunicationOptions(implementation=communication)
    return MultiWorkerMirroredStrategy(cluster_resolver, chosen)


publish("unisono.distribute", MultiWorkerMirroredStrategy)
publish(
    "unisono.distribute.experimental",
    MultiWorkerMirroredStrategy=experimental_multi_worker,
)
