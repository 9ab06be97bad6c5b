"""Memory for batches: where CPU devices can read it in place, and used again."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

# CPU devices read an array where it is if it begins at such an address, and copy it
# otherwise.
_ALIGNMENT = 64
# Arrays that are smaller are NumPy's business.
_SMALL = 1 << 14
# So many bytes in arrays of one size, and so many sizes, wait to be used again.
_BYTES = 1 << 28
_SIZES = 8


class _Block(np.ndarray):
    """The memory of one array; an array over it tells by its `base` that it is ours."""

    offset: int


class Buffers:
    """Gives out memory for arrays, and takes it back when no one has the array.

    Memory that is fresh from the operating system costs more to touch for the first
    time than a batch costs to copy.

    >>> buffers = Buffers()
    >>> first = buffers.blank((4, 8192), np.float32)
    >>> address = first.ctypes.data
    >>> del first
    >>> buffers.blank((4, 8192), np.float32).ctypes.data == address
    True
    """

    _bytes, _sizes = _BYTES, _SIZES

    def __init__(self) -> None:
        self._waiting: dict[int, list[_Block]] = {}
        self._lent: dict[int, tuple[Any, _Block]] = {}

    def blank(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array to be filled."""
        kind = np.dtype(dtype)
        size = kind.itemsize * math.prod(shape)
        if size < _SMALL or kind.hasobject:
            return np.empty(shape, kind)
        block = self._block(size + _ALIGNMENT)
        array: np.ndarray = np.ndarray(tuple(shape), kind, block, block.offset)
        # Every view of the array holds the array, and so do JAX's arrays that read it.
        mark = weakref.ref(array, self._take_back)
        self._lent[id(mark)] = (mark, block)
        return array

    def copy(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        """A copy, of another type if one is given."""
        made = self.blank(array.shape, array.dtype if dtype is None else dtype)
        np.copyto(made, array, casting="unsafe")
        return made

    def _block(self, size: int) -> _Block:
        try:
            return self._waiting[size].pop()
        except (KeyError, IndexError):
            block = _Block(size, np.uint8)
            block.offset = -block.ctypes.data % _ALIGNMENT
            return block

    def _take_back(self, mark: Any) -> None:
        # In whichever thread let go of the array, in the middle of anything, even when
        # the interpreter ends: so there is no lock, nothing global, and each line
        # leaves the rest as good as it was.
        _, block = self._lent.pop(id(mark))
        if len(self._waiting) > self._sizes:
            self._waiting.clear()
        waiting = self._waiting.setdefault(block.nbytes, [])
        if not waiting or (len(waiting) + 1) * block.nbytes <= self._bytes:
            waiting.append(block)


def is_own(array: np.ndarray) -> bool:
    """Whether no one else can have the memory of a fresh array."""
    return array.base is None or type(array.base) is _Block
