"""Checks that the copies of a cell are equal, and gives cells arrays of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.state import holding, storage
from unisono._src.state.storage import Cell
from unisono._src.values import collectives
from unisono._src.workers import eager_exchange


def verify(
    cell: Cell, before: tuple[Any, bool] | None = None, among_workers: bool = False
) -> None:
    """Raises if copies that were written one by one are different.

    Different copies stay suspect, so that every read raises, until the cell is
    assigned.

    Args:
        cell: the cell to check.
        before: the array that the cell stored before, and whether it was suspect; to
            be put back if the copies differ. None puts nothing back.
        among_workers: whether all workers call this now, so that the copies of all of
            them can be compared.

    Raises:
        ValueError: the copies differ.
    """
    if not cell.is_suspect:
        return
    if cell.is_spread and (among_workers or cell.split is not None):
        # What is stored in parts must be one value of all workers, whoever asks.
        # Without the lock, because other workers are waited for.
        _verify(cell, before, True)
        return
    with storage.LOCK:
        if cell.holder is not None:
            # Another thread writes the copies one after the other, and has not ended.
            holding.wait_to_read(cell)
        if cell.is_suspect:
            _verify(cell, before, False)


def _verify(cell: Cell, before: tuple[Any, bool] | None, among_workers: bool) -> None:
    """Compares the copies of a suspect cell; see `verify`."""
    if cell.split is not None:
        is_same = not cell.drafts or cell.settle()
        if not is_same and before is not None:
            # The stored array is still the one before: only `settle` replaces it.
            cell.drafts = {}
        cell.is_suspect = bool(cell.drafts)
        if not is_same:
            raise errors.diverging_copies_error(cell.name, cell.origin)
        return
    # Copies that are equal here may still differ from those of other workers.
    cell.is_suspect = cell.is_spread and not among_workers
    first, *others = collectives.shards(cell.array, cell.topology)
    device = cell.topology.home
    is_float = bool(jnp.issubdtype(first.dtype, jnp.inexact))
    is_same = all(
        bool(jnp.array_equal(first, jax.device_put(o, device), equal_nan=is_float))
        for o in others
    )
    if among_workers:
        is_same = is_same_on_workers(cell, first, is_same)
    if not is_same:
        cell.is_suspect = True
        if before is not None:
            cell.array, cell.is_suspect = before
        # So that the next step looks at this cell again.
        cell.escape()
        raise errors.diverging_copies_error(cell.name, cell.origin)


def is_same_on_workers(cell: Cell, value: jax.Array, is_same: bool = True) -> bool:
    """Whether all workers have the same value for a cell.

    Args:
        cell: the cell that the value is for.
        value: this worker's value.
        is_same: whether this worker's own copies are equal; if not, the result is False
            on all workers.
    """
    # A worker whose copies differ takes part as well: the others wait for it.
    point = f"assignment of variable '{cell.name}'"
    return eager_exchange.is_same(cell.topology, point, value, is_same)


def settle(cells: Iterable[Cell]) -> None:
    """Checks cells that replicas have written in turn, and stores their new values."""
    for cell in cells:
        if cell.is_suspect:
            verify(cell)


def unescape(cells: Iterable[Cell]) -> None:
    """Gives each cell an array that nobody else holds, so that it can be donated."""
    for cell in cells:
        if cell.is_suspect:
            verify(cell, among_workers=True)
        if cell.escaped:
            try:
                cell.array = cell.duplicate()
            except FloatingPointError as error:
                # With `jax_debug_nans` JAX looks at copies, too.
                error.add_note(
                    f"The variable '{cell.name}' (created at {cell.origin}) has a "
                    "number that is not finite."
                )
                raise
            cell.escaped = False
