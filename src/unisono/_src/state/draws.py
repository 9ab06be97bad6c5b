"""Draws: reading a variable and changing it in one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from unisono._src.state import frames, servers, trace_versions


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
        old = variable.read_value()
        variable.assign(fn(old))
        return old
    closed = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(cell.shape, cell.dtype))
    change = servers.Change((cell,), "program", (), closed, is_draw=True)
    target = frames.frame()
    # In a program the change is noted; `servers.split_draws` puts it to the reading.
    if target.is_compiled:
        old = target.whole(cell)
        target.change(change, lambda: [fn(old)])
        return old
    trace_versions.EAGER.note_change()
    return cell.home.group.read([cell], {cell: [change]})[0]
