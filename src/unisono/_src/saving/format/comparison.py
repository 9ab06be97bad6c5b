"""The differences between two checkpoints, value by value."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import final

import numpy as np

from unisono._src.saving.format import (
    array_store,
    checksummed_files,
    manifest,
    one_version,
    packing,
)
from unisono._src.saving.format.manifest import Entry

ADDED, REMOVED, CHANGED = "+", "-", "~"


@final
@dataclasses.dataclass(frozen=True)
class Difference:
    """One difference between two checkpoints.

    Attributes:
        sign: ADDED, REMOVED or CHANGED.
        key: the key of the value.
        before: the entry in the first checkpoint.
        after: the entry in the second checkpoint.
        detail: how two arrays of the same shape and type differ.
    """

    sign: str
    key: str
    before: Entry | None
    after: Entry | None
    detail: str = ""


def compare(a: pathlib.Path, b: pathlib.Path) -> list[Difference]:
    """Returns the differences between two checkpoints, in the order of keys.

    Arrays are read one pair at a time, so memory holds two arrays at most.

    Raises:
        DataLossError: a checkpoint is damaged.
        NotFoundError: a checkpoint does not exist.
    """
    return one_version.read(a, lambda x: one_version.read(b, lambda y: _compare(x, y)))


def _compare(a: pathlib.Path, b: pathlib.Path) -> list[Difference]:
    old = checksummed_files.read_verified(a).entries
    new = checksummed_files.read_verified(b).entries
    here, there = _ArrayReader(a), _ArrayReader(b)
    found = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if before is None:
            found.append(Difference(ADDED, key, None, after))
        elif after is None:
            found.append(Difference(REMOVED, key, before, None))
        else:
            detail = _difference(here, before, there, after)
            if detail is not None:
                found.append(Difference(CHANGED, key, before, after, detail))
    return found


def _difference(
    here: _ArrayReader, before: Entry, there: _ArrayReader, after: Entry
) -> str | None:
    """Returns how two values differ, in words if they are arrays; None if equal."""
    if not (before.has_array and after.has_array):
        return None if before == after else ""
    # The place is an accident of saving; kind, shape and type are not.
    if _drop_place(before) != _drop_place(after):
        return ""
    if not before.file:
        return None
    x, y = here.read(before), there.read(after)
    # Bytes, because NaN differs from itself.
    if x.tobytes() == y.tobytes():
        return None
    count = int(np.sum(x != y))
    return f"{count:,} of {x.size:,} elements differ"


def _drop_place(entry: Entry) -> Entry:
    return dataclasses.replace(entry, file="", at=None, pack_bytes=0)


@final
class _ArrayReader:
    """Reads the arrays of a checkpoint one by one; holds one pack in memory.

    Args:
        directory: the checkpoint.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._where = directory / manifest.ARRAYS
        self._pack = ("", np.zeros(0, np.uint8))

    def read(self, entry: Entry) -> np.ndarray:
        """Returns the array of an entry."""
        if entry.at is None:
            return self._read_stored(entry)
        if self._pack[0] != entry.file:
            whole = self._read_stored(packing.pack_entry(entry))
            self._pack = (entry.file, whole)
        return packing.take_out(entry, self._pack[1])

    def _read_stored(self, entry: Entry) -> np.ndarray:
        opened = array_store.open_all(self._where, {entry.file: entry})
        wanted = {entry.file: [()]}
        return array_store.read_parts(self._where, opened, wanted)[entry.file][()]
