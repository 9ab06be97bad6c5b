"""Functions of ``tf.nn`` that look at the strategy.

Losses are scaled by the global batch, and rows of embedding tables are looked up where
they are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import ambient
from unisono._src.foundation.errors import InvalidArgumentError
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


def _count_replicas(caller: str, remedy: str = "") -> int:
    """Returns the number of replicas of the strategy in scope; 1 without one.

    Raises:
        RuntimeError: called in cross-replica context of a strategy.
    """
    frame = ambient.current()
    if frame.strategy is None:
        return 1
    if frame.mode != ambient.REPLICA:
        raise RuntimeError(
            f"You are calling `{caller}` in cross replica context, while it was "
            f"expected to be called in replica context{remedy}."
        )
    return frame.strategy.num_replicas_in_sync


def compute_average_loss(
    per_example_loss: _Table | Sequence[object],
    sample_weight: _Table | Sequence[object] | None = None,
    global_batch_size: SupportsIndex | StandsForArray | None = None,
) -> jax.Array:
    """Returns the sum of the losses divided by the global batch size.

    The sum of the results over all replicas is the mean over all examples, even if
    replicas have different numbers of examples.

    Args:
        per_example_loss: one loss per example, or more along further axes.
        sample_weight: the weights of the examples. If they have one axis more than the
            losses, the last axis must have length 1 and is removed; if they have one
            axis less, an axis is added at the end. Then they are broadcast.
        global_batch_size: the number of examples on all replicas; by default the number
            on this replica times the number of replicas. If it is 0, the result is 0. A
            compiled step cannot check that an argument is not negative.

    Raises:
        ValueError: the losses have no axis, or `global_batch_size` is not a scalar.
        TypeError: `global_batch_size` is not an integer.
        InvalidArgumentError: `global_batch_size` is negative, or the weights do not fit
            the losses. This error is also a `ValueError`.
        RuntimeError: called in cross-replica context without `global_batch_size`.

    >>> float(compute_average_loss([1.0, 2.0, 3.0], global_batch_size=6))
    1.0
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> losses = strategy.run(lambda: compute_average_loss([2.0, 4.0]))
    >>> float(strategy.reduce("SUM", losses, axis=None))
    3.0
    """
    losses = jnp.asarray(operand(per_example_loss))
    if losses.ndim == 0:
        raise ValueError(
            "Invalid value passed for `per_example_loss`. Expected a tensor with at "
            f"least rank 1. Received per_example_loss={per_example_loss} with rank 0; "
            "pass one loss per example, not their sum or mean."
        )
    if sample_weight is not None:
        losses = _weigh(losses, jnp.asarray(operand(sample_weight)))
    if global_batch_size is None:
        count = _count_replicas("compute_average_loss", "; or pass global_batch_size")
        global_batch_size = losses.shape[0] * count
    size = _batch_size(global_batch_size)
    total = jnp.sum(losses)
    if isinstance(size, jax.core.Tracer):
        # Both branches of a `where` are differentiated: neither may divide by zero.
        quotient = total / jnp.where(size == 0, 1, size).astype(losses.dtype)
        return jnp.where(size == 0, 0, quotient)
    if size == 0:
        return total * 0.0
    return total / jnp.asarray(size, losses.dtype)


def _weigh(losses: jax.Array, weights: jax.Array) -> jax.Array:
    """Returns the losses times their weights, in the losses' type."""
    shape = weights.shape
    if weights.ndim == losses.ndim + 1:
        if shape[-1] != 1:
            raise InvalidArgumentError(
                f"Can not squeeze dim[{weights.ndim - 1}], expected a dimension of 1, "
                f"got {shape[-1]}: `sample_weight` of shape {shape} has one axis more "
                f"than the losses, of shape {losses.shape}."
            )
        shape = shape[:-1]
    elif weights.ndim == losses.ndim - 1:
        shape = (*shape, 1)
    try:
        jnp.broadcast_shapes(losses.shape, shape)
    except ValueError:
        raise InvalidArgumentError(
            f"Incompatible shapes: {list(losses.shape)} vs. {list(shape)}: "
            f"`sample_weight` of shape {weights.shape} does not fit losses of shape "
            f"{losses.shape}."
        ) from None
    kind = jnp.promote_types(losses.dtype, jnp.float32)
    weighted = losses.astype(kind) * weights.astype(kind).reshape(shape)
    return weighted.astype(losses.dtype)


def _batch_size(given: SupportsIndex | StandsForArray) -> int | jax.Array:
    """Returns a global batch size as a number, after checking it."""
    found: Any = operand(given)
    size: int | jax.Array = found
    if np.ndim(size) != 0:
        raise ValueError(
            "global_batch_size must be scalar; received a value of shape "
            f"{np.shape(size)}: {size!r}."
        )
    is_integer = (isinstance(size, int) and not isinstance(size, bool)) or (
        hasattr(size, "dtype") and jnp.issubdtype(size.dtype, jnp.integer)
    )
    if not is_integer:
        raise TypeError(
            f"global_batch_size must be an integer; received {size!r} of type "
            f"{type(size).__name__}."
        )
    if not isinstance(size, jax.core.Tracer) and size < 0:
        raise InvalidArgumentError(
            f"global_batch_size must be non-negative; received {size}."
        )
    return size


def scale_regularization_loss(
    regularization_loss: _Table | Sequence[object],
) -> jax.Array:
    """Returns the sum of the losses divided by the number of replicas.

    Every replica adds the same regularization. After summing over the replicas, it
    counts once.

    Args:
        regularization_loss: one or more losses.

    Raises:
        RuntimeError: called in cross-replica context.

    >>> float(scale_regularization_loss([1.0, 2.0]))
    3.0
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> losses = strategy.run(lambda: scale_regularization_loss(5.0))
    >>> float(strategy.reduce("SUM", losses, axis=None))
    5.0
    """
    count = _count_replicas("scale_regularization_loss")
    return jnp.sum(jnp.asarray(operand(regularization_loss))) / count


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


def _take(table: object, where: jax.Array | np.ndarray) -> jax.Array:
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
    return rows.take(whole, row_positions.of_rows(where, whole.shape))
