"""Memory for batches that CPU devices can read in place, and that is used again."""

from __future__ import annotations

import functools
import itertools
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

# JAX's CPU devices read an array in place if its address is a multiple of this, and
# copy it otherwise.
_ALIGNMENT = 64
# Arrays of fewer bytes come from NumPy: for them, reuse costs more than it saves.
SMALL = 1 << 14
# The least number of bytes of the memory of arrays with room. An array that is kept
# keeps the room, too.
LEAST_ROOM = 1 << 19
# Above this many bytes in total, unused memory goes back to the operating system.
_MOST_BYTES = 1 << 28
# At most this many arrays are watched. Beyond it the oldest are forgotten: their memory
# is freed by Python, and not used again.
_MOST_WATCHED = 64


@final
class _Block(np.ndarray):
    """The memory of one array.

    It is a class of its own so that the `base` of an array tells where its memory comes
    from, and so that the `base` of a view is the array: NumPy would skip the array if
    both were of one type.
    """

    offset: int


@final
class Buffers:
    """Gives out memory for arrays, and reuses it once the array is gone.

    Memory that is fresh from the operating system costs more to touch for the first
    time than a batch costs to copy.

    >>> buffers = Buffers()
    >>> first = buffers.allocate((4, 8192), np.float32)
    >>> address = first.ctypes.data
    >>> del first
    >>> buffers.allocate((4, 8192), np.float32).ctypes.data == address
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Pairs of a weak reference to an array and its memory. The reference is polled,
        # not given a callback: Python swallows a KeyboardInterrupt inside a callback.
        self._blocks: list[tuple[Any, _Block]] = []

    def __reduce__(self) -> tuple[type[Buffers], tuple[()]]:
        # Worker processes get a copy of a plan. A lock cannot be pickled.
        return Buffers, ()

    def allocate(
        self, shape: Sequence[int], dtype: Any, *, has_room: bool = False
    ) -> np.ndarray:
        """Returns an array to be filled; its contents are arbitrary.

        Args:
            shape: its shape.
            dtype: its type.
            has_room: whether its memory has the size that `find_room` says, so that
                arrays of other shapes use it again.
        """
        kind = np.dtype(dtype)
        size = kind.itemsize * math.prod(shape)
        if has_room:
            size = find_room(size)
        if size < SMALL or kind.hasobject:
            return np.empty(shape, kind)
        with self._lock:
            # With room to begin at the next aligned
            # address, wherever the memory begins.
            block = self._take_block(size + _ALIGNMENT)
            array: np.ndarray = np.ndarray(tuple(shape), kind, block, block.offset)
            # Views of the array, and JAX arrays that read it in place, keep the array
            # alive. So a dead reference means that no one reads the memory.
            self._blocks.append((weakref.ref(array), block))
        return array

    def copy(
        self, array: np.ndarray, dtype: object = None, *, has_room: bool = False
    ) -> np.ndarray:
        """Returns a copy of an array, in another type if one is given."""
        kind = array.dtype if dtype is None else dtype
        made = self.allocate(array.shape, kind, has_room=has_room)
        np.copyto(made, array, casting="unsafe")
        return made

    def _take_block(self, size: int) -> _Block:
        """Returns memory of `size` bytes that no array uses; needs the lock."""
        for place, (array, block) in enumerate(self._blocks):
            if block.nbytes == size and array() is None:
                del self._blocks[place]
                return block
        if size + sum(block.nbytes for _, block in self._blocks) > _MOST_BYTES:
            self._blocks = [pair for pair in self._blocks if pair[0]() is not None]
        del self._blocks[: max(0, len(self._blocks) - _MOST_WATCHED + 1)]
        block = _Block(size, np.uint8)
        block.offset = -block.ctypes.data % _ALIGNMENT
        return block


@final
class BatchRows:
    """Copies the arrays of elements to where their batch will be.

    Threads that make elements copy each of them anyway, while it is in their caches.
    Whoever makes the batch then has nothing to copy.

    Args:
        size: the number of elements of a batch.
        buffers: gives memory for batches.

    >>> rows = BatchRows(2, Buffers())
    >>> made = [copy(np.full(8192, 7)) for copy in rows.copiers(2)]
    >>> rows.join(made)[:, 0].tolist()
    [7, 7]
    """

    def __init__(self, size: int, buffers: Buffers) -> None:
        self._size, self._buffers = size, buffers
        self._lock = threading.Lock()
        # By the number of the batch and of the component. Only their rows keep them
        # alive: a batch may never be complete.
        self._batches: dict[tuple[int, int], weakref.ref[np.ndarray]] = {}
        self._next = 0

    def begin(self, done: int = 0) -> None:
        """Begins another batch, of which the reader has `done` elements already."""
        # No place is used twice: the reader may have given away the batch.
        self._next = -(-self._next // self._size) * self._size + done

    def copiers(self, count: int) -> list[Callable[[Any], Any]]:
        """Returns, for each of the next elements, what copies its parts in turn."""
        first, self._next = self._next, self._next + count
        return [self._copier(*divmod(n, self._size)) for n in range(first, self._next)]

    def _copier(self, batch: int, row: int) -> Callable[[Any], Any]:
        parts = itertools.count()

        def copy(array: Any) -> Any:
            key = batch, next(parts)
            if not isinstance(array, np.ndarray):
                return array
            # A size may be a large number that stands for all elements.
            if not SMALL <= array.nbytes <= _MOST_BYTES // self._size:
                return np.array(array)
            whole = self._find(key, array)
            if whole.shape[1:] != array.shape or whole.dtype != array.dtype:
                return np.array(array)
            made: np.ndarray = whole[row]
            made[...] = array
            return made

        return copy

    def _find(self, key: tuple[int, int], array: np.ndarray) -> np.ndarray:
        """Returns the batch that an array belongs to."""
        with self._lock:
            known = self._batches.get(key)
            whole = None if known is None else known()
            if whole is None:
                shape = (self._size, *array.shape)
                whole = self._buffers.allocate(shape, array.dtype)
                living = [
                    (k, ref) for k, ref in self._batches.items() if ref() is not None
                ]
                self._batches = {**dict(living), key: weakref.ref(whole)}
        return whole

    def join(self, arrays: Sequence[Any]) -> np.ndarray | None:
        """Returns the batch whose rows are some arrays; None if there is none."""
        if len(arrays) != self._size:
            return None
        whole = getattr(arrays[0], "base", None)
        with self._lock:
            known = [ref() for ref in self._batches.values()]
        if whole is None or not any(whole is x for x in known):
            return None
        place, step = _address(whole), whole.strides[0]
        for number, x in enumerate(arrays):
            is_row = getattr(x, "base", None) is whole
            if not is_row or _address(x) != place + number * step:
                return None
        found: np.ndarray = whole
        return found


def _address(array: np.ndarray) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def find_room(size: int) -> int:
    """Returns the number of bytes of the memory of arrays with room."""
    return max(LEAST_ROOM, 1 << (size - 1).bit_length())


def find_memory(array: np.ndarray) -> np.ndarray | None:
    """Returns the bytes of an array and what room it has after them.

    Args:
        array: any array.

    Returns:
        The bytes, from an address that JAX reads in place; None if the array is not
        all of an array of `Buffers`.
    """
    first = array
    # What others return is a view of the array that they were told to fill.
    while not isinstance(block := first.base, _Block):
        if not isinstance(block, np.ndarray) or block.nbytes != array.nbytes:
            return None
        first = block
    if not array.flags.c_contiguous:
        return None
    return block[block.offset : block.offset + len(block) - _ALIGNMENT]


@functools.cache
def keep_freed_memory() -> None:
    """Has the C library keep the memory of freed arrays for the next ones.

    Otherwise each array of a photo's size is given back to the operating system, and
    the next one costs more to touch for the first time than to fill.
    """
    # glibc gives back what is larger than the largest array that was ever freed, up to
    # this size. An array that is never touched needs no memory.
    np.empty((1 << 25) - (1 << 13), np.uint8)


def is_own(array: np.ndarray) -> bool:
    """Whether no one else can hold the memory of an array that was just made."""
    # Other arrays are views: of the source's data, or of something that a user holds.
    return array.base is None or type(array.base) is _Block
