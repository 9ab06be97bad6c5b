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
)
from unisono._src.saving.format.manifest import Entry

ADDED, REMOVED, CHANGED = "+", "-", "~"


@final
@dataclasses.dataclass(frozen=True)
class Change:
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


def compare(a: pathlib.Path, b: pathlib.Path) -> list[Change]:
    """Returns the differences between two checkpoints, in the order of keys.

    Arrays are read one pair at a time, so memory holds two arrays at most.

    Raises:
        DataLossError: a checkpoint is damaged.
        NotFoundError: a checkpoint does not exist.
    """
    return one_version.read(a, lambda x: one_version.read(b, lambda y: _compare(x, y)))


def _compare(a: pathlib.Path, b: pathlib.Path) -> list[Change]:
    old = checksummed_files.read_verified(a).entries
    new = checksummed_files.read_verified(b).entries
    found = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if before is None:
            found.append(Change(ADDED, key, None, after))
        elif after is None:
            found.append(Change(REMOVED, key, before, None))
        else:
            detail = _difference(a, before, b, after)
            if detail is not None:
                found.append(Change(CHANGED, key, before, after, detail))
    return found


def _difference(
    a: pathlib.Path, before: Entry, b: pathlib.Path, after: Entry
) -> str | None:
    """Returns how two values differ, in words if they are arrays; None if equal."""
    if not (before.has_array and after.has_array):
        return None if before == after else ""
    # The file name is an accident of saving; kind, shape and type are not.
    if dataclasses.replace(before, file="") != dataclasses.replace(after, file=""):
        return ""
    if not before.file:
        return None
    x, y = _read(a, before), _read(b, after)
    # Bytes, because NaN differs from itself.
    if x.tobytes() == y.tobytes():
        return None
    count = int(np.sum(x != y))
    return f"{count:,} of {x.size:,} elements differ"


def _read(directory: pathlib.Path, entry: Entry) -> np.ndarray:
    where = directory / manifest.ARRAYS
    opened = array_store.open_all(where, {entry.file: entry})
    return array_store.read_parts(where, opened, {entry.file: [()]})[entry.file][()]
