"""Packs: many small arrays, stored as one array of bytes.

A stored array costs about a millisecond, however small it is. The entry of an array in
a pack says where it begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from unisono._src.saving.format import array_types, manifest
from unisono._src.saving.format.manifest import Entry

# Larger arrays are stored by themselves.
_SMALL_BYTES = 1 << 16
# When a pack has become this large, another one begins.
_PACK_BYTES = 1 << 26
_ALIGNMENT_BYTES = 16


def assign(entries: dict[str, Entry], alone: Collection[str] = ()) -> dict[str, Entry]:
    """Returns the entries; small arrays have places in packs.

    A single small array is not worth a pack.

    Args:
        entries: the entries, by key.
        alone: the keys of arrays that no single process has, and which go into no pack.
    """
    small = {
        k
        for k, e in entries.items()
        if e.file and e.nbytes <= _SMALL_BYTES and k not in alone
    }
    if len(small) < 2:
        return entries
    number = end = 0
    made: dict[str, Entry] = {}
    for key, entry in entries.items():
        if key not in small:
            made[key] = entry
            continue
        if end > _PACK_BYTES:
            number, end = number + 1, 0
        made[key] = dataclasses.replace(entry, file=f"p{number}", at=end)
        end += entry.nbytes
        end += -end % _ALIGNMENT_BYTES
    return manifest.join_packs(made)


def make_packs(
    entries: Mapping[str, Entry], arrays: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arrays to store: packs, and arrays that are in none.

    Args:
        entries: the entries, by key.
        arrays: the arrays, by place; those that go into packs are NumPy arrays.
    """
    made: dict[str, Any] = {}
    for entry in entries.values():
        if not entry.file:
            continue
        if entry.at is None:
            made[entry.file] = arrays[entry.place]
            continue
        if entry.file not in made:
            made[entry.file] = np.zeros(entry.pack_bytes, np.uint8)
        data = np.ascontiguousarray(arrays[entry.place]).reshape(-1).view(np.uint8)
        made[entry.file][entry.at : entry.at + entry.nbytes] = data
    return made


def pack_entry(entry: Entry) -> Entry:
    """Returns an entry for the pack that holds an array."""
    return Entry(manifest.ARRAY, (entry.pack_bytes,), "uint8", entry.file)


def take_out(entry: Entry, pack: np.ndarray) -> np.ndarray:
    """Returns a copy of an array in a pack."""
    assert entry.at is not None
    # A view would keep the whole pack in memory.
    data = pack[entry.at : entry.at + entry.nbytes].copy()
    return data.view(array_types.parse(entry.dtype)).reshape(entry.shape)
