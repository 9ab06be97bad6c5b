"""Reads and writes a topology as bytes of TensorFlow's ``TopologyProto``."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono._src.foundation import messages

# The largest number in a field of 32 bits.
_LARGEST = (1 << 31) - 1


@functools.cache
def _message() -> Any:
    # TensorFlow's fields have 32 bits. A field of 64 bits reads the same bytes, and
    # keeps a number that is too large, so that `read` can refuse it.
    fields = (
        "repeated int64 mesh_shape = 1; optional int64 num_tasks = 2;"
        "optional int64 num_tpu_devices_per_task = 3;"
        "repeated int64 device_coordinates = 4"
    )
    return messages.make_classes(TopologyProto=fields)["TopologyProto"]


def write(mesh_shape: Sequence[int], coordinates: np.ndarray) -> bytes:
    """Returns the bytes of a topology."""
    tasks, per_task, _ = coordinates.shape
    made: bytes = _message()(
        mesh_shape=mesh_shape,
        num_tasks=tasks,
        num_tpu_devices_per_task=per_task,
        device_coordinates=coordinates.ravel(),
    ).SerializeToString()
    return made


def read(text: bytes) -> tuple[list[int], Any]:
    """Returns the shape and the coordinates in the bytes of a topology.

    Raises:
        ValueError: the bytes are not those of a topology.
    """
    import google.protobuf.message

    try:
        found = _message().FromString(text)
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
