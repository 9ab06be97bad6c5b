"""Memory that two processes of one machine both see, without a file.

A process makes a `Segment` and sends its `SegmentPlace`, a few numbers, by Ray. Another
opens it through ``/proc``, which the system allows to processes of the same user only.
When the processes end, however they end, the memory is free again: there is nothing to
remove.

A pack has the large arrays of one message side by side in such memory. The rest of the
message, and where its arrays lie, travels by Ray. So all variables that a step asks of
one server come as one buffer.
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, final

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


# Smaller arrays travel with the message, and larger messages by Ray's object store,
# which then is faster. docs/decisions/0027 has the measurements.
_SMALLEST = 16 << 10
LARGEST = 16 << 20
_ALIGNMENT = 64


@final
class PackedArray(NamedTuple):
    """Stands for an array that lies in the pack of a message.

    Attributes:
        offset: its first byte there.
        shape: its shape.
        dtype: its type.
    """

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def measure(message: Any) -> int:
    """Returns how many bytes the pack of a message needs; 0 if it needs none."""
    total = 0

    def add(array: np.ndarray) -> np.ndarray:
        nonlocal total
        total = _end(total, array)
        return array

    _replace(message, np.ndarray, lambda x: add(x) if _is_large(x) else x)
    return total if total <= LARGEST else 0


def pack(message: Any, memory: np.ndarray) -> Any:
    """Copies the large arrays of a message into memory.

    Args:
        message: numbers, strings, bytes, arrays, and lists, tuples, named tuples and
            dictionaries of them.
        memory: bytes, as many as `measure` has said.

    Returns:
        The message, with pieces in place of these arrays.
    """
    used = 0

    def put(array: np.ndarray) -> Any:
        nonlocal used
        if not _is_large(array):
            return array
        piece = PackedArray(used, array.shape, array.dtype)
        np.copyto(_view(piece, memory), array)
        used = _end(used, array)
        return piece

    return _replace(message, np.ndarray, put)


def unpack(message: Any, memory: np.ndarray) -> Any:
    """Returns a message with arrays of its own in place of pieces of a pack.

    They are copies: the sender uses the memory again for the next message, and what
    receives the message may keep its arrays.
    """
    return _replace(message, PackedArray, lambda piece: _view(piece, memory).copy())


def _is_large(array: np.ndarray) -> bool:
    return array.nbytes >= _SMALLEST and not array.dtype.hasobject


def _end(start: int, array: np.ndarray) -> int:
    return -(-(start + array.nbytes) // _ALIGNMENT) * _ALIGNMENT


def _view(piece: PackedArray, memory: np.ndarray) -> np.ndarray:
    size = int(np.prod(piece.shape)) * piece.dtype.itemsize
    view = memory[piece.offset : piece.offset + size].view(piece.dtype)
    return view.reshape(piece.shape)


def _replace(tree: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Returns a structure with a function applied to every object of a type."""
    if isinstance(tree, kind):
        return change(tree)
    if isinstance(tree, dict):
        return {k: _replace(v, kind, change) for k, v in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_make"):
        return tree._make([_replace(v, kind, change) for v in tree])
    if isinstance(tree, list | tuple):
        return type(tree)([_replace(v, kind, change) for v in tree])
    return tree
