"""A topology as bytes: the fields of TensorFlow's ``TopologyProto``.

The message has four fields of integers that matter here, so Protocol Buffers itself,
a large dependency, is not needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

_SHAPE, _TASKS, _PER_TASK, _COORDINATES = 1, 2, 3, 4
_VARINT, _BYTES = 0, 2
_LARGEST = 1 << 31


def write(mesh_shape: Sequence[int], coordinates: np.ndarray) -> bytes:
    """The bytes of a topology."""
    tasks, per_task, _ = coordinates.shape
    return b"".join(
        (
            _packed(_SHAPE, mesh_shape),
            _varint(_TASKS << 3 | _VARINT) + _varint(tasks),
            _varint(_PER_TASK << 3 | _VARINT) + _varint(per_task),
            _packed(_COORDINATES, coordinates.ravel()),
        )
    )


def read(text: bytes) -> tuple[list[int], Any]:
    """Shape and coordinates from the bytes of a topology.

    Raises:
        ValueError: these are not the bytes of a topology.
    """
    found: dict[int, list[int]] = {}
    for field, numbers in _fields(memoryview(text)):
        found.setdefault(field, []).extend(numbers)
    shape = found.get(_SHAPE, [])
    tasks, per_task = (found.get(f, [0])[-1] for f in (_TASKS, _PER_TASK))
    flat, wanted = found.get(_COORDINATES, []), (tasks, per_task, len(shape))
    if len(flat) != math.prod(wanted):
        raise ValueError(
            "`device_coordinates` must have shape num_tasks * num_tpu_devices_per_task "
            f"* len(mesh_shape), {wanted}; got {len(flat)} numbers."
        )
    return shape, np.asarray(flat, np.int64).reshape(wanted)


def _packed(field: int, numbers: Any) -> bytes:
    body = b"".join(_varint(int(n)) for n in numbers)
    return _varint(field << 3 | _BYTES) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _fields(text: memoryview) -> Iterator[tuple[int, list[int]]]:
    place = 0
    while place < len(text):
        key, place = _number(text, place)
        if key & 7 == _VARINT:
            value, place = _number(text, place)
            yield key >> 3, [value]
        elif key & 7 == _BYTES:
            length, place = _number(text, place)
            stop = place + length
            if stop > len(text):
                raise _broken()
            is_ours = key >> 3 in (_SHAPE, _COORDINATES)
            yield key >> 3, list(_numbers(text[place:stop])) if is_ours else []
            place = stop
        else:
            raise _broken()


def _numbers(text: memoryview) -> Iterator[int]:
    place = 0
    while place < len(text):
        value, place = _number(text, place)
        yield value


def _number(text: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if place >= len(text):
            break
        byte = text[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= _LARGEST:
                break
            return value, place
    raise _broken()


def _broken() -> ValueError:
    return ValueError("These are not the bytes of a topology, as `serialized` gives.")
