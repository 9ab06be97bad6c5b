"""`DeviceAssignment`: which cores of a grid make which replica."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.foundation.public_names import publish
from unisono._src.machines.tpu.core_grid import Topology


class DeviceAssignment:
    """A map from the logical cores of each replica to places in a grid of devices.

    Args:
        topology: the grid.
        core_assignment: integers of shape ``[replicas, cores of a replica, 4]``: the
            coordinates of every logical core. `build` computes them.

    Raises:
        ValueError: `topology` is not a `Topology`, or the shape is another one.
    """

    def __init__(
        self, topology: Topology, core_assignment: Sequence[Any] | np.ndarray
    ) -> None:
        if not isinstance(topology, Topology):
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
    def topology(self) -> Topology:
        """The grid."""
        return self._topology

    @property
    def num_cores_per_replica(self) -> int:
        """How many logical cores a replica has."""
        return int(self._cores.shape[1])

    @property
    def num_replicas(self) -> int:
        """How many replicas there are."""
        return int(self._cores.shape[0])

    @property
    def core_assignment(self) -> np.ndarray:
        """Coordinates by replica, logical core, and axis."""
        return self._cores

    def coordinates(self, replica: int, logical_core: int) -> tuple[int, ...]:
        """Where a logical core is in the grid."""
        return tuple(self._cores[replica, logical_core, :].tolist())

    def lookup_replicas(self, task_id: int, logical_core: int) -> list[int]:
        """The replicas whose core of this number is in a process, in order.

        Raises:
            ValueError: there is none.
        """
        found = self._replicas.get((task_id, logical_core))
        if found is None:
            raise ValueError(
                f"Can not find any replica in task: {task_id} contains logical_core: "
                f"{logical_core}"
            )
        return list(found)

    def tpu_ordinal(self, replica: int = 0, logical_core: int = 0) -> int:
        """Which of its process's devices a logical core is."""
        place = self.coordinates(replica, logical_core)
        return self._topology.tpu_device_ordinal_at_coordinates(place)

    def host_device(
        self, replica: int = 0, logical_core: int = 0, job: str | None = None
    ) -> str:
        """The name of the host of a logical core."""
        place = self.coordinates(replica, logical_core)
        return self._topology.cpu_device_name_at_coordinates(place, job)

    def tpu_device(
        self, replica: int = 0, logical_core: int = 0, job: str | None = None
    ) -> str:
        """The name of the device that a logical core is."""
        place = self.coordinates(replica, logical_core)
        return self._topology.tpu_device_name_at_coordinates(place, job)

    @classmethod
    def build(
        cls,
        topology: Topology | bytes,
        computation_shape: Sequence[int] | None = None,
        computation_stride: Sequence[int] | None = None,
        num_replicas: int = 1,
    ) -> DeviceAssignment:
        """Find room in a grid for replicas that are blocks of cores.

        Args:
            topology: the grid, or what its `serialized` gave.
            computation_shape: the shape of a replica's block; one core by default.
            computation_stride: the distance of a block's cores along each axis; 1 by
                default.
            num_replicas: how many blocks to place.

        Raises:
            ValueError: shape or stride are not one positive number for each axis, or
                the replicas do not fit.
        """
        if isinstance(topology, bytes):
            topology = Topology(serialized=topology)
        if not isinstance(topology, Topology):
            raise ValueError(
                f"`topology` is not a Topology object; got {type(topology)}"
            )
        shape = _checked("computation_shape", computation_shape, topology)
        stride = _checked("computation_stride", computation_stride, topology)
        counts = _room(topology, shape, stride, num_replicas)
        if len(topology.missing_devices):
            return cls(topology, _around_holes(topology, shape, stride, num_replicas))
        grid = _replica_grid(counts, num_replicas)
        is_full = num_replicas == math.prod(counts)
        if shape[-1] == topology.mesh_shape[-1] == 2 and is_full and stride.max() == 1:
            return cls(topology, _along_rings(shape, grid))
        starts = [_start(i, grid, shape, stride) for i in range(num_replicas)]
        return cls(topology, _blocks(starts, shape, stride))


def _checked(name: str, given: Any, topology: Topology) -> np.ndarray:
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


def _room(
    topology: Topology, shape: np.ndarray, stride: np.ndarray, wanted: int
) -> list[int]:
    """How many replicas fit along each axis."""
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
    """A grid of at least `wanted` replicas, as near to a cube as there is room.

    The narrowest axis is cut first, so that what remains always fits; among equal ones
    the cores of a chip come first, then x, y and z, which keeps neighbours near.
    """
    rank, left = len(counts), wanted
    grid = [1] * rank
    order = sorted(range(rank), key=lambda axis: (counts[axis], (axis + 1) % rank))
    for done, axis in enumerate(order):
        side = next(n for n in itertools.count(1) if n ** (rank - done) >= left)
        grid[axis] = min(side, counts[axis])
        left = -(-left // grid[axis])
    return grid


def _start(
    replica: int, grid: Sequence[int], shape: np.ndarray, stride: np.ndarray
) -> np.ndarray:
    """Where the block of a replica begins; the core counts fastest, then x, y, z."""
    place = np.zeros(len(grid), np.int32)
    for axis in (len(grid) - 1, *range(len(grid) - 1)):
        replica, place[axis] = divmod(replica, grid[axis])
    start: np.ndarray = place // stride * shape * stride + place % stride
    return start


def _blocks(starts: Any, shape: np.ndarray, stride: np.ndarray) -> np.ndarray:
    inside = np.indices(shape.tolist()).reshape(len(shape), -1).T * stride
    cores: np.ndarray = np.asarray(starts, np.int32)[:, None, :] + inside
    return cores


def _around_holes(
    topology: Topology, shape: np.ndarray, stride: np.ndarray, wanted: int
) -> np.ndarray:
    """Blocks of cores that are all there."""
    counts = topology.mesh_shape // (shape * stride) * stride
    every = [
        _start(i, counts.tolist(), shape, stride) for i in range(math.prod(counts))
    ]
    missing = {tuple(p) for p in topology.missing_devices.tolist()}
    blocks = _blocks(every, shape, stride)
    whole = [b for b in blocks if not missing & {tuple(p) for p in b.tolist()}]
    if len(whole) < wanted:
        raise ValueError(
            f"requested {wanted} replicas but only {len(whole)} replicas with shape "
            f"{shape} fit around the {len(missing)} missing devices of a TPU mesh of "
            f"shape {topology.mesh_shape}"
        )
    return np.asarray(whole[:wanted])


def _along_rings(shape: np.ndarray, grid: Sequence[int]) -> np.ndarray:
    """Replicas, and the chips of each, in the order of a ring through their blocks.

    Neighbours in the ring are neighbours in the grid, so that an all-reduce over
    replicas, or over the cores of one, sends nothing past another chip.
    """
    inner, outer = _ring(*shape[:3].tolist()), _ring(*grid[:3])
    chips = np.asarray(outer)[:, None, :] * shape[:3] + np.asarray(inner)
    cores = np.repeat(chips, 2, axis=1)
    halves = np.tile([0, 1], len(inner))
    halves = np.broadcast_to(halves[None, :, None], (*cores.shape[:2], 1))
    return np.concatenate([cores, halves], axis=-1)


def _ring(x: int, y: int, z: int) -> list[tuple[int, int, int]]:
    """The places of a grid so that each is next to the one before, if sides are even.

    It starts in the corner at 0 and, where that is possible, ends next to it.
    """
    sides = [s for s in (x, y, z) if s > 1]
    if len(sides) < 2 or any(s % 2 for s in sides):
        return [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    if z == 1:
        return [(i, j, 0) for i, j in _loop(x, y)]
    if y == 1:
        return [(i, 0, k) for i, k in _loop(x, z)]
    if x == 1:
        return [(0, j, k) for j, k in _loop(y, z)]
    found = [(0, 0, 0)]
    for layer in range(z):
        path = [(i, j, layer) for i, j in _loop(x, y)[1:]]
        found += path if layer % 2 == 0 else path[::-1]
    return [*found, *((0, 0, layer) for layer in range(z - 1, 0, -1))]


def _loop(width: int, height: int) -> list[tuple[int, int]]:
    """A closed way through a rectangle: winding along the rows, back by the edge."""
    found = [(0, 0)]
    for row in range(height):
        columns = range(1, width)
        found += [(c, row) for c in (columns if row % 2 == 0 else reversed(columns))]
    return [*found, *((0, row) for row in range(height - 1, 0, -1))]


publish("unisono.tpu.experimental", DeviceAssignment)
