"""Finds the variable that has its value in a cell."""

from __future__ import annotations

import weakref
from typing import Any

from unisono._src.state.storage import Cell

# Weakly in both directions: neither a cell nor a variable is kept alive.
_by_cell: weakref.WeakKeyDictionary[Cell, weakref.ref[Any]] = (
    weakref.WeakKeyDictionary()
)


def note(variable: Any) -> None:
    """Notes a new variable, unless it is a component of another one."""
    if variable.replica_index is None:
        _by_cell[variable.state_cell] = weakref.ref(variable)


def find(cell: Cell) -> Any:
    """Returns the variable that has its value in `cell`; None if there is none now."""
    found = _by_cell.get(cell)
    return None if found is None else found()
