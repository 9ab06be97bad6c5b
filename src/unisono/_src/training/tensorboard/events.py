"""TensorBoard's event files: TFRecord files with a protocol buffer in each record."""

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
from unisono._src.input.sources import files

# Numbers the files of this process: two may be made in the same second.
_numbers = itertools.count()


@functools.cache
def _message() -> Any:
    """Returns the class of events, with the fields that scalars need."""
    return messages.make_classes(
        Event="optional double wall_time = 1; optional int64 step = 2;"
        "optional string file_version = 3; optional Summary summary = 5",
        Summary="repeated Value value = 1",
        Value="optional string tag = 1; optional float simple_value = 2",
    )["Event"]


def _event(**fields: Any) -> bytes:
    """Returns an event of now as bytes."""
    made: bytes = _message()(wall_time=time.time(), **fields).SerializeToString()
    return made


def scalar(name: str, value: float, step: int) -> bytes:
    """Returns the event that says that `name` has a value at a step.

    The file keeps values in single precision; larger ones become infinite.
    """
    return _event(step=step, summary={"value": [{"tag": name, "simple_value": value}]})


@final
class EventFile:
    """A new file of events in a directory, for any number of threads.

    Args:
        directory: the directory, which is made if it does not exist.
        suffix: the end of the file's name.
        most: the number of events that may wait to be written.
        seconds: the time that they may wait.
    """

    def __init__(self, directory: str, suffix: str, most: int, seconds: float) -> None:
        folder = pathlib.Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        made = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        name = f"events.out.tfevents.{made}.{next(_numbers)}{suffix}"
        # Reentrant: `write` holds it when it calls `flush`.
        self._lock = threading.RLock()
        self._file = files.TFRecordWriter(folder / name)
        self._most, self._seconds = most, seconds
        self._waiting, self._flushed = 0, time.monotonic()
        # TensorBoard expects this as the first record.
        self._file.write(_event(file_version="brain.Event:2"))
        self.flush()

    def write(self, event: bytes) -> None:
        """Appends an event, and flushes if too many wait or for too long."""
        with self._lock:
            self._file.write(event)
            self._waiting += 1
            is_late = time.monotonic() >= self._flushed + self._seconds
            if self._waiting >= self._most or is_late:
                self.flush()

    def flush(self) -> None:
        """Hands the waiting events to the operating system."""
        with self._lock:
            self._file.flush()
            self._waiting, self._flushed = 0, time.monotonic()

    def close(self) -> None:
        """Writes the waiting events and closes the file."""
        with self._lock:
            self._file.close()
