"""Defines `Topology`: the place of each device in the grid of a TPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.foundation import messages

# The axes x, y and z of the chips, and the core of a chip.
RANK = 4
# The bytes of a topology may come from another program; a larger grid is an error in
# them, and would take all memory.
_MOST_DEVICES = 1 << 20
# The largest number in a field of 32 bits.
_LARGEST = (1 << 31) - 1


class TPUTopology:
    """The shape of a grid of devices, and the coordinates of each device in it.

    `initialize_tpu_system` returns one; programs rarely create it themselves.

    Args:
        serialized: the bytes that `serialized` of another topology has returned;
            `mesh_shape` and `device_coordinates` are then ignored.
        mesh_shape: how many devices there are along x, y, z and the core of a chip.
        device_coordinates: integers of shape ``[tasks, devices of a task, 4]``.
        device_type: the type of the devices, for their names.

    Raises:
        ValueError: the shape is not 4 positive numbers, or the coordinates do not fit
            it.

    >>> from unisono.tpu.experimental import Topology
    >>> grid = Topology(
    ...     mesh_shape=[1, 1, 1, 2], device_coordinates=[[[0] * 4, [0, 0, 0, 1]]]
    ... )
    >>> grid.num_tasks, grid.num_tpus_per_task
    (1, 2)
    >>> grid.tpu_device_name_at_coordinates([0, 0, 0, 1], job="worker")
    '/job:worker/task:0/device:TPU:1'
    >>> Topology(serialized=grid.serialized()).mesh_shape.tolist()
    [1, 1, 1, 2]
    """

    def __init__(
        self,
        serialized: bytes | None = None,
        mesh_shape: Sequence[int] | None = None,
        device_coordinates: Sequence[Any] | np.ndarray | None = None,
        device_type: str = "TPU",
    ) -> None:
        if serialized:
            mesh_shape, device_coordinates = _read(serialized)
        self._mesh_shape = _check_shape(mesh_shape)
        self._coordinates = _check_coordinates(device_coordinates, self._mesh_shape)
        self._type = device_type
        # By place: the task and the number of the device there, or -1 for no device.
        grid = tuple(self._mesh_shape)
        self._tasks = np.full(grid, -1, np.int32)
        self._ordinals = np.full(grid, -1, np.int32)
        for task, row in enumerate(self._coordinates):
            for ordinal, place in enumerate(row):
                self._tasks[tuple(place)] = task
                self._ordinals[tuple(place)] = ordinal

    @property
    def mesh_shape(self) -> np.ndarray:
        """The number of devices along each axis."""
        return self._mesh_shape

    @property
    def mesh_rank(self) -> int:
        """The number of axes."""
        return len(self._mesh_shape)

    @property
    def device_coordinates(self) -> np.ndarray:
        """The coordinates of the devices, by task, device of the task, and axis."""
        return self._coordinates

    @property
    def missing_devices(self) -> np.ndarray:
        """The coordinates of the places without a device, one row for each."""
        return np.argwhere(self._tasks < 0)

    @property
    def num_tasks(self) -> int:
        """The number of processes that have the devices."""
        return int(self._coordinates.shape[0])

    @property
    def num_tpus_per_task(self) -> int:
        """The number of devices of each process."""
        return int(self._coordinates.shape[1])

    def task_ordinal_at_coordinates(self, device_coordinates: Sequence[int]) -> int:
        """Returns the index of the process that has the device at these coordinates."""
        return int(self._tasks[tuple(device_coordinates)])

    def tpu_device_ordinal_at_coordinates(
        self, device_coordinates: Sequence[int]
    ) -> int:
        """Returns the index in its process of the device at these coordinates."""
        return int(self._ordinals[tuple(device_coordinates)])

    def cpu_device_name_at_coordinates(
        self, device_coordinates: Sequence[int], job: str | None = None
    ) -> str:
        """Returns the name of the host of the device at these coordinates."""
        return f"{self._prefix(device_coordinates, job)}/device:CPU:0"

    def tpu_device_name_at_coordinates(
        self, device_coordinates: Sequence[int], job: str | None = None
    ) -> str:
        """Returns the name of the device at these coordinates."""
        ordinal = self.tpu_device_ordinal_at_coordinates(device_coordinates)
        prefix = self._prefix(device_coordinates, job)
        return f"{prefix}/device:{self._type}:{ordinal}"

    def _prefix(self, device_coordinates: Sequence[int], job: str | None) -> str:
        task = self.task_ordinal_at_coordinates(device_coordinates)
        return f"/task:{task}" if job is None else f"/job:{job}/task:{task}"

    def serialized(self) -> bytes:
        """Returns the topology as the bytes of TensorFlow's ``TopologyProto``."""
        return _write(self._mesh_shape.tolist(), self._coordinates)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self._mesh_shape))
        return f"<Topology {shape}, {self.num_tasks} task(s)>"


def _check_shape(mesh_shape: Sequence[int] | None) -> np.ndarray:
    shape = np.asarray([] if mesh_shape is None else mesh_shape, np.int32)
    if shape.shape != (RANK,) or (shape < 1).any():
        raise ValueError(
            f"`mesh_shape` must be a sequence of {RANK} positive entries; got "
            f"`mesh_shape={mesh_shape}`"
        )
    if math.prod(shape.tolist()) > _MOST_DEVICES:
        raise ValueError(
            f"`mesh_shape` must be that of a grid of at most {_MOST_DEVICES:,} devices;"
            f" got {shape.tolist()}."
        )
    return shape


def _check_coordinates(
    found: Sequence[Any] | np.ndarray | None, shape: np.ndarray
) -> np.ndarray:
    places = np.asarray([] if found is None else found, np.int32)
    if places.ndim != 3 or places.shape[2] != len(shape):
        raise ValueError(
            "`device_coordinates` must be a rank 3 int32 array with minor dimension "
            f"equal to the `mesh_shape` rank, {len(shape)}; got shape {places.shape}."
        )
    if (places < 0).any() or (places >= shape).any():
        raise ValueError(
            f"`device_coordinates` must lie in the grid of shape {shape.tolist()}; "
            f"received {places.reshape(-1, len(shape)).tolist()}."
        )
    rows = {tuple(p) for p in places.reshape(-1, len(shape)).tolist()}
    if len(rows) != places.shape[0] * places.shape[1]:
        raise ValueError("Two devices in `device_coordinates` have the same place.")
    return places


# Bytes of TensorFlow's ``TopologyProto``.


@functools.cache
def _topology_proto() -> Any:
    # TensorFlow's fields have 32 bits. A field of 64 bits reads the same bytes, and
    # keeps a number that is too large, so that `_read` can refuse it.
    fields = (
        "repeated int64 mesh_shape = 1; optional int64 num_tasks = 2;"
        "optional int64 num_tpu_devices_per_task = 3;"
        "repeated int64 device_coordinates = 4"
    )
    return messages.make_classes(TopologyProto=fields)["TopologyProto"]


def _write(mesh_shape: Sequence[int], coordinates: np.ndarray) -> bytes:
    """Returns the bytes of a topology."""
    tasks, per_task, _ = coordinates.shape
    made: bytes = _topology_proto()(
        mesh_shape=mesh_shape,
        num_tasks=tasks,
        num_tpu_devices_per_task=per_task,
        device_coordinates=coordinates.ravel(),
    ).SerializeToString()
    return made


def _read(text: bytes) -> tuple[list[int], np.ndarray]:
    """Returns the shape and the coordinates in the bytes of a topology.

    Raises:
        ValueError: the bytes are not those of a topology.
    """
    import google.protobuf.message

    try:
        found = _topology_proto().FromString(text)
    except google.protobuf.message.DecodeError:
        raise _malformed_error() from None
    shape, flat = list(found.mesh_shape), list(found.device_coordinates)
    wanted = found.num_tasks, found.num_tpu_devices_per_task, len(shape)
    if not all(0 <= n <= _LARGEST for n in (*shape, *flat, *wanted)):
        raise _malformed_error()
    if len(flat) != math.prod(wanted):
        raise ValueError(
            "`device_coordinates` must have shape num_tasks * num_tpu_devices_per_task "
            f"* len(mesh_shape), {wanted}; got {len(flat)} numbers."
        )
    return shape, np.asarray(flat, np.int64).reshape(wanted)


def _malformed_error() -> ValueError:
    return ValueError(
        "These are not the bytes of a topology; pass the result of its `serialized`."
    )
