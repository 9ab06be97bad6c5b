"""Stored arrays of which processes write parts, and which are read in small pieces.

A part is written in chunks that lie within it, to a database of its writer's own;
`row_files.finish` merges the databases. Reading holds a few megabytes besides its
result, however large the chunks are that others have written.
"""

from __future__ import annotations

import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from unisono._src.foundation import row_files
from unisono._src.saving.format import array_store
from unisono._src.saving.format.manifest import Entry

# The most bytes of a chunk that is written, if the shape of the part allows.
_CHUNK_BYTES = 1 << 24
# The bytes that are given to TensorStore, or asked for, at once; it may copy them.
_AT_ONCE_BYTES = 1 << 23
# A larger chunk is read by ranges of bytes, so many at once. Each thread of TensorStore
# keeps memory of this size when it is done.
_RANGE_BYTES = 1 << 20

# A part of an array: where it begins and ends on each axis.
Part: TypeAlias = tuple[tuple[int, int], ...]


def choose_chunks(
    shape: Sequence[int], axis: int, itemsize: int, most: int = _CHUNK_BYTES
) -> tuple[int, ...]:
    """Returns the shape of the chunks in which parts of a shape are written.

    Args:
        shape: the shape of a part.
        axis: the axis along which the whole is cut. Along it the chunks divide the
            part, so that none has elements of two.
        itemsize: the bytes of an element.
        most: the bytes that a chunk should not exceed.

    >>> choose_chunks((6, 8), 0, 1, 20), choose_chunks((97, 8), 0, 1, 400)
    ((2, 8), (97, 4))
    >>> choose_chunks((6, 8), 1, 1, 20), choose_chunks((2, 3), 0, 4)
    ((2, 8), (2, 3))
    """
    chunks = [max(n, 1) for n in shape]
    size = int(np.prod(chunks)) * itemsize
    if size <= most:
        return tuple(chunks)
    # The first axis, because a chunk of whole rows is read and written in one piece.
    others = sorted((i for i in range(len(chunks)) if i), key=lambda i: -chunks[i])
    for i in (0, *others):
        fitting = max(1, most * chunks[i] // size)
        if i == axis:
            fitting = next(n for n in range(fitting, 0, -1) if chunks[i] % n == 0)
        # A divisor may be far smaller than what would fit.
        if fitting * size // chunks[i] > most // 8:
            chunks[i] = fitting
            break
    return tuple(chunks)


def write(
    directory: pathlib.Path,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    start: tuple[int, ...],
    values: np.ndarray,
) -> None:
    """Writes a part of an array.

    Args:
        directory: the folder of the writer's database.
        name: the name of the array there.
        shape: the shape of the whole array.
        chunks: the shape of its chunks, which lie within the part.
        start: where the part begins on each axis.
        values: the part.

    Raises:
        ValueError: it cannot be written.
    """
    import tensorstore

    # TensorStore would leave out chunks of zeros.
    spec = row_files.array_spec(directory, name) | {
        "store_data_equal_to_fill_value": True
    }
    spec["metadata"] = {"chunks": list(chunks), "compressor": None}
    stored = tensorstore.open(
        spec,
        create=True,
        open=True,
        context=row_files.find_context(),
        dtype=values.dtype,
        shape=shape,
    ).result()
    for block in _blocks(values.shape, chunks, values.itemsize):
        stored[_move(block, start)].write(values[block]).result()


def _blocks(
    shape: Sequence[int], chunks: Sequence[int], itemsize: int
) -> Iterator[tuple[slice, ...]]:
    """Yields blocks of whole chunks, each small enough to be given away at once."""
    left = _AT_ONCE_BYTES // max(1, int(np.prod(chunks)) * itemsize)
    steps = []
    for size, chunk in reversed([*zip(shape, chunks, strict=True)]):
        count = min(max(left, 1), -(-size // chunk))
        left //= max(count, 1)
        steps.append(max(1, count * chunk))
    ranges = [range(0, n, step) for n, step in zip(shape, reversed(steps), strict=True)]
    for at in itertools.product(*ranges):
        pairs = zip(at, reversed(steps), shape, strict=True)
        yield tuple(slice(a, min(a + step, n)) for a, step, n in pairs)


def read(directory: pathlib.Path, entry: Entry, opened: Any, part: Part) -> np.ndarray:
    """Reads a part of a stored array.

    Args:
        directory: the folder of the database.
        entry: the entry of the array.
        opened: the array, as `array_store.open_all` has opened it.
        part: the part to read.

    Returns:
        The elements, in memory that JAX can take over.

    Raises:
        DataLossError: they cannot be read.
    """
    target = array_store.allocate_aligned(
        tuple(stop - start for start, stop in part), opened.dtype.numpy_dtype
    )
    chunks = tuple(opened.chunk_layout.read_chunk.shape)
    size = int(np.prod(chunks)) * target.itemsize
    try:
        if size > _RANGE_BYTES and _is_plain(directory, entry):
            _read_bytes(directory, entry, chunks, part, target)
        else:
            _read_blocks(opened, chunks, part, target)
    except (ValueError, KeyError) as error:
        raise array_store.damage_error(directory, entry.file, error) from error
    return target


def _read_blocks(
    opened: Any, chunks: Sequence[int], part: Part, target: np.ndarray
) -> None:
    """Reads a part in blocks, by TensorStore."""
    import tensorstore

    for block in _blocks(target.shape, chunks, target.itemsize):
        there = _move(block, [start for start, _ in part])
        # TensorStore keeps the indices of a slice; the buffer begins at 0.
        chosen = opened[there][tensorstore.d[:].translate_to[0]]
        buffer = tensorstore.array(target[block], copy=False, write=True)
        buffer.write(chosen).result()


def _is_plain(directory: pathlib.Path, entry: Entry) -> bool:
    """Whether a chunk is the elements in order, as NumPy has them here."""
    found = json.loads(_open(directory, entry)[".zarray"])
    kind = np.dtype(found["dtype"]) if isinstance(found["dtype"], str) else None
    is_bare = found.get("compressor") is None and not found.get("filters")
    is_ours = kind is not None and kind.isnative and kind.name == entry.dtype
    is_ordered = found["order"] == "C" and found.get("dimension_separator", ".") == "."
    return is_bare and is_ours and is_ordered and bool(entry.shape)


def _open(directory: pathlib.Path, entry: Entry) -> Any:
    """Returns the keys and bytes of a stored array."""
    import tensorstore

    spec = row_files.array_spec(directory, entry.file)["kvstore"]
    return tensorstore.KvStore.open(spec, context=row_files.find_context()).result()


def _read_bytes(
    directory: pathlib.Path,
    entry: Entry,
    chunks: tuple[int, ...],
    part: Part,
    target: np.ndarray,
) -> None:
    """Reads a part from the bytes of large chunks, a few at a time."""
    store = _open(directory, entry)
    sizes = [
        int(np.prod(chunks[i + 1 :])) * target.itemsize for i in range(len(chunks))
    ]
    # Neighbours along this axis are read together, with all that is below them.
    axis = next(i for i, size in enumerate(sizes) if size <= _RANGE_BYTES)
    for number, block in _chunk_blocks(part, chunks, axis, _RANGE_BYTES // sizes[axis]):
        place = _move(block, [-n * c for n, c in zip(number, chunks, strict=True)])
        begin = sum(s.start * n for s, n in zip(place, sizes[: axis + 1], strict=False))
        end = begin + (place[axis].stop - place[axis].start) * sizes[axis]
        key = ".".join(map(str, number))
        data = store.read(key, byte_range=slice(begin, end)).result().value
        rows = np.frombuffer(data, target.dtype).reshape(-1, *chunks[axis + 1 :])
        found = target[_move(block, [-start for start, _ in part])]
        found[...] = rows[(slice(None), *place[axis + 1 :])].reshape(found.shape)


def _chunk_blocks(
    part: Part, chunks: Sequence[int], axis: int, count: int
) -> Iterator[tuple[tuple[int, ...], list[slice]]]:
    """Yields the number of a chunk, and a block that it has in common with a part.

    A block has one element along the axes before `axis`, and at most `count` along it.
    """
    pairs = list(zip(part, chunks, strict=True))
    numbers = [range(start // c, -(-stop // c)) for (start, stop), c in pairs]
    steps = [1] * axis + [count]
    for number in itertools.product(*numbers):
        common = [
            range(max(a, n * c), min(b, n * c + c))
            for ((a, b), c), n in zip(pairs, number, strict=True)
        ]
        below = [slice(r.start, r.stop) for r in common[axis + 1 :]]
        firsts = zip(common, steps, strict=False)
        for first in itertools.product(*(r[::step] for r, step in firsts)):
            ends = zip(first, steps, common, strict=False)
            yield number, [*(slice(a, min(a + n, r.stop)) for a, n, r in ends), *below]


def _move(block: Sequence[slice], by: Sequence[int]) -> tuple[slice, ...]:
    """Returns slices that begin and end later by some numbers."""
    pairs = zip(block, by, strict=True)
    return tuple(slice(b.start + n, b.stop + n) for b, n in pairs)
