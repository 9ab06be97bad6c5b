"""TensorBoard's event files: records of a small protocol buffer each.

Written here, because the format is old and four fields of it are enough for scalars.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import socket
import struct
import threading
import time
from typing import final

import numpy as np

from unisono._src.input.sources import tfrecord_writer

_VERSION = b"brain.Event:2"
_numbers = itertools.count()

# Field number and wire type, as protocol buffers put them together.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 0x09, 0x10, 0x1A, 0x2A
_VALUE = 0x0A
_TAG, _SIMPLE_VALUE = 0x0A, 0x15


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _bytes(field: int, data: bytes) -> bytes:
    return bytes([field]) + _varint(len(data)) + data


def _event(payload: bytes) -> bytes:
    return bytes([_WALL_TIME]) + struct.pack("<d", time.time()) + payload


def scalar(name: str, value: float, step: int) -> bytes:
    """The event that says that `name` has a value at a step.

    Values are kept in single precision; those beyond it are infinite.
    """
    with np.errstate(over="ignore"):
        single = np.array(value, "<f4")
    number = bytes([_SIMPLE_VALUE]) + single.tobytes()
    summary = _bytes(_VALUE, _bytes(_TAG, name.encode()) + number)
    return _event(bytes([_STEP]) + _varint(step) + _bytes(_SUMMARY, summary))


@final
class EventFile:
    """A new file of events in a directory, for any number of threads.

    Args:
        directory: made if it is not there.
        suffix: the end of the file's name.
        most: how many events may wait to be written.
        seconds: how long they may.
    """

    def __init__(self, directory: str, suffix: str, most: int, seconds: float) -> None:
        folder = pathlib.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        made = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        name = f"events.out.tfevents.{made}.{next(_numbers)}{suffix}"
        self._lock = threading.RLock()
        self._file = tfrecord_writer.TFRecordWriter(folder / name)
        self._most, self._seconds = most, seconds
        self._waiting, self._flushed = 0, time.monotonic()
        self._file.write(_event(_bytes(_FILE_VERSION, _VERSION)))
        self.flush()

    def write(self, event: bytes) -> None:
        """Append an event."""
        with self._lock:
            self._file.write(event)
            self._waiting += 1
            is_late = time.monotonic() >= self._flushed + self._seconds
            if self._waiting >= self._most or is_late:
                self.flush()

    def flush(self) -> None:
        """Hand what is waiting to the operating system."""
        with self._lock:
            self._file.flush()
            self._waiting, self._flushed = 0, time.monotonic()

    def close(self) -> None:
        """Finish the file."""
        with self._lock:
            self._file.close()
