"""`TPUStrategy`: replicas that may span several devices each, on any kind of device."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Literal, final

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.typing import ArrayLike

from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.cluster.resolvers.tpu import TPUClusterResolver
from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.machines import devices, shard_plan
from unisono._src.machines.topology import Topology
from unisono._src.machines.tpu.core_grid import TPUTopology
from unisono._src.machines.tpu.device_assignment import DeviceAssignment
from unisono._src.state import frames
from unisono._src.state.storage import Policy
from unisono._src.strategies import base, local, replicated
from unisono._src.values.array_operators import StandsForArray
from unisono._src.workers import tpu_system


@final
class _TPUExtended(replicated.Replicated):
    """The methods of replicas that may have several logical devices each."""

    _has_static_shapes = True

    def experimental_logical_device(
        self, logical_device_id: int
    ) -> contextlib.AbstractContextManager[None]:
        """Returns a block whose operations and variables belong to a logical device.

        The compiler runs one program on all logical devices of a replica, so each of
        them has a value that is made here. A variable is whole, even if the strategy
        would split it outside the block.

        Args:
            logical_device_id: the number of the logical device, from 0.

        Raises:
            ValueError: there is no such logical device.

        >>> import unisono
        >>> strategy = TPUStrategy(state="sharded", shard_above=1)
        >>> with strategy.scope():
        ...     with strategy.extended.experimental_logical_device(0):
        ...         weight = unisono.Variable(jnp.ones(8))
        >>> float(weight.numpy().sum())
        8.0
        """
        return contexts.enter_logical_device(self._topology, logical_device_id)


class TPUStrategy(base.Strategy):
    """Trains synchronously on TPUs, or on a grid of any other devices.

    Without `experimental_device_assignment` each device is a replica, and the strategy
    behaves like `MirroredStrategy`. With it, a replica spans the logical devices that
    the assignment lists for it. Inside a `unisono.function`, you choose with
    `experimental_split_to_logical_devices` and similar methods how they share the work.

    Args:
        tpu_cluster_resolver: says which TPU to use; by default
            ``TPUClusterResolver("")``.
        experimental_device_assignment: a `DeviceAssignment` for the grid that
            `initialize_tpu_system` returns.
        experimental_spmd_xla_partitioning: accepted, no effect; one program is always
            partitioned over the logical devices of a replica.
        state: ``"mirrored"``, or ``"sharded"``: large variables, and the slots of
            optimizers, are split over the logical devices of each replica. If a replica
            has only one, they are split over the replicas, as by `MirroredStrategy`.
        shard_above: variables with at least this number of elements are split; by
            default 65,536.
        shard_rules: a dictionary from regular expressions to the axis to split, or to
            None to keep a variable whole. The first expression that is found in the
            name of a large variable applies. By default, the largest axis that can be
            split is split. With three or more axes, the first one is split only if no
            other can be. If the number of devices does not divide the axis, the
            variable is split over groups of devices.
        gather: when a compiled step gathers split weights: ``"use"`` (the default)
            where it uses them, ``"step"`` all at the start, which takes more memory.

    Raises:
        ValueError: the assignment does not fit the available devices; or `state` is
            ``"sharded"`` and the devices belong to several processes.

    >>> from unisono.tpu.experimental import initialize_tpu_system
    >>> grid = initialize_tpu_system()
    >>> pairs = DeviceAssignment.build(grid, [1, 1, 1, 2], num_replicas=4)
    >>> TPUStrategy(experimental_device_assignment=pairs).num_replicas_in_sync
    4
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        experimental_device_assignment: DeviceAssignment | None = None,
        experimental_spmd_xla_partitioning: bool = False,
        *,
        state: Literal["mirrored", "sharded"] = "mirrored",
        shard_above: int | None = None,
        shard_rules: Mapping[str, int | None] | None = None,
        gather: Literal["use", "step"] | None = None,
    ) -> None:
        del experimental_spmd_xla_partitioning
        plan = shard_plan.make_plan(state, shard_above, shard_rules, gather)
        resolver = tpu_cluster_resolver or TPUClusterResolver("")
        grid = tpu_system.initialize_tpu_system(resolver)
        given = experimental_device_assignment
        if given is None:
            topology = _replica_per_device(grid.num_tasks)
        else:
            topology = _topology_of(given, grid.num_tasks)
        if plan is not None and topology.is_spread:
            raise ValueError(
                f'state="sharded" needs all devices in one process; there are '
                f"{topology.workers}. A worker could not read a variable by itself. "
                'Pass state="mirrored".'
            )
        self._resolver = resolver
        self._topology = topology
        placement = local.home_placement(self, topology, Policy.MIRRORED, plan)
        super().__init__(_TPUExtended(self, placement))

    def experimental_assign_to_logical_device(
        self, tensor: ArrayLike | StandsForArray, logical_device_id: int
    ) -> jax.Array:
        """Returns the same value, as a whole on one logical device of the replica.

        XLA runs one program on all logical devices of a replica, so the other devices
        hold the value too.

        Args:
            tensor: an array.
            logical_device_id: the number of the logical device, from 0.

        Raises:
            ValueError: there is no such logical device.

        >>> strategy = TPUStrategy()
        >>> assign = strategy.experimental_assign_to_logical_device
        >>> values = strategy.run(lambda: assign(jnp.arange(2), 0))
        >>> strategy.experimental_local_results(values)[0].tolist()
        [0, 1]
        """
        logical = self._topology.num_logical_devices
        contexts.check_logical_device(logical, logical_device_id)
        return _annotate(tensor, self._topology, ())

    def experimental_split_to_logical_devices(
        self,
        tensor: ArrayLike | StandsForArray,
        partition_dimensions: Sequence[int],
    ) -> jax.Array:
        """Returns the same value, split over the logical devices of the replica.

        The logical devices share the work on the value as far as XLA supports it.
        Outside a `unisono.function` a replica computes on its first logical device, and
        this method has no effect.

        Args:
            tensor: an array.
            partition_dimensions: the number of parts along each axis; their product is
                the number of logical devices.

        Raises:
            ValueError: `partition_dimensions` does not have one number for each axis, a
                number does not divide the size of its axis, or the product is wrong.

        >>> import unisono
        >>> grid = unisono.tpu.experimental.initialize_tpu_system()
        >>> pairs = DeviceAssignment.build(grid, [1, 1, 1, 2], num_replicas=1)
        >>> strategy = TPUStrategy(experimental_device_assignment=pairs)
        >>> @unisono.function
        ... def total():
        ...     split = strategy.experimental_split_to_logical_devices
        ...     return jnp.sum(split(jnp.ones((4, 2)), [2, 1]))
        >>> float(strategy.run(total))
        8.0
        """
        value = jnp.asarray(tensor)
        _check_split(
            value.shape, partition_dimensions, self._topology.num_logical_devices
        )
        return _annotate(value, self._topology, partition_dimensions)

    def experimental_replicate_to_logical_devices(
        self, tensor: ArrayLike | StandsForArray
    ) -> jax.Array:
        """Returns the same value, as a whole on each logical device of the replica.

        Args:
            tensor: an array.

        >>> strategy = TPUStrategy()
        >>> replicate = strategy.experimental_replicate_to_logical_devices
        >>> values = strategy.run(lambda: replicate(jnp.arange(2)))
        >>> strategy.experimental_local_results(values)[0].tolist()
        [0, 1]
        """
        return _annotate(tensor, self._topology, ())


@final
class ExperimentalTPUStrategy(TPUStrategy):
    """`TPUStrategy` with the arguments of TensorFlow's older class.

    Args:
        tpu_cluster_resolver: as for `TPUStrategy`.
        device_assignment: the `experimental_device_assignment` of `TPUStrategy`.

    >>> import unisono
    >>> strategy = unisono.distribute.experimental.TPUStrategy()
    >>> isinstance(strategy, unisono.distribute.experimental.TPUStrategy)
    True
    """

    def __init__(
        self,
        tpu_cluster_resolver: ClusterResolver | None = None,
        device_assignment: DeviceAssignment | None = None,
    ) -> None:
        super().__init__(tpu_cluster_resolver, device_assignment)


def _annotate(
    tensor: ArrayLike | StandsForArray, topology: Topology, parts: Sequence[int]
) -> jax.Array:
    """Returns `tensor` with a hint for the compiler, if there is work to share."""
    frame, value = ambient.current(), jnp.asarray(tensor)
    hinted: jax.Array
    if topology.num_logical_devices == 1 or not frames.frame().is_compiled:
        return value
    spec = topology.partition(parts)
    if frame.port is not None and frame.port.is_spmd:
        # Each device runs the program for its own replica, so the replica axis is not
        # the compiler's to use. A bare spec takes the mesh at hand, which knows that
        # (docs/decisions/0016).
        hinted = jax.lax.with_sharding_constraint(value, spec)
        return hinted
    if topology.replicas > 1:
        # Replicas of different shapes run in turn, in one program for all of them. A
        # hint would make the compiler sum over the replica axis too, so there is none.
        return value
    frames.frame().note_topology(topology)
    place = NamedSharding(topology.mesh, spec)
    hinted = jax.lax.with_sharding_constraint(value, place)
    return hinted


def _check_split(shape: Sequence[int], parts: Sequence[int], logical: int) -> None:
    """Raises unless `parts` splits an array of this shape over the logical devices."""
    if len(parts) != len(shape):
        raise ValueError(
            "Length of `partition_dimensions` must equal to the rank of `tensor.shape` "
            f"({len(shape)}). Received len(partition_dimensions)={len(parts)}."
        )
    for axis, (size, count) in enumerate(zip(shape, parts, strict=True)):
        if count < 1:
            raise ValueError(
                f"`partition_dimensions[{axis}]` must be positive. Received: {count}."
            )
        if size % count:
            raise ValueError(
                f"Tensor shape at `partition_dimensions[{axis}]` must be divisible by "
                "corresponding value specified by `partition_dimensions` "
                f"({count}). Received: {size}."
            )
    if math.prod(parts) != logical:
        raise ValueError(
            "The product of `partition_dimensions` should be the same as the number of "
            f"logical devices (={logical}). Received `partition_dimensions`="
            f"{list(parts)},and their product is {math.prod(parts)}."
        )


def _replica_per_device(workers: int) -> Topology:
    """Returns the topology with a replica on every device."""
    if workers == 1:
        return Topology.of(devices.default_names())
    return Topology.from_tasks(_tasks(workers), jax.process_index())


def _tasks(workers: int) -> list[tuple[str, int]]:
    return [("worker", i) for i in range(workers)]


def _topology_of(given: DeviceAssignment, workers: int) -> Topology:
    """Returns the topology with replicas on the devices that an assignment gives.

    Raises:
        ValueError: the assignment is for other devices, or a replica has devices of
            several workers.
    """
    rows = [[d for d in jax.devices() if d.process_index == w] for w in range(workers)]
    grid = given.topology
    if (grid.num_tasks, grid.num_tpus_per_task) != (workers, len(rows[0])):
        raise ValueError(
            f"experimental_device_assignment is for {grid.num_tasks} task(s) of "
            f"{grid.num_tpus_per_task} device(s); there are {workers} of "
            f"{len(rows[0])}. Build it for what initialize_tpu_system returns."
        )
    # From coordinates in the grid to (worker, number there), and to JAX's devices.
    places = [[_device_at(grid, core) for core in own] for own in given.core_assignment]
    spans = tuple(tuple(rows[task][i] for task, i in own) for own in places)
    owners = [own[0][0] for own in places]
    is_split = any(task != own[0][0] for own in places for task, _ in own)
    if is_split or sorted(owners) != owners:
        raise ValueError(
            "Each replica must be on the devices of one worker, and the replicas in "
            "the order of workers; received, by replica, devices of the workers "
            f"{[sorted({task for task, _ in own}) for own in places]}."
        )
    names = _names(rows, workers)
    firsts = tuple(names[own[0][0]][own[0][1]] for own in places)
    worker = jax.process_index()
    counts = [owners.count(w) for w in range(workers)]
    return Topology(
        firsts,
        tuple(own[0] for own in spans),
        workers,
        worker,
        sum(counts[:worker]),
        counts[worker],
        spans if given.num_cores_per_replica > 1 else (),
    )


def _device_at(grid: TPUTopology, place: Sequence[int]) -> tuple[int, int]:
    """Returns the worker of a device in the grid, and its number there."""
    return (
        grid.task_ordinal_at_coordinates(place),
        grid.tpu_device_ordinal_at_coordinates(place),
    )


def _names(rows: Sequence[Sequence[jax.Device]], workers: int) -> list[list[str]]:
    """Returns the names of all devices, a list for each worker."""
    tasks = [("localhost", 0)] if workers == 1 else _tasks(workers)
    pairs = zip(rows, tasks, strict=True)
    return [devices.names_of(row, *task) for row, task in pairs]
