"""Defines `DeviceAssignment`: the cores of a grid that make up each replica."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.machines.tpu.core_grid import TPUTopology


class DeviceAssignment:
    """A map from the logical cores of each replica to places in a grid of devices.

    >>> import unisono
    >>> grid = unisono.tpu.experimental.initialize_tpu_system()  # Of 8 devices.
    >>> assignment = unisono.tpu.experimental.DeviceAssignment.build(
    ...     grid, computation_shape=[1, 1, 1, 2], num_replicas=4
    ... )
    >>> assignment.num_replicas, assignment.num_cores_per_replica
    (4, 2)
    >>> assignment.coordinates(1, 1), assignment.tpu_ordinal(1, 1)
    ((1, 0, 0, 1), 3)

    Args:
        topology: the grid.
        core_assignment: integers of shape ``[replicas, cores of a replica, 4]``: the
            coordinates of every logical core. `build` computes them.

    Raises:
        ValueError: `topology` is not a `Topology`, or `core_assignment` has
            the wrong shape.
    """

    def __init__(
        self, topology: TPUTopology, core_assignment: Sequence[Any] | np.ndarray
    ) -> None:
        if not isinstance(topology, TPUTopology):
            raise ValueError(
                f"topology must be a Topology object, got {type(topology)}"
            )
        cores = np.asarray(core_assignment, np.int32)
        if cores.ndim != 3:
            raise ValueError(
                f"core_assignment must be a rank 3 numpy array, got shape {cores.shape}"
            )
        if cores.shape[-1] != topology.mesh_rank:
            raise ValueError(
                "core_assignment.shape[-1] must have size equal to topology "
                f"rank ({topology.mesh_rank}), got shape {cores.shape}"
            )
        self._topology, self._cores = topology, cores
        self._replicas: dict[tuple[int, int], list[int]] = {}
        for replica, own in enumerate(cores):
            for core, place in enumerate(own):
                task = topology.task_ordinal_at_coordinates(place)
                self._replicas.setdefault((task, core), []).append(replica)

    @property
    def topology(self) -> TPUTopology:
        """The grid that the cores are in."""
        return self._topology

    @property
    def num_cores_per_replica(self) -> int:
        """The number of logical cores of a replica."""
        return int(self._cores.shape[1])

    @property
    def num_replicas(self) -> int:
        """The number of replicas."""
        return int(self._cores.shape[0])

    @property
    def core_assignment(self) -> np.ndarray:
        """The coordinates of the cores, by replica, logical core, and axis."""
        return self._cores

    def coordinates(self, replica: int, logical_core: int) -> tuple[int, ...]:
        """Returns the coordinates of a logical core in the grid."""
        return tuple(self._cores[replica, logical_core, :].tolist())

    def lookup_replicas(self, task_id: int, logical_core: int) -> list[int]:
        """Returns the replicas whose core of this number is in one process, in order.

        >>> from unisono.tpu.experimental import DeviceAssignment, Topology
        >>> pair = Topology(None, [1, 1, 1, 2], [[[0, 0, 0, 0], [0, 0, 0, 1]]])
        >>> both = DeviceAssignment.build(pair, num_replicas=2)
        >>> both.lookup_replicas(task_id=0, logical_core=0)
        [0, 1]
        >>> both.tpu_device(replica=1, job="worker")
        '/job:worker/task:0/device:TPU:1'

        Raises:
            ValueError: no replica has that core in the process.
        """
        found = self._replicas.get((task_id, logical_core))
        if found is None:
            raise ValueError(
                f"Can not find any replica in task: {task_id} contains logical_core: "
                f"{logical_core}"
            )
        return list(found)

    def tpu_ordinal(self, replica: int = 0, logical_core: int = 0) -> int:
        """Returns the index that the device of a logical core has in its process."""
        place = self.coordinates(replica, logical_core)
        return self._topology.tpu_device_ordinal_at_coordinates(place)

    def host_device(
        self, replica: int = 0, logical_core: int = 0, job: str | None = None
    ) -> str:
        """Returns the name of the host of a logical core."""
        place = self.coordinates(replica, logical_core)
        return self._topology.cpu_device_name_at_coordinates(place, job)

    def tpu_device(
        self, replica: int = 0, logical_core: int = 0, job: str | None = None
    ) -> str:
        """Returns the name of the device of a logical core."""
        place = self.coordinates(replica, logical_core)
        return self._topology.tpu_device_name_at_coordinates(place, job)

    @classmethod
    def build(
        cls,
        topology: TPUTopology | bytes,
        computation_shape: Sequence[int] | None = None,
        computation_stride: Sequence[int] | None = None,
        num_replicas: int = 1,
    ) -> DeviceAssignment:
        """Returns an assignment of replicas to blocks of cores in a grid.

        Args:
            topology: the grid, or the bytes that its `serialized` returns.
            computation_shape: the shape of a replica's block; one core by default.
            computation_stride: the distance between the cores of a block along each
                axis; 1 by default.
            num_replicas: how many blocks to place.

        Raises:
            ValueError: the shape or the stride does not have one positive number for
                each axis, or the replicas do not fit.

        >>> from unisono.tpu.experimental import DeviceAssignment, Topology
        >>> pair = Topology(None, [1, 1, 1, 2], [[[0, 0, 0, 0], [0, 0, 0, 1]]])
        >>> DeviceAssignment.build(pair, num_replicas=2).core_assignment.tolist()
        [[[0, 0, 0, 0]], [[0, 0, 0, 1]]]
        """
        if isinstance(topology, bytes):
            topology = TPUTopology(serialized=topology)
        if not isinstance(topology, TPUTopology):
            raise ValueError(
                f"`topology` is not a Topology object; got {type(topology)}"
            )
        shape = _check_axes("computation_shape", computation_shape, topology)
        stride = _check_axes("computation_stride", computation_stride, topology)
        counts = _count_room(topology, shape, stride, num_replicas)
        if len(topology.missing_devices):
            return cls(
                topology, _place_around_holes(topology, shape, stride, num_replicas)
            )
        grid = _replica_grid(counts, num_replicas)
        is_full = num_replicas == math.prod(counts)
        # A ring needs chips of two cores, all of which are in use.
        if shape[-1] == topology.mesh_shape[-1] == 2 and is_full and stride.max() == 1:
            return cls(topology, _place_along_rings(shape, grid))
        starts = [
            _find_block_start(i, grid, shape, stride) for i in range(num_replicas)
        ]
        return cls(topology, _list_blocks(starts, shape, stride))


def _check_axes(name: str, given: Any, topology: TPUTopology) -> np.ndarray:
    rank = topology.mesh_rank
    found = np.asarray([1] * rank if given is None else given, np.int32)
    if found.shape != (rank,):
        raise ValueError(
            f"{name} must have shape [{rank}]; got {found.shape}: one number for each "
            "of x, y, z and the core of a chip."
        )
    if (found < 1).any():
        raise ValueError(f"{name} must be positive; got {name}={found}")
    return found


def _count_room(
    topology: TPUTopology, shape: np.ndarray, stride: np.ndarray, wanted: int
) -> list[int]:
    """Returns how many replicas fit along each axis; raises if too few fit."""
    mesh, footprint = topology.mesh_shape, shape * stride
    if wanted < 1:
        raise ValueError(f"num_replicas must be positive; got {wanted}")
    if (footprint > mesh).any():
        raise ValueError(
            f"computation footprint {footprint} does not fit in TPU topology shape "
            f"{mesh}"
        )
    counts: list[int] = (mesh // footprint * stride).tolist()
    if wanted > math.prod(counts):
        raise ValueError(
            f"requested {wanted} replicas but only {math.prod(counts)} replicas with "
            f"shape {shape} and computation_stride {stride} fit in a TPU mesh of shape "
            f"{mesh}"
        )
    return counts


def _replica_grid(counts: Sequence[int], wanted: int) -> list[int]:
    """Returns the sides of a grid for `wanted` replicas, as near to a cube as fits.

    It sets the narrowest axis first, so that the rest always fits on the others. Among
    equal axes the cores of a chip come first, then x, y and z, which keeps neighbours
    near one another.
    """
    rank, left = len(counts), wanted
    grid = [1] * rank
    order = sorted(range(rank), key=lambda axis: (counts[axis], (axis + 1) % rank))
    for done, axis in enumerate(order):
        # The root of what is left, rounded up: the same side for all axes to come.
        side = next(n for n in itertools.count(1) if n ** (rank - done) >= left)
        grid[axis] = min(side, counts[axis])
        left = -(-left // grid[axis])
    return grid


def _find_block_start(
    replica: int, grid: Sequence[int], shape: np.ndarray, stride: np.ndarray
) -> np.ndarray:
    """Returns where a replica's block begins; the core counts fastest, then x, y, z."""
    place = np.zeros(len(grid), np.int32)
    for axis in (len(grid) - 1, *range(len(grid) - 1)):
        replica, place[axis] = divmod(replica, grid[axis])
    # With a stride of n, n blocks interleave: they begin side by side.
    start: np.ndarray = place // stride * shape * stride + place % stride
    return start


def _list_blocks(
    starts: Sequence[np.ndarray], shape: np.ndarray, stride: np.ndarray
) -> np.ndarray:
    inside = np.indices(shape.tolist()).reshape(len(shape), -1).T * stride
    cores: np.ndarray = np.asarray(starts, np.int32)[:, None, :] + inside
    return cores


def _place_around_holes(
    topology: TPUTopology, shape: np.ndarray, stride: np.ndarray, wanted: int
) -> np.ndarray:
    """Returns the first blocks of cores in which no device is missing."""
    counts = topology.mesh_shape // (shape * stride) * stride
    every = [
        _find_block_start(i, counts.tolist(), shape, stride)
        for i in range(math.prod(counts))
    ]
    missing = {tuple(p) for p in topology.missing_devices.tolist()}
    blocks = _list_blocks(every, shape, stride)
    whole = [b for b in blocks if not missing & {tuple(p) for p in b.tolist()}]
    if len(whole) < wanted:
        raise ValueError(
            f"requested {wanted} replicas but only {len(whole)} replicas with shape "
            f"{shape} fit around the {len(missing)} missing devices of a TPU mesh of "
            f"shape {topology.mesh_shape}"
        )
    return np.asarray(whole[:wanted])


def _place_along_rings(shape: np.ndarray, grid: Sequence[int]) -> np.ndarray:
    """Returns the cores of replicas in the order of rings.

    One ring goes through the replicas, and one through the chips of each replica.
    Neighbours in a ring are neighbours in the grid, so that an all-reduce over the
    replicas, or over the cores of one, sends nothing past another chip.
    """
    inner, outer = _walk_grid(*shape[:3].tolist()), _walk_grid(*grid[:3])
    chips = np.asarray(outer)[:, None, :] * shape[:3] + np.asarray(inner)
    cores = np.repeat(chips, 2, axis=1)
    halves = np.tile([0, 1], len(inner))
    halves = np.broadcast_to(halves[None, :, None], (*cores.shape[:2], 1))
    return np.concatenate([cores, halves], axis=-1)


def _walk_grid(x: int, y: int, z: int) -> list[tuple[int, int, int]]:
    """Returns all places of a grid, each next to the one before if all sides are even.

    The first place is the corner at 0; the last one is next to it where possible.
    """
    sides = [s for s in (x, y, z) if s > 1]
    if len(sides) < 2 or any(s % 2 for s in sides):
        return [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    if z == 1:
        return [(i, j, 0) for i, j in _walk_rectangle(x, y)]
    if y == 1:
        return [(i, 0, k) for i, k in _walk_rectangle(x, z)]
    if x == 1:
        return [(0, j, k) for j, k in _walk_rectangle(y, z)]
    found = [(0, 0, 0)]
    for layer in range(z):
        path = [(i, j, layer) for i, j in _walk_rectangle(x, y)[1:]]
        found += path if layer % 2 == 0 else path[::-1]
    return [*found, *((0, 0, layer) for layer in range(z - 1, 0, -1))]


def _walk_rectangle(width: int, height: int) -> list[tuple[int, int]]:
    """Returns a closed path through a rectangle: along the rows, back by the edge."""
    found = [(0, 0)]
    for row in range(height):
        columns = range(1, width)
        found += [(c, row) for c in (columns if row % 2 == 0 else reversed(columns))]
    return [*found, *((0, row) for row in range(height - 1, 0, -1))]
