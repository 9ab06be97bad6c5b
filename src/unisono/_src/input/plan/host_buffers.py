"""Memory for batches: where CPU devices can read it in place, and used again."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any, final

import numpy as np

# CPU devices read an array where it is if it begins at such an address, and copy it
# otherwise.
_ALIGNMENT = 64
# Arrays that are smaller are NumPy's business.
SMALL = 1 << 14
# When more than this is held, memory that no one uses is given back.
_HELD = 1 << 28
# So many arrays are watched; who keeps more than that has the others for good.
_WATCHED = 64


@final
class _Block(np.ndarray):
    """The memory of one array; an array over it tells by its `base` that it is ours."""

    offset: int


@final
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

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Memory, and whether the array over it is still there. No callback tells that:
        # an interrupt that meets one would be swallowed.
        self._blocks: list[tuple[Any, _Block]] = []

    def blank(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
        """An array to be filled."""
        kind = np.dtype(dtype)
        size = kind.itemsize * math.prod(shape)
        if size < SMALL or kind.hasobject:
            return np.empty(shape, kind)
        with self._lock:
            block = self._block(size + _ALIGNMENT)
            array: np.ndarray = np.ndarray(tuple(shape), kind, block, block.offset)
            # Every view of it holds the array, and so do JAX's arrays that read it.
            self._blocks.append((weakref.ref(array), block))
        return array

    def copy(self, array: np.ndarray, dtype: Any = None) -> np.ndarray:
        """A copy, of another type if one is given."""
        made = self.blank(array.shape, array.dtype if dtype is None else dtype)
        np.copyto(made, array, casting="unsafe")
        return made

    def _block(self, size: int) -> _Block:
        for place, (array, block) in enumerate(self._blocks):
            if block.nbytes == size and array() is None:
                del self._blocks[place]
                return block
        if size + sum(block.nbytes for _, block in self._blocks) > _HELD:
            self._blocks = [pair for pair in self._blocks if pair[0]() is not None]
        del self._blocks[: max(0, len(self._blocks) - _WATCHED + 1)]
        block = _Block(size, np.uint8)
        block.offset = -block.ctypes.data % _ALIGNMENT
        return block


def is_own(array: np.ndarray) -> bool:
    """Whether no one else can have the memory of a fresh array."""
    return array.base is None or type(array.base) is _Block
