"""A topology as bytes: TensorFlow's ``TopologyProto``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.foundation import messages

_LARGEST = (1 << 31) - 1


@functools.cache
def _message() -> Any:
    # TensorFlow has 32 bits; with 64, numbers that are too large are seen, not cut.
    fields = (
        "repeated int64 mesh_shape = 1; optional int64 num_tasks = 2;"
        "optional int64 num_tpu_devices_per_task = 3;"
        "repeated int64 device_coordinates = 4"
    )
    return messages.classes(TopologyProto=fields)["TopologyProto"]


def write(mesh_shape: Sequence[int], coordinates: np.ndarray) -> bytes:
    """The bytes of a topology."""
    tasks, per_task, _ = coordinates.shape
    made: bytes = _message()(
        mesh_shape=mesh_shape,
        num_tasks=tasks,
        num_tpu_devices_per_task=per_task,
        device_coordinates=coordinates.ravel(),
    ).SerializeToString()
    return made


def read(text: bytes) -> tuple[list[int], Any]:
    """Shape and coordinates from the bytes of a topology.

    Raises:
        ValueError: these are not the bytes of a topology.
    """
    import google.protobuf.message

    try:
        found = _message().FromString(text)
    except google.protobuf.message.DecodeError:
        raise _broken() from None
    shape, flat = list(found.mesh_shape), list(found.device_coordinates)
    wanted = found.num_tasks, found.num_tpu_devices_per_task, len(shape)
    if not all(0 <= n <= _LARGEST for n in (*shape, *flat, *wanted)):
        raise _broken()
    if len(flat) != math.prod(wanted):
        raise ValueError(
            "`device_coordinates` must have shape num_tasks * num_tpu_devices_per_task "
            f"* len(mesh_shape), {wanted}; got {len(flat)} numbers."
        )
    return shape, np.asarray(flat, np.int64).reshape(wanted)


def _broken() -> ValueError:
    return ValueError("These are not the bytes of a topology, as `serialized` gives.")
