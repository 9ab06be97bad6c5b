"""Connects to the workers of a TPU, and reads the grid of its devices.

JAX starts the hardware itself. This module connects the workers, and says where each
device stands. On a machine without a TPU its other devices form the grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.cluster.resolvers import tpu
from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.foundation import ambient
from unisono._src.machines import devices
from unisono._src.machines.tpu.core_grid import TPUTopology
from unisono._src.workers import process_group, worker_guard

# How long a worker may be behind the others before the guard says so.
_STALL_SECONDS = 30.0


def experimental_connect_to_cluster(
    cluster_spec_or_resolver: ClusterSpec | ClusterResolver,
    job_name: str = "localhost",
    task_index: int = 0,
    protocol: str | None = None,
    make_master_device_default: bool = True,
    cluster_device_filters: object = None,
) -> None:
    """Connects this process to the other workers of a cluster, if there are any.

    Call it at the start of the program, before anything uses JAX's devices.

    >>> import unisono
    >>> resolver = unisono.distribute.cluster_resolver.TPUClusterResolver("local")
    >>> unisono.config.experimental_connect_to_cluster(resolver)  # A cluster of one.
    >>> unisono.config.experimental_connect_to_cluster("10.0.0.1:8470")
    Traceback (most recent call last):
    ValueError: `cluster_spec_or_resolver` must be a `ClusterSpec` or ...

    Args:
        cluster_spec_or_resolver: a `ClusterSpec` or a resolver.
        job_name: the job of this process, for a `ClusterSpec`; a resolver knows it.
        task_index: the index of this process in its job, for a `ClusterSpec`; a
            resolver knows it.
        protocol: accepted, no effect; JAX has only one protocol.
        make_master_device_default: accepted, no effect; a process computes on its own
            devices.
        cluster_device_filters: accepted, no effect, for the same reason.

    Raises:
        ValueError: the first argument is something else, or this process is not in the
            cluster.
        RuntimeError: JAX is already running without the other workers.
    """
    del protocol, make_master_device_default, cluster_device_filters
    given = cluster_spec_or_resolver
    task: tuple[str | None, int | None]
    if isinstance(given, ClusterSpec):
        cluster, task = given.as_dict(), (job_name, task_index)
    elif hasattr(given, "cluster_spec") and hasattr(given, "task_type"):
        cluster, task = given.cluster_spec().as_dict(), (given.task_type, given.task_id)
    else:
        raise ValueError(
            "`cluster_spec_or_resolver` must be a `ClusterSpec` or a `ClusterResolver`."
            f" Received {given!r}."
        )
    if sum(len(tasks) for tasks in cluster.values()) < 2:
        devices.start()
        return
    group = process_group.group_of(cluster, *task)
    process_group.start(group, worker_guard.ASYNC, _STALL_SECONDS)


def initialize_tpu_system(
    cluster_resolver: ClusterResolver | None = None,
) -> TPUTopology:
    """Connects the workers of a TPU, and returns the grid of all their devices.

    On a TPU, the hardware determines the place of each device. Elsewhere, the
    accelerators, or the CPU devices if there are none, form a grid like that of a TPU,
    with two cores per chip: 8 devices are 2×2×1×2, 16 are 2×2×2×2.

    >>> import unisono
    >>> grid = unisono.tpu.experimental.initialize_tpu_system()  # On 8 CPU devices.
    >>> grid.mesh_shape.tolist(), grid.num_tasks, grid.num_tpus_per_task
    ([2, 2, 1, 2], 1, 8)

    Args:
        cluster_resolver: the resolver that knows the workers; None for this process
            only.

    Returns:
        A `unisono.tpu.experimental.Topology`.

    Raises:
        RuntimeError: it is called inside a `unisono.function`.
        ValueError: the workers have different numbers of devices.
    """
    _check_not_compiling("initialize_tpu_system")
    if cluster_resolver is not None:
        experimental_connect_to_cluster(cluster_resolver)
    devices.start()
    return topology_of(jax.devices())


def shutdown_tpu_system(cluster_resolver: ClusterResolver | None = None) -> None:
    """Does nothing, because JAX holds the devices until the process ends.

    >>> import jax, unisono
    >>> unisono.tpu.experimental.shutdown_tpu_system()
    >>> len(jax.devices())
    8

    Args:
        cluster_resolver: accepted, no effect.

    Raises:
        RuntimeError: it is called inside a `unisono.function`.
    """
    del cluster_resolver
    _check_not_compiling("shutdown_tpu_system")


def _check_not_compiling(name: str) -> None:
    """Raises `RuntimeError` inside a function that is being compiled."""
    if getattr(ambient.current().state, "is_compiled", False):
        raise RuntimeError(
            f"{name} must not be called inside a unisono.function; call it before."
        )


def topology_of(found: Sequence[jax.Device]) -> TPUTopology:
    """Returns the grid that these devices form.

    Raises:
        ValueError: the processes have different numbers of devices.
    """
    ordered = _sort_by_worker(found)
    kind = devices.kind_of(found[0])
    if kind == "TPU" and hasattr(found[0], "coords"):
        places = np.array([[(*d.coords, d.core_on_chip) for d in r] for r in ordered])
        # A slice of a larger TPU does not begin at 0.
        places = places - places.min(axis=(0, 1))
        shape = places.max(axis=(0, 1)) + 1
    else:
        shape = np.array(grid_shape(len(found)))
        places = _places_in_order(shape).reshape(len(ordered), -1, len(shape))
    return TPUTopology(
        mesh_shape=shape.tolist(), device_coordinates=places, device_type=kind
    )


def _sort_by_worker(found: Sequence[jax.Device]) -> list[list[jax.Device]]:
    """Returns the devices of each worker.

    Raises:
        ValueError: the workers have different numbers of devices.
    """
    rows: dict[int, list[jax.Device]] = {}
    for device in found:
        rows.setdefault(device.process_index, []).append(device)
    if len({len(row) for row in rows.values()}) != 1:
        counts = {process: len(row) for process, row in rows.items()}
        raise ValueError(
            f"The workers have different numbers of devices, {counts}; a grid needs as "
            "many on each."
        )
    return [rows[process] for process in sorted(rows)]


def query_system(workers: int, job: str) -> tpu.TPUSystemMetadata:
    """Returns the number and the names of JAX's devices, for `TPUClusterResolver`.

    Args:
        workers: how many workers the cluster has; 0 for this machine alone.
        job: the name of their job.

    Raises:
        RuntimeError: JAX has not started with all of them yet.
    """
    if workers > 1 and (not devices.is_started() or jax.process_count() < workers):
        raise RuntimeError(
            f"The TPU has {workers} workers, which have not joined yet. Call "
            "unisono.tpu.experimental.initialize_tpu_system(resolver) first."
        )
    devices.start()
    rows = _sort_by_worker(jax.devices())
    names = tuple(
        f"/job:{job}/replica:0/task:{task}/device:{devices.kind_of(device)}:{i}"
        for task, row in enumerate(rows)
        for i, device in enumerate(row)
    )
    return tpu.TPUSystemMetadata(len(names), len(rows), len(rows[0]), None, names)


def install() -> None:
    """Lets `TPUClusterResolver.get_tpu_system_metadata` find JAX's devices."""
    tpu.MetadataQuery.run = query_system


def grid_shape(count: int) -> tuple[int, int, int, int]:
    """Returns the sides of a grid of so many devices, as near to a cube as possible.

    There are two devices to a chip, if their number is even.

    >>> grid_shape(8), grid_shape(16), grid_shape(1), grid_shape(6)
    ((2, 2, 1, 2), (2, 2, 2, 2), (1, 1, 1, 1), (3, 1, 1, 2))
    """
    cores = 2 if count % 2 == 0 else 1
    sides, left, axis = [1, 1, 1], count // cores, 0
    while left % 2 == 0:
        sides[axis], left, axis = sides[axis] * 2, left // 2, (axis + 1) % 3
    sides[0] *= left
    return (sides[0], sides[1], sides[2], cores)


def _places_in_order(shape: np.ndarray) -> np.ndarray:
    """Returns all places of a grid; the core counts fastest, then x, y and z."""
    z, y, x, core = np.indices(shape[[2, 1, 0, 3]].tolist()).reshape(4, -1)
    return np.stack([x, y, z, core], axis=-1)
