"""Reads elements and slices of a variable at given positions, and assigns slices."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors
from unisono._src.state import conversion, row_reading, scatter, storage
from unisono._src.state.storage import Policy
from unisono._src.values import array_attributes, collectives, row_positions
from unisono._src.values.array_operators import take
from unisono._src.values.indexed_slices import IndexedSlices

if TYPE_CHECKING:

    class VariableSlice(jax.Array):
        """A slice of a variable: an array, with a method that assigns the slice."""

        def assign(self, value: Any, name: str | None = None) -> jax.Array:
            """Replaces the elements of the slice, and returns the new variable."""

else:
    VariableSlice = jax.Array


# Positions.


def _as_positions(variable: Any, indices: Any) -> Any:
    """Returns positions, each along the last axis of an array."""
    where = row_positions.as_array(indices)
    if not where.ndim or where.shape[-1] > len(variable.shape):
        raise errors.InvalidArgumentError(
            f"The last axis of indices must have from 0 to {len(variable.shape)} "
            f"elements, one for each axis of the variable '{variable.name}' that they "
            f"index; received indices of shape {where.shape}."
        )
    return row_positions.check(where, tuple(variable.shape)[: where.shape[-1]])


def gather_nd(variable: Any, indices: Any) -> jax.Array:
    """Returns the elements or slices of a variable at some positions."""
    return _take(variable, scatter.split_by_axis(_as_positions(variable, indices)))


def sparse_read(variable: Any, indices: Any) -> jax.Array:
    """Returns the rows of a variable at some positions."""
    limits = variable.shape[:1]
    if not limits:
        raise errors.InvalidArgumentError(
            f"The variable '{variable.name}' is a scalar and has no rows to read."
        )
    where = row_positions.of_rows(indices, limits)
    if variable.state_cell.home is not None:
        return row_reading.read_rows(variable, where)
    return _take(variable, where)


def _take(variable: Any, where: Any) -> jax.Array:
    # As TensorFlow on accelerators: zeros for what is out of range.
    whole: jax.Array = variable.value()
    return whole.at[where].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def scatter_nd(variable: Any, kind: str, indices: Any, updates: Any) -> jax.Array:
    """Changes the elements or slices of a variable at some positions.

    Args:
        variable: the variable.
        kind: "add", "sub", "update", "max" or "min".
        indices: the positions, along the last axis.
        updates: for each position an element or slice.

    Raises:
        InvalidArgumentError: the shapes do not fit each other, or a position is out of
            range.
    """
    where = _as_positions(variable, indices)
    cell, axes = variable.state_cell, where.shape[-1]
    rows = conversion.as_type(updates, cell.dtype, cell.name)
    slices = variable.shape[axes:]
    if rows.shape != (*where.shape[:-1], *slices):
        raise errors.InvalidArgumentError(
            f"scatter_nd_{kind} of the variable '{cell.name}' needs updates of shape "
            f"{(*where.shape[:-1], *slices)} for indices of shape {where.shape}, "
            f"received {rows.shape}."
        )
    count = math.prod(where.shape[:-1])
    flat = IndexedSlices(rows.reshape(count, *slices), where.reshape(count, axes))
    return scatter.scatter(variable, kind, flat, is_nd=True)


# Slices.


def take_slice(variable: Any, key: Any) -> VariableSlice:
    """Returns a slice of a variable, with a method `assign` that replaces it.

    Raises:
        InvalidArgumentError: an index is known and out of range.
    """
    whole = variable.value()
    found = take(whole, key, f"the variable '{variable.name}'")
    if found is whole:
        # The array of the variable itself must not get the attribute: other variables
        # may hold it, too.
        found = jnp.copy(whole)
    change = functools.partial(_assign_slice, variable, key)
    sliced: VariableSlice = array_attributes.attach(found, "assign", change)
    return sliced


def _assign_slice(
    variable: Any, key: Any, value: Any, name: str | None = None
) -> jax.Array:
    """Replaces the elements of a slice, and returns the new value of the variable.

    A replica writes its own copy of a mirrored variable: all must write the same.
    """
    del name  # TensorFlow's; it has no effect.
    cell = variable.state_cell
    frame = storage.check_strategy(variable.state_cell)
    is_own = storage.sees_copy(variable.state_cell, frame)
    _check_kind(variable, frame, is_own)
    value = conversion.as_type(value, cell.dtype, cell.name)
    _check_slice(variable, key, value)
    if frame.state is None:
        # It may be on another device than the variable, and JAX moves a released one.
        value = collectives.release(collectives.own_copy(value))
    return scatter.change(variable, lambda old: old.at[key].set(value), frame, is_own)


def _check_kind(variable: Any, frame: ambient.Frame, is_own: bool) -> None:
    """Raises unless slices of such a variable can be assigned here."""
    cell = variable.state_cell
    if variable.replica_index is not None:
        return
    if cell.policy is Policy.ON_READ and not is_own:
        raise NotImplementedError(
            f"A slice of the sync-on-read variable '{cell.name}' cannot be assigned in "
            "cross-replica context; assign it in replica context, through "
            "strategy.run, or assign the whole variable."
        )
    is_replica = is_own and frame.mode == ambient.REPLICA
    if cell.policy is Policy.CENTRAL and is_replica and cell.copies > 1:
        raise NotImplementedError(
            f"A replica cannot assign a slice of the variable '{cell.name}', which all "
            "replicas share; assign the slice outside strategy.run."
        )


def _check_slice(variable: Any, key: Any, value: Any) -> None:
    """Raises `InvalidArgumentError` unless a value can be put at a position."""
    abstract = jax.ShapeDtypeStruct(variable.shape, variable.dtype)
    wanted = jax.eval_shape(lambda old: old[key], abstract).shape
    try:
        fits = np.broadcast_shapes(value.shape, wanted) == wanted
    except ValueError:
        fits = False
    if not fits:
        raise errors.InvalidArgumentError(
            f"Cannot broadcast a value of shape {value.shape} to the slice of shape "
            f"{wanted} of the variable '{variable.name}'."
        )
