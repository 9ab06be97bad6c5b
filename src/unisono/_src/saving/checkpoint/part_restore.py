"""Restores variables that are cut over devices, part after part.

A part that was read takes the place of the old one at once, so that the process never
has much more than its state. The old parts go to a temporary file, from which they are
put back if something fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any, final

import jax
import numpy as np

from unisono._src.foundation import wide_numbers
from unisono._src.saving.checkpoint import array_io
from unisono._src.saving.format import array_store, manifest, part_files
from unisono._src.state import storage
from unisono._src.state.storage import Cell

# Old parts of up to so many bytes stay in memory.
_IN_MEMORY_BYTES = 1 << 25
# After so many bytes that were freed, the C library gives them back.
_TRIMMED_BYTES = 1 << 24

# Returns an old part.
_Kept = Callable[[], Any]


@final
class PartRestore:
    """A restore of cells; a context manager that forgets the old values in the end.

    Old values are kept until then, for `undo`.

    Args:
        directory: the directory of the arrays, with verified files.
        wanted: the entry of each cell; each has a stored array of its own.

    Raises:
        DataLossError: a stored array does not match its entry.
    """

    def __init__(
        self, directory: pathlib.Path, wanted: Sequence[tuple[Cell, manifest.Entry]]
    ) -> None:
        self._directory = directory
        self._wanted = wanted
        by_name = {entry.file: entry for _, entry in wanted}
        self._opened = array_store.open_all(directory, by_name, is_small=True)
        self._old: list[tuple[Cell, list[_Kept]]] = []
        self._file: IO[bytes] | None = None
        self._held = self._freed = 0

    def __enter__(self) -> PartRestore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Forgets the old values."""
        self._old = []
        if self._file is not None:
            self._file.close()

    def run(self) -> None:
        """Replaces the values of all cells, under the lock.

        Raises:
            DataLossError: a part could not be read; all cells have their old values.
        """
        with storage.LOCK:
            try:
                for cell, entry in self._wanted:
                    self._replace(cell, entry)
            except BaseException:
                self.undo()
                raise

    def undo(self) -> None:
        """Gives all cells the values that they had before."""
        with storage.LOCK:
            for cell, kept in self._old:
                devices = list(
                    cell.sharding.addressable_devices_indices_map(cell.shape)
                )
                pairs = zip(kept, devices, strict=False)
                pieces = [jax.device_put(find(), device) for find, device in pairs]
                array = jax.make_array_from_single_device_arrays(
                    cell.shape, cell.sharding, pieces
                )
                cell.store(array, is_fresh=True)
            self._old = []
        self.close()

    def _replace(self, cell: Cell, entry: manifest.Entry) -> None:
        """Reads the parts of a cell, each in the place of the old one."""
        held = cell.sharding.addressable_devices_indices_map(cell.shape)
        shards = {s.device: s.data for s in cell.array.addressable_shards}
        old = [shards[device] for device in held]
        keepers: list[_Kept] = [lambda x=x: x for x in old]  # type: ignore[misc]
        del shards
        self._old.append((cell, keepers))
        cell.array = None
        pieces: list[jax.Array] = []
        known: dict[part_files.Part, np.ndarray] = {}
        for number, (device, index) in enumerate(held.items()):
            part = _ends(index, cell.shape)
            if part not in known:
                known[part] = self._read(entry, part)
            keepers[number] = self._keep(old[number])
            old[number] = None
            pieces.append(jax.device_put(known[part], device))
            if cell.split.copies == 1:
                # Otherwise other devices have the part, too, and it is read once.
                del known[part]
            self._freed += pieces[-1].nbytes
            if self._freed > _TRIMMED_BYTES:
                self._freed = 0
                _return_memory()
        array = jax.make_array_from_single_device_arrays(
            cell.shape, cell.sharding, pieces
        )
        cell.store(array, is_fresh=True)

    def _read(self, entry: manifest.Entry, part: part_files.Part) -> np.ndarray:
        opened = self._opened[entry.file]
        found = part_files.read(self._directory, entry, opened, part)
        wide_numbers.check(found, "a restored array")
        return found

    def _keep(self, part: jax.Array) -> _Kept:
        """Keeps an old part, in memory or in a file; returns what finds it again."""
        if self._held + part.nbytes <= _IN_MEMORY_BYTES:
            self._held += part.nbytes
            return lambda: part
        # If there is no room for a file, the part stays in memory.
        with contextlib.suppress(OSError):
            # Closed by `__exit__`.
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115
            file = self._file
            values = np.asarray(part)
            at, shape, dtype = file.seek(0, 2), values.shape, values.dtype
            file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

            def find() -> np.ndarray:
                target = array_store.allocate_aligned(shape, dtype)
                file.seek(at)
                file.readinto(target.reshape(-1).view(np.uint8).data)  # type: ignore[attr-defined]
                return target

            return find
        return lambda: part


def _return_memory() -> None:
    """Gives memory that was freed back to the system, where the C library keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _ends(index: tuple[slice, ...], shape: tuple[int, ...]) -> part_files.Part:
    """Returns where a part begins and ends on each axis."""
    return tuple(s.indices(n)[:2] for s, n in zip(index, shape, strict=True))


def is_in_parts(entry: manifest.Entry, cell: Cell | None) -> bool:
    """Whether the value of an entry is read into a cell part after part."""
    is_alone = bool(entry.file) and entry.at is None and entry.kind != manifest.KEY
    return cell is not None and is_alone and entry.nbytes >= array_io.LARGE_BYTES
