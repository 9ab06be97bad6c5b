"""Access through TensorStore, without JAX, to arrays that Orbax has stored."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono._src.foundation import errors, row_files
from unisono._src.saving.format import array_types
from unisono._src.saving.format.manifest import Entry

# JAX takes over host memory on a CPU without copying it if it is aligned like this.
_ALIGNMENT_BYTES = 64


# TensorStore's limits for a reader that has all the memory it needs, and for one that
# must hold little: no cache, and few threads, each of which keeps memory that it freed.
_FAST = {"cache_pool": {"total_bytes_limit": 100_000_000}}
_SMALL: dict[str, dict[str, int]] = {
    "cache_pool": {"total_bytes_limit": 0},
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
}


def open_all(
    directory: pathlib.Path, wanted: Mapping[str, Entry], is_small: bool = False
) -> dict[str, Any]:
    """Opens stored arrays and compares their descriptions with their entries.

    Args:
        directory: the directory of the arrays.
        wanted: the entries, by the name of the stored array.
        is_small: whether to take little memory rather than little time.

    Returns:
        The open arrays by name; none of their elements has been read.

    Raises:
        DataLossError: an array is missing, or does not match its entry.
    """
    import tensorstore

    context = tensorstore.Context(_SMALL if is_small else _FAST)
    # All are opened at once; TensorStore works on them in threads of its own.
    waiting = {
        name: tensorstore.open(
            row_files.array_spec(directory, name), context=context, read=True
        )
        for name in wanted
    }
    found = {}
    for name, entry in wanted.items():
        try:
            found[name] = waiting[name].result()
            _check(found[name], entry)
        except (ValueError, KeyError, TypeError) as error:
            raise damage_error(directory, name, error) from error
    return found


def read_parts(
    directory: pathlib.Path, opened: Mapping[str, Any], parts: Mapping[str, Any]
) -> dict[str, dict[Any, np.ndarray]]:
    """Reads parts of arrays that `open_all` has opened.

    Args:
        directory: the directory of the arrays.
        opened: the arrays, by name.
        parts: for each array the parts to read: tuples with a (start, stop) for each
            axis, or an empty tuple for the whole array.

    Returns:
        For each array a dict from its parts to their elements.

    Raises:
        DataLossError: an array cannot be read.
    """
    import tensorstore

    waiting: list[tuple[str, Any]] = []
    found: dict[str, dict[Any, np.ndarray]] = {}
    for name, wanted in parts.items():
        found[name] = {}
        for part in wanted:
            chosen = opened[name][tuple(slice(*ends) for ends in part) or ...]
            # TensorStore keeps the indices of a slice; the buffer begins at 0.
            chosen = chosen[tensorstore.d[:].translate_to[0]] if chosen.rank else chosen
            buffer = allocate_aligned(tuple(chosen.shape), chosen.dtype.numpy_dtype)
            target = tensorstore.array(buffer, copy=False, write=True)
            found[name][part] = buffer
            waiting.append((name, target.write(chosen)))
    for name, future in waiting:
        try:
            future.result()
        except ValueError as error:
            raise damage_error(directory, name, error) from error
    return found


def allocate_aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns a new array whose memory JAX can take over on a CPU without a copy."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)


def write_all(directory: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Stores arrays in the format of Orbax, without the metadata file that it adds.

    Raises:
        ValueError: an array could not be written.
    """
    import tensorstore

    for name, array in arrays.items():
        spec = row_files.array_spec(directory, name) | {
            # Zarr would leave out chunks of zeros, and a missing chunk
            # is an error when it is read.
            "store_data_equal_to_fill_value": True
        }
        # One chunk per array, not compressed, as `_check` demands.
        spec["metadata"] = {"chunks": [max(n, 1) for n in array.shape]}
        spec["metadata"]["compressor"] = None
        made = tensorstore.open(
            spec, create=True, dtype=array.dtype, shape=array.shape
        ).result()
        made.write(array).result()


def _check(array: Any, entry: Entry) -> None:
    """Raises unless an array matches its entry and is stored whole, uncompressed.

    An uncompressed array cannot take more memory than its file, whose size is known.
    """
    dtype = np.dtype(array.dtype.numpy_dtype)
    if tuple(array.shape) != entry.shape or dtype != array_types.parse(entry.dtype):
        raise ValueError(
            f"it has shape {tuple(array.shape)} and type {dtype}, the manifest says "
            f"{entry.shape} and {entry.dtype}"
        )
    # Not `spec().to_json()`: TensorStore 0.1.86 never frees the lists and dicts in it,
    # 3 kB for each array of each save.
    codec = array.codec.to_json()
    if codec.get("compressor") is not None or codec.get("filters"):
        raise ValueError("it is compressed, which no checkpoint of unisono is")
    chunks = array.chunk_layout.read_chunk.shape or ()  # None for a scalar.
    if any(c > max(n, 1) for c, n in zip(chunks, entry.shape, strict=True)):
        raise ValueError(f"it is cut in pieces of {list(chunks)}")


def damage_error(
    directory: pathlib.Path, name: str, error: Exception
) -> errors.DataLossError:
    """Returns the error for a stored array that cannot be read."""
    text = " ".join(str(error).split())[:300]
    return errors.DataLossError(
        f"The array '{name}' in {directory} is damaged: {text}."
    )
