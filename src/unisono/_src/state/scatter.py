"""Changes some rows of a variable, by the rules of contexts and aggregation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors, jax_internals
from unisono._src.foundation.options import ReduceOp, VariableAggregation
from unisono._src.state import (
    assignment,
    conversion,
    frames,
    reading,
    remote_state,
    storage,
)
from unisono._src.state.storage import Policy
from unisono._src.values import collectives, row_positions
from unisono._src.values.array_operators import operand
from unisono._src.values.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable

_NONE = VariableAggregation.NONE
_FIRST = VariableAggregation.ONLY_FIRST_REPLICA


# The method of JAX's `array.at[...]` for each kind.
_METHODS = {
    "add": "add",
    "sub": "subtract",
    "update": "set",
    "min": "min",
    "max": "max",
    "mul": "multiply",
    "div": "divide",
}


def split_by_axis(positions: Any) -> tuple[Any, ...]:
    """Returns the indices of each axis, from positions along the last axis."""
    return tuple(positions[..., i] for i in range(positions.shape[-1]))


def _apply(kind: str, old: jax.Array, sparse: IndexedSlices, is_nd: bool) -> jax.Array:
    """Returns an array with some rows, or elements, changed."""
    rows: Any = sparse.values
    if kind == "div" and jnp.issubdtype(old.dtype, jnp.integer):
        return _divide(old, sparse.indices, rows)
    where = split_by_axis(sparse.indices) if is_nd else sparse.indices
    change = getattr(old.at[where], _METHODS[kind])
    changed: jax.Array = change(rows, **row_positions.LEAVE_OUT)
    return changed


def _divide(old: jax.Array, where: Any, rows: Any) -> jax.Array:
    """Divides rows of integers, and rounds towards zero as TensorFlow does."""
    # By NumPy: in a function JAX would make a traced value of a constant.
    if not isinstance(rows, jax.core.Tracer) and not np.asarray(rows).all():
        raise errors.InvalidArgumentError(
            f"scatter_div cannot divide integers by zero; received {rows}."
        )
    # Dividing by all rows of an index in turn gives the same as by their product.
    ones = jnp.ones_like(old).at[where]
    return jax.lax.div(old, ones.multiply(rows, **row_positions.LEAVE_OUT))


def scatter(variable: Any, kind: str, sparse: object, is_nd: bool = False) -> jax.Array:
    """Changes some rows of a variable, and returns the new value.

    Args:
        variable: the variable.
        kind: a key of `_METHODS`.
        sparse: the rows and their positions.
        is_nd: whether a position is a row of `sparse.indices`, with an index for each
            of several axes.

    Raises:
        TypeError: `sparse` is no `IndexedSlices`, or the variable cannot hold its rows.
        ValueError: the variable cannot hold its rows, which are an array.
        NotImplementedError: the variable's kind or aggregation does not allow `kind`.
        InvalidArgumentError: a position is known, and not in the variable.
    """
    if not isinstance(sparse, IndexedSlices):
        raise TypeError(
            "Argument `sparse_delta` must be a `tf.IndexedSlices`. Received arg: "
            f"{sparse!r}. Write unisono.IndexedSlices(values, indices)."
        )
    cell = variable.state_cell
    rows = conversion.as_type(sparse.values, cell.dtype, cell.name)
    where = sparse.indices
    if not is_nd:
        where = row_positions.of_rows(where, cell.shape)
    sparse = IndexedSlices(rows, where, sparse.dense_shape)
    name = f"scatter_{'nd_' if is_nd else ''}{kind}"
    if cell.policy is Policy.ON_READ and variable.replica_index is None:
        raise NotImplementedError(
            f"Variables with `synchronization=ON_READ` doesn't support `{name}`"
        )
    shared = (Policy.MIRRORED, Policy.CENTRAL)
    distributed = cell.policy in shared and variable.replica_index is None
    # TensorFlow's rule: of the others, such as a maximum, no sum or mean is defined.
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
    frame = storage.check_strategy(variable.state_cell)
    # A server knows operations on rows; for positions in several axes it gets a
    # program, which `change` makes.
    if cell.home is not None and not is_nd:
        return _scatter_on_server(cell, kind, sparse)
    is_own = storage.sees_copy(variable.state_cell, frame)
    if distributed and is_own and frame.mode != ambient.UPDATE:
        return _scatter_aggregated(variable, kind, sparse, frame, is_nd)
    return change(
        variable,
        lambda old: _apply(kind, old, sparse, is_nd),
        frame,
        frame.mode == ambient.UPDATE,
    )


def _scatter_on_server(
    cell: storage.Cell, kind: str, sparse: IndexedSlices
) -> jax.Array:
    """Lets a parameter server change rows of a variable, and returns the new value."""
    target = frames.frame()
    rows = jnp.asarray(operand(sparse.indices)), frames.strip_gradient(sparse.values)
    given = IndexedSlices(rows[1], rows[0])
    target.change(
        remote_state.Change((cell,), f"scatter_{kind}", rows),
        lambda: [_apply(kind, target.whole(cell), given, False)],
    )
    return target.whole(cell)


def _change_on_server(cell: storage.Cell, fn: Callable[[Any], jax.Array]) -> jax.Array:
    """Lets a parameter server compute a function of a variable, as a program."""
    target = frames.frame()
    # For the cell alone: what else the function uses are constants of the trace.
    closed = jax.make_jaxpr(fn)(jax.ShapeDtypeStruct(cell.shape, cell.dtype))
    # What the function captures are the operands of the program.
    jaxpr = closed.jaxpr.replace(
        constvars=[], invars=[*closed.jaxpr.invars, *closed.jaxpr.constvars]
    )
    operands = tuple(frames.strip_gradient(x) for x in closed.consts)
    program = jax_internals.ClosedJaxpr(jaxpr, [])
    target.change(
        remote_state.Change((cell,), "program", operands, program),
        lambda: [fn(target.whole(cell))],
    )
    return target.whole(cell)


def change(
    variable: Variable,
    fn: Callable[[Any], jax.Array],
    frame: ambient.Frame,
    is_own: bool,
) -> jax.Array:
    """Replaces the value of a variable by a function of it, and returns the new one.

    Args:
        variable: the variable.
        fn: the function.
        frame: the running context.
        is_own: whether to change the copy that the running code sees, not all copies.
    """
    cell = variable.state_cell
    if cell.home is not None:
        return _change_on_server(cell, fn)
    if cell.policy is Policy.PLAIN and frame.port is not None and frame.port.is_spmd:
        raise assignment.lockstep_signal(cell)
    reading.check_component(variable, frame)
    if variable.replica_index is not None or is_own:
        is_part = variable.replica_index is not None
        index = variable.replica_index if is_part else frame.copy
        return assignment.change_copy(cell, index, fn)
    assignment.change_whole(cell, fn, cell.is_spread and frame.state is None)
    return reading.read(variable)


def _scatter_aggregated(
    variable: Variable,
    kind: str,
    sparse: IndexedSlices,
    frame: ambient.Frame,
    is_nd: bool,
) -> jax.Array:
    """Combines the rows of all replicas, and changes the variable by the result."""
    cell, aggregation = variable.state_cell, variable.state_cell.aggregation
    if aggregation is _NONE:
        # It raises, with the error of every assignment without an aggregation.
        assignment.write_aggregated(variable, assignment.REPLACE, None, frame)
    first = aggregation is _FIRST
    port = frame.port
    if port is None or port.is_alone or port.is_spmd:
        if port is not None and port.is_spmd:
            if first:
                # Replicas that take turns hand on the rows of replica 0 as they are.
                raise assignment.lockstep_signal(cell)
            op = ReduceOp.from_variable_aggregation(aggregation)
            sparse = collectives.reduce_local(op, sparse, port.replicas)
        changed: jax.Array = assignment.change_copy(
            cell, frame.copy, lambda old: _apply(kind, old, sparse, is_nd)
        )
        return changed

    def combine(payloads: list[Any]) -> Sequence[Any]:
        device = cell.topology.home
        if cell.is_spread and not frames.frame().is_compiled:
            point = f"scatter_{kind} of variable '{cell.name}'"
            payloads = collectives.all_parts(payloads, cell.topology, point)
        if first:
            merged = payloads[0]
        else:
            op = ReduceOp.from_variable_aggregation(aggregation)
            merged = collectives.reduce_parts(op, payloads, device)
        target = frames.frame()
        with storage.LOCK:
            target.begin_change(cell)
            old = collectives.place(target.copy(cell, None), device)
            target.set_whole(cell, _apply(kind, old, merged, is_nd))
        return assignment.copies_of(cell)

    met: jax.Array = port.meet(combine, jax.tree.map(frames.strip_gradient, sparse))
    return met
