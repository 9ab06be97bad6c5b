"""Gradients of variables of which rows were looked up: `IndexedSlices`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.values import array_operators, row_positions
from unisono._src.values.indexed_slices import IndexedSlices, concatenate
from unisono._src.values.jax_tapes import Recording


def find_lookups(recording: Recording, sources: Sequence[Any]) -> list[Any]:
    """Return the keys by which a recording follows rows that were looked up."""
    if not recording.lookups:
        return []
    return [key for x in sources for key, _ in _lookups_of(recording, x)]


def _lookups_of(recording: Recording, source: Any) -> list[tuple[Any, Any]]:
    """Return a key and the positions for each lookup of rows of a source."""
    found = array_operators.find_own_variable(source)
    key = getattr(found, "state_cell", found)
    try:
        return recording.lookups.get(key, [])
    except TypeError:
        return []  # Tracers cannot be keys.


def join(
    recording: Recording,
    sources: Sequence[Any],
    dense: Sequence[Any],
    rows: Sequence[Any],
) -> list[Any]:
    """Return one gradient for each source.

    Args:
        recording: the recording.
        sources: variables, sharded variables and arrays.
        dense: the gradients of all parts of all sources, or None.
        rows: the gradients of the rows that `find_lookups` has found, or None.

    Returns:
        An array; `IndexedSlices` if only rows of the source were used; or None.
    """
    if not recording.lookups and len(dense) == len(sources):
        return list(dense)  # No source has several parts.
    parts, given = iter(dense), iter(rows)
    made = []
    for x in sources:
        count = len(x.variables) if isinstance(x, ShardedVariable) else 1
        whole = _concatenate(x, [next(parts) for _ in range(count)])
        lookups = [(where, next(given)) for _, where in _lookups_of(recording, x)]
        sparse = [_slices(g, where, x) for where, g in lookups if g is not None]
        made.append(_add(whole, sparse))
    return made


def _concatenate(source: Any, parts: list[Any]) -> Any:
    """Return the gradient of a variable from those of its parts."""
    if not isinstance(source, ShardedVariable):
        return parts[0]
    if all(p is None for p in parts):
        return None
    pairs = zip(parts, source.variables, strict=True)
    return jnp.concatenate(
        [jnp.zeros(v.shape, v.dtype) if p is None else p for p, v in pairs]
    )


def _slices(gradient: Any, where: Any, source: Any) -> IndexedSlices:
    where = jnp.asarray(where)
    values = gradient.reshape(where.size, *source.shape[1:])
    return IndexedSlices(values, where.reshape(-1), source.shape)


def _add(whole: Any, sparse: list[IndexedSlices]) -> Any:
    """Return the sum of a gradient of a whole variable and those of some rows."""
    if not sparse:
        return whole
    joined = sparse[0] if len(sparse) == 1 else concatenate(sparse, None)
    if whole is None:
        return joined
    # Rows that a part does not have are at the position `rows.ABSENT`.
    return whole.at[joined.indices].add(joined.values, **row_positions.LEAVE_OUT)
