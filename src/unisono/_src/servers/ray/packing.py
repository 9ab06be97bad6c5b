"""Packs: the large arrays of one message, side by side in shared memory.

The rest of the message, and where its arrays lie in the pack, travels by Ray. So all
variables that a step asks of one server come as one buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import numpy as np

# Smaller arrays travel with the message, and larger messages by Ray's object store,
# which then is faster. docs/decisions/0027 has the measurements.
SMALLEST = 16 << 10
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
    return array.nbytes >= SMALLEST and not array.dtype.hasobject


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
