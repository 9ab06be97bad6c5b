"""TensorBoard's event files: records of a small protocol buffer each."""

from __future__ import annotations

import functools
import itertools
import os
import pathlib
import socket
import threading
import time
from typing import Any, final

from unisono._src.foundation import messages
from unisono._src.input.sources import tfrecord_writer

_numbers = itertools.count()


@functools.cache
def _message() -> Any:
    return messages.classes(
        Event="optional double wall_time = 1; optional int64 step = 2;"
        "optional string file_version = 3; optional Summary summary = 5",
        Summary="repeated Value value = 1",
        Value="optional string tag = 1; optional float simple_value = 2",
    )["Event"]


def _event(**fields: Any) -> bytes:
    made: bytes = _message()(wall_time=time.time(), **fields).SerializeToString()
    return made


def scalar(name: str, value: float, step: int) -> bytes:
    """The event that says that `name` has a value at a step.

    Values are kept in single precision; those beyond it are infinite.
    """
    return _event(step=step, summary={"value": [{"tag": name, "simple_value": value}]})


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
        self._file.write(_event(file_version="brain.Event:2"))
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
