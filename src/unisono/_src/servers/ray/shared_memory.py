"""Memory that two processes of one machine both see, without a file.

A process makes a `Segment` and sends its `SegmentPlace`, a few numbers, by Ray. Another
opens it through ``/proc``, which the system allows to processes of the same user only.
When the processes end, however they end, the memory is free again: there is nothing to
remove.
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
from typing import NamedTuple, final

import numpy as np

# Segments grow in such steps, so that slightly longer messages need no new ones.
_STEP = 1 << 16


@final
class SegmentPlace(NamedTuple):
    """The place where another process finds a segment.

    Attributes:
        pid: the process that has it.
        descriptor: its file descriptor there.
        serial: tells segments apart that had the same descriptor in turn.
        size: its bytes.
    """

    pid: int
    descriptor: int
    serial: str
    size: int


@final
class Segment:
    """Memory of this process that others may read and write.

    Attributes:
        place: where other processes find it; None while it is empty.
    """

    def __init__(self) -> None:
        self._memory: np.ndarray | None = None
        self.place: SegmentPlace | None = None

    @property
    def memory(self) -> np.ndarray:
        """The bytes of the shared memory, as an array."""
        assert self._memory is not None
        return self._memory

    def reserve(self, size: int) -> None:
        """Makes it hold at least `size` bytes; its content is lost if it grows."""
        if self.place is not None and size <= self.place.size:
            return
        self.release()
        size = -(-size // _STEP) * _STEP
        descriptor = os.memfd_create("unisono")
        os.ftruncate(descriptor, size)
        # The array keeps the mapping, which stays valid when the descriptor is closed.
        self._memory = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        self.place = SegmentPlace(os.getpid(), descriptor, secrets.token_hex(8), size)

    def release(self) -> None:
        """Gives the memory back."""
        if self.place is not None:
            os.close(self.place.descriptor)
        self._memory = self.place = None

    def __del__(self) -> None:
        # At the end of the interpreter the module `os` may be gone already, and an
        # object whose `__init__` has raised has no attributes.
        if os is not None and hasattr(self, "place"):
            self.release()


@final
class Mappings:
    """The segments of other processes that this one has seen."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[SegmentPlace, np.ndarray]] = {}

    def __getitem__(self, place: SegmentPlace) -> np.ndarray:
        """Returns the bytes of a segment.

        Raises:
            OSError: its process is gone, or of another user or machine.
        """
        key = place.pid, place.descriptor
        known = self._known.get(key)
        # A descriptor is used again for the next segment; its
        # serial is another one then.
        if known is not None and known[0] == place:
            return known[1]
        self._forget_closed()
        memory = _open(place)
        self._known[key] = (place, memory)
        return memory

    def _forget_closed(self) -> None:
        """Gives back the memory of processes that have ended."""
        for pid, descriptor in list(self._known):
            if not os.path.exists(_path(pid, descriptor)):
                del self._known[pid, descriptor]


def _open(place: SegmentPlace) -> np.ndarray:
    descriptor = os.open(_path(place.pid, place.descriptor), os.O_RDWR)
    try:
        return np.frombuffer(mmap.mmap(descriptor, place.size), np.uint8)
    finally:
        os.close(descriptor)


def _path(pid: int, descriptor: int) -> str:
    return f"/proc/{pid}/fd/{descriptor}"


def find_machine() -> str:
    """Returns a mark that processes have in common if they can share memory, or "".

    That is a running system, its numbering of processes, and a user.
    """
    if sys.platform != "linux":
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        # Containers of one machine have the same boot, and
        # process numbers of their own.
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}/{os.getuid()}"
    except OSError:
        return ""
