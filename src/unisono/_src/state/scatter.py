"""Changes some rows of a variable, by the rules of contexts and aggregation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import ReduceOp, VariableAggregation
from unisono._src.state import assignment, conversion, frames
from unisono._src.state.frames import Policy
from unisono._src.values import collectives
from unisono._src.values.indexed_slices import IndexedSlices

_NONE = VariableAggregation.NONE
_FIRST = VariableAggregation.ONLY_FIRST_REPLICA


_SCATTER: dict[str, Callable[[Any, IndexedSlices], jax.Array]] = {
    "add": lambda a, s: a.at[s.indices].add(s.values),
    "sub": lambda a, s: a.at[s.indices].add(-s.values),
    "update": lambda a, s: a.at[s.indices].set(s.values),
    "min": lambda a, s: a.at[s.indices].min(s.values),
    "max": lambda a, s: a.at[s.indices].max(s.values),
    "mul": lambda a, s: a.at[s.indices].multiply(s.values),
    "div": lambda a, s: _divide(a, s),
}


def _divide(old: jax.Array, sparse: IndexedSlices) -> jax.Array:
    """Divides some rows; integers are rounded towards zero, as in TensorFlow."""
    if not jnp.issubdtype(old.dtype, jnp.integer):
        return old.at[sparse.indices].divide(sparse.values)
    rows: Any = sparse.values
    if not isinstance(rows, jax.core.Tracer) and not jnp.all(rows):
        raise errors.InvalidArgumentError(
            f"scatter_div cannot divide integers by zero; received {rows}."
        )
    # Dividing by all rows of an index in turn gives the same as by their product.
    return jax.lax.div(old, jnp.ones_like(old).at[sparse.indices].multiply(rows))


def scatter(variable: Any, kind: str, sparse: Any) -> jax.Array:
    """Changes some rows of a variable, and returns the new value.

    Args:
        variable: the variable.
        kind: a key of `_SCATTER`.
        sparse: the rows and their positions.

    Raises:
        TypeError: `sparse` is no `IndexedSlices`, or the variable cannot hold its rows.
        ValueError: the variable cannot hold its rows, which are an array.
        NotImplementedError: the variable's kind or aggregation does not allow `kind`.
    """
    if not isinstance(sparse, IndexedSlices):
        raise TypeError(
            f"Expected IndexedSlices, received {type(sparse).__name__}: {sparse!r}. "
            "Write unisono.IndexedSlices(values, indices)."
        )
    cell = variable.state_cell
    rows = conversion.as_type(sparse.values, cell.dtype, cell.name)
    sparse = IndexedSlices(rows, sparse.indices, sparse.dense_shape)
    name = f"scatter_{kind}"
    if cell.policy is Policy.ON_READ and variable.replica_index is None:
        raise NotImplementedError(
            f"Variables with `synchronization=ON_READ` doesn't support `{name}`"
        )
    shared = (Policy.MIRRORED, Policy.CENTRAL)
    distributed = cell.policy in shared and variable.replica_index is None
    adds_up = kind in ("add", "sub", "mul", "div")
    if (
        distributed
        and not adds_up
        and variable.state_cell.aggregation not in (_NONE, _FIRST)
    ):
        raise NotImplementedError(
            f"{name} is only supported for mirrored variable (variable created within "
            "certain `tf.distribute.Strategy` scope) with NONE or "
            f"`ONLY_FIRST_REPLICA` aggregation, got: {variable.state_cell.aggregation}"
        )
    frame = assignment.check_strategy(variable)
    if cell.policy is Policy.PLAIN and frame.port is not None and frame.port.is_spmd:
        raise assignment.needs_lockstep(cell)
    assignment.check_component(variable, frame)
    if (
        distributed
        and assignment.sees_copy(variable, frame)
        and frame.mode != ambient.UPDATE
    ):
        return _scatter_aggregated(variable, kind, sparse, frame)
    target = frames.frame()
    if variable.replica_index is not None or frame.mode == ambient.UPDATE:
        index = (
            variable.replica_index if variable.replica_index is not None else frame.copy
        )
        new = _SCATTER[kind](target.copy(cell, index), sparse)
        target.set_copy(cell, index, new)
        return new
    new = _SCATTER[kind](assignment.common_value(cell, target), sparse)
    if cell.is_spread and frame.state is None:
        assignment.check_workers(cell, new)
    target.set_whole(cell, new)
    return assignment.read(variable)


def _scatter_aggregated(variable: Any, kind: str, sparse: Any, frame: Any) -> jax.Array:
    """Combines the rows of all replicas, and changes the variable by the result."""
    cell, aggregation = variable.state_cell, variable.state_cell.aggregation
    if aggregation is _NONE:
        # It raises, with the error of every assignment without an aggregation.
        assignment.write_aggregated(variable, assignment.REPLACE, None, frame)
    first = aggregation is _FIRST
    port = frame.port
    if port.is_spmd or port.replicas == 1:
        if port.is_spmd and first:
            # Replicas that take turns hand on the rows of replica 0 as they are.
            raise assignment.needs_lockstep(cell)
        if port.is_spmd:
            op = ReduceOp.from_variable_aggregation(aggregation)
            sparse = collectives.reduce_local(op, sparse, port.replicas)
        target = frames.frame()
        new = _SCATTER[kind](target.copy(cell, frame.copy), sparse)
        target.set_copy(cell, frame.copy, new)
        return new

    def combine(payloads: list[Any]) -> Sequence[Any]:
        device, target = cell.topology.home, frames.frame()
        if cell.is_spread and not target.is_compiled:
            point = f"scatter_{kind} of variable '{cell.name}'"
            payloads = collectives.all_parts(payloads, cell.topology, point)
        if first:
            merged = payloads[0]
        else:
            op = ReduceOp.from_variable_aggregation(aggregation)
            merged = collectives.reduce_parts(op, payloads, device)
        old = collectives.place(target.copy(cell, None), device)
        target.set_whole(cell, _SCATTER[kind](old, merged))
        return assignment.copies_of(cell)

    met: jax.Array = port.meet(combine, jax.tree.map(frames.without_gradient, sparse))
    return met
