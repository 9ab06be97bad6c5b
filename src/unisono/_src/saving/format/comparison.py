"""What changed between two checkpoints, array by array."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import final

import numpy as np

from unisono._src.saving.format import array_store, checksummed_files, manifest
from unisono._src.saving.format.manifest import Entry

ADDED, REMOVED, CHANGED = "+", "-", "~"


@final
@dataclasses.dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        sign: ADDED, REMOVED or CHANGED.
        key: of the value.
        before: what the first checkpoint has.
        after: what the second one has.
        detail: how arrays of the same shape and type differ.
    """

    sign: str
    key: str
    before: Entry | None
    after: Entry | None
    detail: str = ""


def compare(a: pathlib.Path, b: pathlib.Path) -> list[Change]:
    """The differences between two checkpoints, in the order of keys.

    Arrays are read one pair at a time; JAX has no part in it.

    Raises:
        DataLossError: one of them is damaged.
        NotFoundError: one of them is not there.
    """
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
    """How two values differ, or None."""
    if not (before.has_array and after.has_array):
        return None if before == after else ""
    if dataclasses.replace(before, file="") != dataclasses.replace(after, file=""):
        return ""
    if not before.file:
        return None
    x, y = _read(a, before), _read(b, after)
    if x.tobytes() == y.tobytes():
        return None
    count = int(np.sum(x != y))
    return f"{count:,} of {x.size:,} elements differ"


def _read(directory: pathlib.Path, entry: Entry) -> np.ndarray:
    where = directory / manifest.ARRAYS
    opened = array_store.open_all(where, {entry.file: entry})
    return array_store.read_parts(where, opened, {entry.file: [()]})[entry.file][()]
