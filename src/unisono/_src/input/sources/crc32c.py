"""CRC-32C of many records at once.

TFRecord files guard every record with this checksum, which Python does not have. It is
linear: the checksum of a record is the exclusive or of what each byte contributes at
its distance from the end. So the contributions come from tables, for thousands of
bytes in one NumPy operation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78
_ROW = 64


@functools.cache
def _step() -> np.ndarray:
    """What a byte becomes by passing through the register."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        low = (table & 1).astype(bool)
        table = (table >> 1) ^ np.where(low, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


def _advance(values: np.ndarray, count: int) -> np.ndarray:
    """Registers after `count` zero bytes."""
    table = _step()
    for _ in range(count):
        values = table[values & 0xFF] ^ (values >> 8)
    return values


@functools.cache
def _bytes_table() -> np.ndarray:
    """Contribution of each byte value at each place of a row, flat."""
    rows = [_step()]
    for _ in range(_ROW - 1):
        rows.append(_advance(rows[-1], 1))
    return np.concatenate(rows[::-1])


@functools.cache
def _values_table(unit: int) -> np.ndarray:
    """Contribution of each byte of a register, followed by k units of `unit` bytes.

    Indexed by place in the row (the last is not followed by anything), byte, value.
    """
    basis = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
    # How a register changes over one unit, found by repeated squaring of the map.
    over_unit = _power(_advance(basis, 1), unit)
    rows, current = [], basis
    for _ in range(_ROW):
        rows.append(_of_bytes(current))
        current = _through(over_unit, current)
    return np.stack(rows[::-1])


def _of_bytes(images: np.ndarray) -> np.ndarray:
    """The images of all values of each of the four bytes, from those of the bits."""
    values = np.arange(256, dtype=np.uint32)
    out = np.zeros((4, 256), np.uint32)
    for byte in range(4):
        for bit in range(8):
            chosen = ((values >> np.uint32(bit)) & 1).astype(bool)
            out[byte] ^= np.where(chosen, images[8 * byte + bit], np.uint32(0))
    return out


def _through(images: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values after a linear map that is given by the images of the bits."""
    table = _of_bytes(images)
    out = np.zeros_like(values)
    for byte in range(4):
        out ^= table[byte][(values >> np.uint32(8 * byte)) & 0xFF]
    return out


def _power(images: np.ndarray, exponent: int) -> np.ndarray:
    result = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
    while exponent:
        if exponent & 1:
            result = _through(images, result)
        images = _through(images, images)
        exponent >>= 1
    return result


@functools.lru_cache(4096)
def _initial(length: int) -> int:
    """What the initial register contributes to a record of `length` bytes."""
    basis = (np.uint32(1) << np.arange(32, dtype=np.uint32)).astype(np.uint32)
    images = _power(_advance(basis, 1), length)
    return int(np.bitwise_xor.reduce(images))


def crc32c_many(records: Sequence[Any]) -> np.ndarray:
    """The checksum of each record.

    Args:
        records: objects with the buffer interface.

    >>> [hex(c) for c in crc32c_many([b"123456789", b""])]
    ['0xe3069283', '0x0']
    """
    out = np.zeros(len(records), np.uint32)
    groups: dict[int, list[int]] = {}
    for index, record in enumerate(records):
        groups.setdefault(-(-len(record) // _ROW), []).append(index)
    for rows, members in groups.items():
        # Bounded memory: the tables' results take four times the size of the records.
        step = max(1, (1 << 20) // max(1, rows * _ROW))
        for start in range(0, len(members), step):
            some = members[start : start + step]
            out[some] = _group([records[i] for i in some], rows)
    return out


def _group(records: Sequence[Any], rows: int) -> np.ndarray:
    initial = np.array([_initial(len(r)) for r in records], np.uint32)
    if rows == 0:
        return initial ^ np.uint32(0xFFFFFFFF)
    padded = np.zeros((len(records), rows * _ROW), np.uint8)
    for line, record in zip(padded, records, strict=True):
        if len(record):
            line[-len(record) :] = np.frombuffer(record, np.uint8)
    places = np.arange(0, 256 * _ROW, 256, dtype=np.int32)
    indices = padded.reshape(-1, _ROW) + places
    values = np.bitwise_xor.reduce(_bytes_table().take(indices), axis=1)
    folded = _fold(values.reshape(len(records), rows))
    return folded ^ initial ^ np.uint32(0xFFFFFFFF)


def _fold(values: np.ndarray) -> np.ndarray:
    """Join the registers of consecutive rows of each record."""
    unit = _ROW
    while values.shape[1] > 1:
        count = -(-values.shape[1] // _ROW) * _ROW
        padded = np.zeros((len(values), count), np.uint32)
        padded[:, count - values.shape[1] :] = values
        table = _values_table(unit)
        place = np.arange(_ROW)
        blocks = padded.reshape(len(values), -1, _ROW)
        joined = np.zeros(blocks.shape, np.uint32)
        for byte in range(4):
            joined ^= table[place, byte, (blocks >> np.uint32(8 * byte)) & 0xFF]
        values = np.bitwise_xor.reduce(joined, axis=2)
        unit *= _ROW
    return values[:, 0]


def masked(checksums: np.ndarray) -> np.ndarray:
    """Checksums as TFRecord files store them: rotated, and with a constant added."""
    rotated = (checksums >> np.uint32(15)) | (checksums << np.uint32(17))
    return rotated + np.uint32(0xA282EAD8)
