"""Draws: reading a variable and changing it in one go."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax

from unisono._src.foundation import ambient
from unisono._src.state import frames, remote_state, storage, trace_versions
from unisono._src.state.storage import Policy


def draw(variable: Any, fn: Callable[[Any], Any]) -> Any:
    """Returns the value of a variable, and replaces it by a function of it.

    If a parameter server keeps the variable, it does both at once. So no other worker
    gets the same value, as would happen if it read the variable in between.

    Args:
        variable: the variable.
        fn: the function; it may use no arrays but its argument.
    """
    cell = variable.state_cell
    if cell.home is None:
        with storage.LOCK if _is_done_alone(cell) else contextlib.nullcontext():
            frames.frame().begin_change(cell)
            old = variable.read_value()
            variable.assign(fn(old))
            return old
    closed = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(cell.shape, cell.dtype))
    change = remote_state.Change((cell,), "program", (), closed, is_draw=True)
    target = frames.frame()
    # In a program the change is noted; `split_draws` puts it to the reading.
    if target.is_compiled:
        old = target.whole(cell)
        target.change(change, lambda: [fn(old)])
        return old
    trace_versions.EAGER.note_change()
    return cell.home.group.read([cell], {cell: [change]})[0]


def _is_done_alone(cell: storage.Cell) -> bool:
    """Whether a cell is read and assigned without a meeting of replicas or workers.

    They are never waited for with the lock of all cells.
    """
    frame = ambient.current()
    if frame.mode == ambient.UPDATE or cell.policy is Policy.PLAIN:
        return True
    is_local = storage.sees_copy(cell, frame) or not cell.is_spread
    return cell.policy is Policy.ON_READ and is_local
