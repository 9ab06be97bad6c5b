"""Writing of arrays with Orbax, and reading of the needed parts with TensorStore.

Arrays are stored uncompressed. Weights hardly compress, and a file that is as large as
its array cannot expand into something that fills the memory.
"""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Sharding

from unisono._src.foundation import wide_numbers
from unisono._src.saving.checkpoint import background
from unisono._src.saving.format import array_store, manifest, packing
from unisono._src.workers import process_group

# A smaller array is read whole to the host: its parts are not worth separate reads.
LARGE_BYTES = 1 << 20
# A file is closed when it has so many bytes, and the next one begins. Several files are
# written, and flushed, side by side; one large file is not.
_FILE_BYTES = 1 << 25


# A part of an array: where it begins and ends on each axis.
_Part: TypeAlias = tuple[tuple[int | None, int | None], ...]


def write(directory: pathlib.Path, arrays: Mapping[str, Any]) -> None:
    """Stores arrays under their names in a new directory.

    Raises:
        OSError: the files could not be written.
        ValueError: TensorStore could not write them.
    """
    directory.mkdir(exist_ok=True)
    if not arrays:
        return
    if background.Ending.has_begun or process_group.current().size > 1:
        # Orbax needs threads, and a program that is ending can start none. With
        # several processes Orbax wants all of them to write (docs/decisions/0015).
        array_store.write_all(directory, {k: np.asarray(a) for k, a in arrays.items()})
        return
    if threading.current_thread() is not threading.main_thread():
        _write_with_orbax(directory, arrays)
        return
    _call_uninterrupted(lambda: _write_with_orbax(directory, arrays))


def _call_uninterrupted(call: Callable[[], None]) -> None:
    """Calls a function in a thread, and waits for its end even if interrupted.

    An interrupt reaches the main thread. Orbax has threads of its own, which would go
    on writing while the directory is being removed.
    """
    failures: list[BaseException] = []
    # Not `join`: interrupted, it takes the thread for ended on some releases of Python.
    done = threading.Event()
    # Whoever gets it first: the thread that begins, or the caller that gives up.
    turn = threading.Lock()

    def run() -> None:
        if not turn.acquire(blocking=False):
            return
        try:
            call()
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="unisono-save")
    try:
        thread.start()
        done.wait()
    except BaseException:
        # The thread has begun, so its end is waited for. Otherwise it finds the
        # lock taken, and does nothing.
        if not turn.acquire(blocking=False):
            done.wait()
        raise
    thread.join()
    if failures:
        raise failures[0]


def _write_with_orbax(directory: pathlib.Path, arrays: Mapping[str, Any]) -> None:
    import orbax.checkpoint as ocp
    from etils import epath

    handler = ocp.PyTreeCheckpointHandler(use_compression=False)
    path = epath.Path(directory)
    try:
        handler.save(
            path,
            args=ocp.args.PyTreeSave(
                dict(arrays), ocdbt_target_data_file_size=_FILE_BYTES
            ),
        )
        # It merges the files that Orbax' processes write;
        # without it nothing can be read.
        handler.finalize(path)
    finally:
        handler.close()


def read(
    directory: pathlib.Path,
    wanted: Mapping[str, manifest.Entry],
    shardings: Mapping[str, Sharding] | None = None,
) -> dict[str, Any]:
    """Reads some of the stored arrays.

    Args:
        directory: a directory that `write` made, with verified files.
        wanted: the entries, by their places.
        shardings: the shardings of some arrays, by place.

    Returns:
        The arrays by place: JAX arrays for large ones with a sharding, otherwise NumPy
        arrays.

    Raises:
        DataLossError: a stored array does not match its entry.
    """
    if not wanted:
        return {}
    packed = {k: e for k, e in wanted.items() if e.at is not None}
    alone = {k: e for k, e in wanted.items() if e.at is None}
    packs = {e.file: packing.pack_entry(e) for e in packed.values()}
    opened = array_store.open_all(directory, alone | packs)
    placed = {
        name: sharding
        for name, sharding in (shardings or {}).items()
        if name in alone and alone[name].nbytes >= LARGE_BYTES
    }
    pieces: dict[str, list[_Part]] = {
        name: _local_parts(placed[name], alone[name].shape) if name in placed else [()]
        for name in opened
    }
    read = array_store.read_parts(directory, opened, pieces)
    found = {
        name: _assemble(placed[name], alone[name].shape, read[name])
        if name in placed
        else read[name][()]
        for name in alone
    }
    for name, entry in packed.items():
        found[name] = packing.take_out(entry, read[entry.file][()])
    return found


def _local_parts(sharding: Sharding, shape: tuple[int, ...]) -> list[_Part]:
    """Returns the parts of an array that devices of this process hold, each once."""
    held = sharding.addressable_devices_indices_map(shape).values()
    return list(dict.fromkeys(_part_key(index) for index in held))


def _part_key(index: tuple[slice, ...] | None) -> _Part:
    # Slices can be hashed from Python 3.12 on only.
    return tuple((s.start, s.stop) for s in index or ())


def _assemble(
    sharding: Sharding, shape: tuple[int, ...], parts: Mapping[_Part, np.ndarray]
) -> jax.Array:
    """Returns an array made of the parts that were read, each on its devices."""
    held = sharding.addressable_devices_indices_map(shape)
    for part in parts.values():
        wide_numbers.check(part, "a restored array")
    # A part that several devices hold is read once, and put on each.
    pieces = [jax.device_put(parts[_part_key(i)], device) for device, i in held.items()]
    return jax.make_array_from_single_device_arrays(shape, sharding, pieces)
