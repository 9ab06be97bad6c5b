"""Looks up rows of embedding tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import ambient
from unisono._src.state import reading, rows
from unisono._src.state.sharded_variable import ShardedVariable
from unisono._src.state.variables import Variable
from unisono._src.values import row_positions
from unisono._src.values.array_operators import (
    StandsForArray,
    find_own_variable,
    operand,
)

# A variable in parts stands for an array, too.
_Table = ArrayLike | StandsForArray


def has_rows_elsewhere(params: object) -> bool:
    """Whether a table is a variable in parts, or a parameter server keeps it."""
    if isinstance(params, (list, tuple)):
        return any(map(has_rows_elsewhere, params))
    found = find_own_variable(params)
    if isinstance(found, Variable):
        return found.state_cell.home is not None
    return isinstance(found, ShardedVariable)


def embedding_lookup(
    params: _Table | Sequence[Variable],
    ids: _Table | Sequence[object],
    max_norm: float | None = None,
) -> jax.Array:
    """Returns the rows of an embedding table at some positions.

    Of a table on parameter servers only these rows travel, and its gradient is
    `IndexedSlices` of these rows.

    Args:
        params: the table: an array, a variable, a `ShardedVariable`, or a list of
            variables that are its parts.
        ids: the positions, an array of integers of any shape. A position that a
            program computes and that is outside the table reads zeros.
        max_norm: rows with a greater L2 norm are scaled down to it; None for no limit.

    Returns:
        An array of the shape of `ids`, followed by that of a row.

    Raises:
        InvalidArgumentError: a position is known, and outside the table.
        TypeError: `ids` are no integers.
        ValueError: there is no table.

    >>> table = Variable([[1.0, 1.0], [2.0, 2.0], [3.0, 4.0]])
    >>> embedding_lookup(table, [2, 0]).tolist()
    [[3.0, 4.0], [1.0, 1.0]]
    >>> embedding_lookup(table, [2], max_norm=1.0).round(3).tolist()
    [[0.6..., 0.8...]]
    """
    where = operand(ids)
    where = where if isinstance(where, jax.Array) else np.asarray(where)
    if where.size and not jnp.issubdtype(where.dtype, jnp.integer):
        raise TypeError(f"ids must be integers, received {where.dtype}.")
    with ambient.push_servers(is_lookup=True):
        found = _take(find_own_variable(params), where)
    if max_norm is None:
        return found
    axes = tuple(range(where.ndim, found.ndim))
    squares = jnp.sum(found * found, axis=axes, keepdims=True)
    # The gradient of a root at 0 is infinite, also where its result is not used.
    norm = jnp.sqrt(jnp.where(squares > 0, squares, 1.0))
    scale = jnp.where(squares > max_norm**2, max_norm / norm, 1.0)
    return found * scale.astype(found.dtype)


def _take(table: Any, where: Any) -> jax.Array:
    """Returns rows of a table of any kind."""
    if isinstance(table, (list, tuple)) and not isinstance(table, jax.Array):
        if not table:
            raise ValueError("Need at least one param, received an empty list.")
        is_split = len(table) > 1 and all(isinstance(v, Variable) for v in table)
        return _take(ShardedVariable(table) if is_split else table[0], where)
    if isinstance(table, ShardedVariable):
        return table.lookup(where)
    if isinstance(table, Variable):
        where = row_positions.of_rows(where, table.shape)
        return reading.read_rows(table, where)
    whole = jnp.asarray(operand(table))
    found: jax.Array = rows.take(whole, row_positions.of_rows(where, whole.shape))
    return found
