"""Whether copies of a cell are still equal, and whether others hold its array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import errors
from unisono._src.state.frames import Cell
from unisono._src.values import collectives
from unisono._src.workers import eager_exchange


def verify(
    cell: Cell, before: tuple[Any, bool] | None = None, among_workers: bool = False
) -> None:
    """Raise if copies that were written one by one have become different.

    They stay suspect, and are refused again, until the cell is assigned.

    Args:
        cell: a cell.
        before: what to put back in that case, if anything: the array that it stored,
            and whether it was suspect.
        among_workers: whether all workers are here, so that theirs are compared too.
    """
    if not cell.is_suspect:
        return
    if cell.split is not None:
        is_same = not cell.drafts or cell.settle()
        if not is_same and before is not None:
            # What was stored before still is: it is replaced when all agree.
            cell.drafts = {}
        cell.is_suspect = bool(cell.drafts)
        if not is_same:
            raise errors.diverging(cell.name, cell.origin)
        return
    among_workers = among_workers and cell.is_spread
    cell.is_suspect = cell.is_spread and not among_workers
    first, *others = collectives.shards(cell.array, cell.topology)
    device = cell.topology.home
    is_float = bool(jnp.issubdtype(first.dtype, jnp.inexact))
    is_same = all(
        bool(jnp.array_equal(first, jax.device_put(o, device), equal_nan=is_float))
        for o in others
    )
    if among_workers:
        is_same = all_same(cell, first, is_same)
    if not is_same:
        cell.is_suspect = True
        if before is not None:
            cell.array, cell.is_suspect = before
        cell.escape()
        raise errors.diverging(cell.name, cell.origin)


def all_same(cell: Cell, value: Any, is_same: bool = True) -> bool:
    """Whether every worker has the same value for a cell, and `is_same`."""
    # A worker that knows better still takes part: the others wait for it.
    point = f"assignment of variable '{cell.name}'"
    return eager_exchange.is_same(cell.topology, point, value, is_same)


def settle(cells: Iterable[Cell]) -> None:
    """Let cells that replicas have written in turn store what they agree on."""
    for cell in cells:
        if cell.is_suspect:
            verify(cell)


def unescape(cells: Iterable[Cell]) -> None:
    """Give each cell that others may look at an array of its own."""
    for cell in cells:
        if cell.is_suspect:
            verify(cell, among_workers=True)
        if cell.escaped:
            cell.array = cell.duplicate()
            cell.escaped = False
