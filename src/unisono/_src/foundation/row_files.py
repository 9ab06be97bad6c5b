"""Arrays in files of which several processes write and read their own rows.

An array is cut into chunks of whole rows. A process writes the chunks that are all its
own to a database of its own; nobody waits for a lock. In the end one process writes the
few chunks that have rows of two, and merges the databases without copying a value. The
result is one stored array, as if one process had written it.
"""

from __future__ import annotations

import functools
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np

# The bytes that are given to TensorStore at once; it may copy them.
_AT_ONCE_BYTES = 1 << 26
# A chunk has at most this many bytes, unless one row has more.
_CHUNK_BYTES = 1 << 20
# A part has at least this many chunks, so that most have rows of one part only.
_CHUNKS_PER_PART = 16

# The number of the first of some rows, and the rows.
Rows = tuple[int, np.ndarray]


@final
class Place(NamedTuple):
    """The place of some rows in a stored array; plain data.

    Attributes:
        name: the name of the array in its folder.
        shape: the shape of the whole array.
        start: the number of the first of these rows.
        chunk: how many rows a chunk has; only for writing.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    chunk: int = 0


def count_chunk_rows(shape: Sequence[int], itemsize: int, parts: int) -> int:
    """Returns the number of rows in a chunk of an array that is in several parts."""
    row = int(np.prod(shape[1:])) * itemsize
    wanted = min(_CHUNK_BYTES, shape[0] * row // (_CHUNKS_PER_PART * parts))
    return max(1, wanted // max(1, row))


def array_spec(directory: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """Returns TensorStore's description of a stored array."""
    return {
        "driver": "zarr",
        "kvstore": {**_database_spec(directory), "path": f"{name}/"},
        # TensorStore would otherwise read missing chunks as zeros.
        "fill_missing_data_reads": False,
    }


def _database_spec(directory: str | os.PathLike[str]) -> dict[str, Any]:
    base = {"driver": "file", "path": f"{os.fspath(directory)}/"}
    return {"driver": "ocdbt", "base": base}


@functools.cache
def find_context() -> Any:
    """Returns the context of all databases; only those that share it can be merged."""
    import tensorstore

    # No cache: every value is written or read once.
    return tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}})


def write(directory: str, place: Place, values: np.ndarray) -> list[Rows]:
    """Writes the chunks of an array that consist of the given rows only.

    Args:
        directory: the folder of the writer's own database.
        place: where the rows are in the array.
        values: the rows.

    Returns:
        Copies of the rows that are in chunks with others.
    """
    begin, end = place.start, place.start + len(values)
    # The first chunk that begins here, and the end of the last one that ends here. The
    # array's last chunk may be shorter.
    first = -(-begin // place.chunk) * place.chunk
    last = end if end == place.shape[0] else end // place.chunk * place.chunk
    if first >= last:
        return [(begin, values.copy())]
    _write_whole_chunks(directory, place, (first, values[first - begin : last - begin]))
    rest = (begin, values[: first - begin]), (last, values[last - begin :])
    return [(at, rows.copy()) for at, rows in rest if len(rows)]


def _write_whole_chunks(directory: str, place: Place, given: Rows) -> None:
    import tensorstore

    first, rows = given
    # TensorStore would leave out chunks of zeros.
    spec = array_spec(directory, place.name) | {"store_data_equal_to_fill_value": True}
    chunks = [place.chunk, *(max(n, 1) for n in place.shape[1:])]
    spec["metadata"] = {"chunks": chunks, "compressor": None}
    stored = tensorstore.open(
        spec,
        create=True,
        open=True,
        context=find_context(),
        dtype=rows.dtype,
        shape=place.shape,
    ).result()
    row_bytes = max(1, rows.nbytes // max(1, len(rows)))
    # Whole chunks at a time, so that none is written twice.
    step = max(1, _AT_ONCE_BYTES // row_bytes // place.chunk) * place.chunk
    for at in range(0, len(rows), step):
        piece = rows[at : at + step]
        stored[first + at : first + at + len(piece)].write(piece).result()


def finish(
    directory: pathlib.Path,
    folders: Iterable[str],
    left: Mapping[Place, Sequence[Rows]],
) -> None:
    """Merges the databases of several writers into one.

    Args:
        directory: the folder of the database, which may have arrays already.
        folders: the names of the writers' folders below it.
        left: the rows that `write` has returned, by array: places with start 0.

    Raises:
        ValueError: a database cannot be read or written.
    """
    import tensorstore

    for place, rows in left.items():
        for run in _join(rows):
            _write_whole_chunks(str(directory), place, run)
    # One transaction: the copies are only entries that point to files of the writers.
    transaction = tensorstore.Transaction(atomic=True)
    target = _open_database(directory).with_transaction(transaction)
    for folder in folders:
        source = _open_database(directory / folder)
        source.experimental_copy_range_to(target).result()
    transaction.commit_sync()


def _open_database(directory: pathlib.Path) -> Any:
    import tensorstore

    spec = _database_spec(directory)
    return tensorstore.KvStore.open(spec, context=find_context()).result()


def _join(rows: Sequence[Rows]) -> list[Rows]:
    """Returns rows in order, with those that follow each other joined."""
    runs: list[list[Rows]] = []
    for at, values in sorted(rows, key=lambda x: x[0]):
        if runs and runs[-1][-1][0] + len(runs[-1][-1][1]) == at:
            runs[-1].append((at, values))
        else:
            runs.append([(at, values)])
    return [(run[0][0], np.concatenate([x for _, x in run])) for run in runs]


def read(directory: str, place: Place, target: np.ndarray) -> None:
    """Reads rows of a stored array into an array.

    Args:
        directory: the folder of the database.
        place: where the rows are in the stored array.
        target: the array to fill; it says how many rows are read.

    Raises:
        ValueError: the array is not there, or has another shape or type.
    """
    import tensorstore

    stored = tensorstore.open(
        array_spec(directory, place.name), context=find_context(), read=True
    ).result()
    dtype = np.dtype(stored.dtype.numpy_dtype)
    if tuple(stored.shape) != tuple(place.shape) or dtype != target.dtype:
        raise ValueError(
            f"The stored array '{place.name}' has shape {tuple(stored.shape)} and type "
            f"{dtype}, expected {tuple(place.shape)} and {target.dtype}."
        )
    # TensorStore keeps the positions of a slice, and `target` begins at 0.
    wanted = stored[place.start : place.start + len(target)]
    buffer = tensorstore.array(target, copy=False, write=True)
    buffer.write(wanted[tensorstore.d[:].translate_to[0]]).result()
