"""`ParameterServerStrategy`: servers keep the variables, workers compute."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar, final

from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.execution import function
from unisono._src.foundation import ambient
from unisono._src.machines.topology import Topology
from unisono._src.servers import partitioners, placed_variables
from unisono._src.servers.carrier import Carrier
from unisono._src.servers.ray.carrier import RayCarrier
from unisono._src.servers.server_group import ServerGroup
from unisono._src.servers.threads import ThreadCarrier
from unisono._src.servers.worker_data import (
    WorkerBatches,
    WorkerFunction,
    WorkerStrategy,
)
from unisono._src.state import description, storage
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.state.variables import Variable
from unisono._src.strategies import base, local

if TYPE_CHECKING:
    from unisono._src.cluster.resolvers.base import ClusterResolver

_log = logging.getLogger("unisono")
_T = TypeVar("_T")

# The kinds of tasks that a cluster may have.
_JOBS = ("chief", "worker", "evaluator", "ps")

_CARRIERS: dict[str, Callable[[], Carrier]] = {
    "ray": RayCarrier,
    "threads": ThreadCarrier,
}


@final
class _ServerExtended(local.SingleExtended):
    """The methods of a strategy whose variables are on parameter servers.

    Args:
        container_strategy: the strategy.
        placement: where its variables go.
        partitioner: says into how many parts a variable is cut; None cuts none.
    """

    def __init__(
        self,
        container_strategy: base.Strategy,
        placement: storage.Placement,
        partitioner: partitioners.PartitionFunction | None,
    ) -> None:
        super().__init__(container_strategy, placement)
        self._warned: set[str] = set()
        self._partitioner = partitioner

    @property
    def _servers(self) -> ServerGroup:
        assert self._placement is not None
        assert isinstance(self._placement.servers, ServerGroup)
        return self._placement.servers

    def _create_per_worker_variable(
        self, next_creator: Callable[..., Any], **kwargs: Any
    ) -> placed_variables.PerWorkerVariable:
        """Makes a variable with a value for each worker, under TensorFlow's name."""
        home = self._servers.place_for_workers()
        with self._container_strategy().scope():
            return placed_variables.make_per_worker(home, **kwargs)

    def _create_variable(
        self, next_creator: Callable[..., Variable], **kwargs: Any
    ) -> Variable | ShardedVariable:
        """Makes a variable, or its parts if the partitioner cuts it."""
        if self._partitioner is None or ambient.current().colocate is not None:
            return next_creator(**kwargs)
        return partitioners.create(self._partitioner, next_creator, kwargs)

    @contextlib.contextmanager
    def _enter(self, **changes: Any) -> Iterator[None]:
        self._warn("run")
        with ambient.push(copy=0, **changes):
            yield

    def _warn(self, method: str) -> None:
        """Says once that a method ran here, and not on a worker."""
        if function.is_compiling() or method in self._warned:
            return
        self._warned.add(method)
        _log.warning(
            "A `tf.distribute.ParameterServerStrategy` method (`%s`) is invoked "
            "without using `ClusterCoordinator.schedule`. If you are not tracing a "
            "function, this method is executed on the coordinator.",
            method,
        )

    def _place(self, tree: _T) -> _T:
        return tree

    def _reduce_to(
        self, op: object, value: _T, destinations: object, options: object
    ) -> _T:
        self._warn("reduce")
        return value

    # Each worker reads a dataset of its own, so these are no distributed datasets.
    def _distribute_dataset(  # type: ignore[override]
        self, dataset: Any, options: object
    ) -> WorkerBatches:
        return WorkerBatches(dataset)

    def _distribute_from_function(  # type: ignore[override]
        self, dataset_fn: Callable[..., Any], options: object
    ) -> WorkerFunction:
        return WorkerFunction(dataset_fn, self._num_replicas_in_sync)

    @property
    def worker_devices(self) -> Sequence[str]:
        """The name of the device that computes, of one worker."""
        return self._topology.names

    @property
    def parameter_devices(self) -> Sequence[str]:
        """The names of the devices that hold variables, one for each server."""
        count = self._servers.count
        return [f"/job:ps/replica:0/task:{i}/device:CPU:0" for i in range(count)]

    def non_slot_devices(self, var_list: Sequence[Variable]) -> Variable:
        """Returns the first of the variables by name."""
        return min(var_list, key=lambda v: v.name)


def _do_nothing() -> None:
    pass


@final
@dataclasses.dataclass(eq=False)
class RunningCluster:
    """What a strategy and its `ClusterCoordinator` share.

    Attributes:
        carrier: what runs servers and workers.
        workers: how many workers there are.
        servers: the parameter servers.
        restore_from: restores all variables from the last checkpoint; None if nothing
            does.
        coordinator: the coordinator; None before it is made. It sets the rest.
        runners: what gives functions to workers, one for each.
        cancel_waiting: cancels the functions that wait; those that run go on.
        close: ends the coordinator's threads.
    """

    carrier: Carrier
    workers: int
    servers: ServerGroup
    restore_from: Callable[[], object] | None
    coordinator: Any = None
    runners: Sequence[Any] = ()
    cancel_waiting: Callable[[], object] = _do_nothing
    close: Callable[[], object] = _do_nothing


class ParameterServerStrategy(base.Strategy):
    """Keeps variables on parameter servers, and lets workers train independently.

    Variables that you create in `scope` are stored on the servers. Functions that you
    pass to `ClusterCoordinator.schedule` run on workers, which do not wait for each
    other.

    Args:
        cluster_resolver: says how many workers and parameter servers there are.
        variable_partitioner: a function of shape and type that returns into how many
            parts a variable is split, for example one of
            `distribute.experimental.partitioners`. None does not split variables.
        carrier: what runs servers and workers: ``"ray"`` (the default) for processes,
            ``"threads"`` for threads of this process, or an object such as
            `coordinator.RayCarrier`.
        restore_from: a function without arguments that restores all variables from the
            last checkpoint. If a server is lost while functions run, the strategy
            starts it again and calls this function, and training continues. If it is
            None, the loss of a server raises an error.

    Raises:
        TypeError: `cluster_resolver` or `variable_partitioner` has another type.
        ValueError: the cluster has no workers or no servers, two chiefs, or tasks of
            other kinds; or `carrier` is unknown.

    >>> import unisono
    >>> cluster = {"worker": ["a:1", "b:1"], "ps": ["c:1", "d:1"]}
    >>> resolver = unisono.distribute.cluster_resolver.SimpleClusterResolver(
    ...     unisono.train.ClusterSpec(cluster)
    ... )
    >>> strategy = unisono.distribute.ParameterServerStrategy(
    ...     resolver, carrier="threads"
    ... )
    >>> with strategy.scope():
    ...     first, second = unisono.Variable([1.0, 2.0]), unisono.Variable(3.0)
    >>> second.device, first.assign_add([1.0, 1.0]).tolist()
    ('/job:ps/replica:0/task:1/device:CPU:0', [2.0, 3.0])
    >>> strategy.shutdown()
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver,
        variable_partitioner: Callable[..., Sequence[int]] | None = None,
        *,
        carrier: str | Carrier | None = None,
        restore_from: Callable[[], object] | None = None,
    ) -> None:
        if not hasattr(cluster_resolver, "cluster_spec"):
            raise TypeError(
                "ParameterServerStrategy expects a cluster resolver, received "
                f"{cluster_resolver!r}. Use TFConfigClusterResolver() or, for a "
                "ClusterSpec, SimpleClusterResolver(spec), of "
                "distribute.cluster_resolver."
            )
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise TypeError(
                "variable_partitioner must be a function of shape and type, such as "
                "distribute.experimental.partitioners.MinSizePartitioner(max_shards=2),"
                f" received {variable_partitioner!r}."
            )
        spec = cluster_resolver.cluster_spec()
        workers, count = _check_cluster(spec)
        # A resolver of the program's own need not know the task.
        _check_task(
            spec,
            getattr(cluster_resolver, "task_type", None),
            getattr(cluster_resolver, "task_id", None),
        )
        self._resolver = cluster_resolver
        chosen = _find_carrier(carrier)
        # Looked up before anything starts: an error leaves no server behind.
        topology = Topology.of(["CPU:0"])
        chosen.start(spec)
        # When the strategy is garbage, so are its servers and workers.
        self._stop = weakref.finalize(self, chosen.stop)
        servers = ServerGroup(chosen, count, workers)
        self._cluster = RunningCluster(chosen, workers, servers, restore_from)
        placement = storage.Placement(
            self,
            topology,
            storage.Policy.SERVER,
            topology.home,
            topology.names[0],
            servers=servers,
        )
        super().__init__(_ServerExtended(self, placement, variable_partitioner))

    def __reduce_ex__(  # type: ignore[override]
        self, protocol: SupportsIndex
    ) -> tuple[type[WorkerStrategy], tuple[int]]:
        # A dataset function that uses the strategy travels to workers with it. All
        # that it can need there are the methods that distribute datasets.
        return WorkerStrategy, (self.num_replicas_in_sync,)

    def describe_servers(self) -> description.Description:
        """Returns a table of what each parameter server stores, with sizes in bytes.

        >>> import unisono
        >>> cluster = unisono.train.ClusterSpec(
        ...     {"worker": ["a:1"], "ps": ["b:1", "c:1"]}
        ... )
        >>> strategy = unisono.distribute.ParameterServerStrategy(
        ...     unisono.distribute.cluster_resolver.SimpleClusterResolver(cluster),
        ...     carrier="threads",
        ... )
        >>> with strategy.scope():
        ...     first, second = unisono.Variable([1.0, 2.0]), unisono.Variable(3.0)
        >>> strategy.describe_servers().bytes_per_server
        {0: 8, 1: 4}
        >>> strategy.shutdown()
        """
        return self._cluster.servers.describe()

    def shutdown(self) -> None:
        """Ends the workers and servers; variables of the strategy lose their values.

        If you do not call it, they end with the program, or when neither the strategy
        nor one of its variables is used any more. Results that you have not fetched
        are cancelled.

        >>> import unisono
        >>> cluster = unisono.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
        >>> strategy = unisono.distribute.ParameterServerStrategy(
        ...     unisono.distribute.cluster_resolver.SimpleClusterResolver(cluster),
        ...     carrier="threads",
        ... )
        >>> strategy.shutdown()
        """
        self._cluster.cancel_waiting()
        self._cluster.servers.is_shut_down = True
        # Ends what workers run, too: nobody waits for a long closure.
        self._stop()
        self._cluster.close()


def cluster_of(strategy: ParameterServerStrategy) -> RunningCluster:
    """Returns what a strategy shares with its coordinator."""
    # Private, because programs see the class.
    return strategy._cluster  # noqa: SLF001


def _check_cluster(spec: ClusterSpec) -> tuple[int, int]:
    """Returns the numbers of workers and of parameter servers.

    Raises:
        ValueError: there are none, too many chiefs or evaluators, or tasks of other
            kinds.
    """
    if not spec or not spec.jobs:
        raise ValueError(
            "Cluster spec must be non-empty in "
            "`tf.distribute.cluster_resolver.ClusterResolver`. Give a cluster with "
            "`worker` and `ps` tasks."
        )
    if not set(spec.jobs) <= set(_JOBS):
        raise ValueError(
            "Disallowed task type found in cluster spec. Allowed types are "
            f"{_JOBS} and the cluster spec is {spec}."
        )
    counts = {job: spec.num_tasks(job) if job in spec.jobs else 0 for job in _JOBS}
    for job in ("chief", "evaluator"):
        if counts[job] > 1:
            raise ValueError(
                f"There must be at most one '{job}' job. Received "
                f"{spec.job_tasks(job)}."
            )
    for job in ("ps", "worker"):
        if counts[job] < 1:
            raise ValueError(
                f"There must be at least one {job}. Add its address to the cluster, "
                f"under `{job}`."
            )
    return counts["worker"], counts["ps"]


def _check_task(spec: ClusterSpec, task_type: str | None, task_id: int | None) -> None:
    """Raises `ValueError` if the task of this process is not one of the cluster.

    Args:
        spec: the cluster.
        task_type: its job; None if that is not known.
        task_id: its index in the job; None if that is not known.
    """
    # A cluster does not list its evaluator.
    if not task_type or task_type == "evaluator":
        return
    if task_type not in _JOBS:
        raise ValueError(
            f"Unrecognized task_type: {task_type!r}, valid task types are: {_JOBS}."
        )
    if task_type not in spec.jobs or not spec.num_tasks(task_type):
        raise ValueError(f"`task_type` {task_type!r} not found in cluster_spec.")
    if task_id is not None and task_id > max(spec.task_indices(task_type)):
        raise ValueError(
            f"The `task_id` {task_id} exceeds the maximum id of {task_type}, which is "
            f"{max(spec.task_indices(task_type))}."
        )


def _find_carrier(given: str | Carrier | None) -> Carrier:
    """Returns the carrier that is asked for.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(given, Carrier):
        return given
    given = "ray" if given is None else given
    if given not in _CARRIERS:
        raise ValueError(
            f"carrier must be one of {sorted(_CARRIERS)} or a carrier object, received "
            f"{given!r}."
        )
    return _CARRIERS[given]()
