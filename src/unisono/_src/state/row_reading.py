"""Reads rows of a variable, as the running context sees it."""

from __future__ import annotations

from typing import Any

import jax

from unisono._src.foundation import ambient
from unisono._src.state import frames, reading, rows, storage


def read_rows(variable: Any, where: Any) -> jax.Array:
    """Returns rows of a variable, as the running context sees it.

    Args:
        variable: the variable.
        where: the positions; a row outside the variable is zeros.
    """
    frame = storage.check_strategy(variable.state_cell)
    if frame.tape is not None:
        return _read_rows_for_tape(variable, where, frame.tape)
    source: frames.StateFrame = frame.state or frames.EAGER
    return source.rows(variable.state_cell, rows.as_positions(where))


def _read_rows_for_tape(variable: Any, where: Any, tape: Any) -> jax.Array:
    """Returns rows so that the open gradient tapes follow them."""
    with ambient.push(tape=tape.outer):
        found = read_rows(variable, where)
    if variable.state_cell.home is None:
        return rows.take(reading.read(variable), rows.as_positions(where))  # type: ignore[no-any-return]
    return tape.follow_rows(found, [(variable.state_cell, where, variable)])  # type: ignore[no-any-return]
