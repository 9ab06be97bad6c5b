"""Arrays as Orbax stores them, looked at through TensorStore: no JAX, no surprises."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from unisono._src.foundation import errors
from unisono._src.saving.format import array_types
from unisono._src.saving.format.manifest import Entry

_ALIGNMENT_BYTES = 64


def open_all(directory: pathlib.Path, wanted: Mapping[str, Entry]) -> dict[str, Any]:
    """Open stored arrays and compare them with what entries say; read none.

    Args:
        directory: where they are.
        wanted: entries by the name of the stored array.

    Raises:
        DataLossError: one is missing, or is not what its entry says.
    """
    import tensorstore

    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 100_000_000}})
    waiting = {
        name: tensorstore.open(_spec(directory, name), context=context, read=True)
        for name in wanted
    }
    found = {}
    for name, entry in wanted.items():
        try:
            found[name] = waiting[name].result()
            _check(found[name], entry)
        except (ValueError, KeyError, TypeError) as error:
            raise _damage_error(directory, name, error) from error
    return found


def read_parts(
    directory: pathlib.Path, opened: Mapping[str, Any], parts: Mapping[str, Any]
) -> dict[str, dict[Any, np.ndarray]]:
    """Read parts of arrays that `open_all` has opened.

    Args:
        directory: where they are.
        opened: the arrays, by name.
        parts: for each array its parts: tuples of (start, stop) for each axis, or an
            empty tuple for the whole.

    Returns:
        For each array its parts.

    Raises:
        DataLossError: one cannot be read.
    """
    import tensorstore

    waiting: list[tuple[str, Any]] = []
    found: dict[str, dict[Any, np.ndarray]] = {}
    for name, wanted in parts.items():
        found[name] = {}
        for part in wanted:
            chosen = opened[name][tuple(slice(*ends) for ends in part) or ...]
            chosen = chosen[tensorstore.d[:].translate_to[0]] if chosen.rank else chosen
            buffer = _allocate_aligned(tuple(chosen.shape), chosen.dtype.numpy_dtype)
            target = tensorstore.array(buffer, copy=False, write=True)
            found[name][part] = buffer
            waiting.append((name, target.write(chosen)))
    for name, future in waiting:
        try:
            future.result()
        except ValueError as error:
            raise _damage_error(directory, name, error) from error
    return found


def _allocate_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """A new array whose memory JAX can take over on a CPU without copying."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + _ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT_BYTES
    return memory[start : start + size].view(dtype).reshape(shape)


def write_all(directory: pathlib.Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Store arrays as Orbax does, without its description of them.

    Raises:
        ValueError: they could not be written.
    """
    import tensorstore

    for name, array in arrays.items():
        spec = _spec(directory, name) | {"store_data_equal_to_fill_value": True}
        spec["metadata"] = {"chunks": [max(n, 1) for n in array.shape]}
        spec["metadata"]["compressor"] = None
        made = tensorstore.open(
            spec, create=True, dtype=array.dtype, shape=array.shape
        ).result()
        made.write(array).result()


def _spec(directory: pathlib.Path, name: str) -> dict[str, Any]:
    base = {"driver": "file", "path": f"{directory}/"}
    return {
        "driver": "zarr",
        "kvstore": {"driver": "ocdbt", "base": base, "path": f"{name}/"},
        # What is not there is an error, not zeros.
        "fill_missing_data_reads": False,
    }


def _check(array: Any, entry: Entry) -> None:
    """Raise unless an array is what its entry says, and is as large as its file."""
    dtype = np.dtype(array.dtype.numpy_dtype)
    if tuple(array.shape) != entry.shape or dtype != array_types.parse(entry.dtype):
        raise ValueError(
            f"it has shape {tuple(array.shape)} and type {dtype}, the manifest says "
            f"{entry.shape} and {entry.dtype}"
        )
    about = array.spec().to_json()["metadata"]
    if about.get("compressor") is not None or about.get("filters"):
        raise ValueError("it is compressed")
    if any(c > max(n, 1) for c, n in zip(about["chunks"], entry.shape, strict=True)):
        raise ValueError(f"it is cut in pieces of {about['chunks']}")


def _damage_error(
    directory: pathlib.Path, name: str, error: Exception
) -> errors.DataLossError:
    text = " ".join(str(error).split())[:300]
    return errors.DataLossError(
        f"The array '{name}' in {directory} is damaged: {text}."
    )
