"""Reads and changes rows, elements and slices of a variable at given positions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

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
from unisono._src.values.array_operators import (
    ArrayOperators,
    StandsForArray,
    operand,
    take,
)
from unisono._src.values.indexed_slices import IndexedSlices

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable

    class VariableSlice(jax.Array):
        """A slice of a variable: an array, with a method that assigns the slice."""

        def assign(self, value: object, name: str | None = None) -> jax.Array:
            """Replaces the elements of the slice, and returns the new variable."""

else:
    VariableSlice = jax.Array

# Positions.


def _as_positions(variable: Variable, indices: object) -> row_positions.Positions:
    """Returns positions, each along the last axis of an array."""
    where = row_positions.as_array(indices)
    if not where.ndim or where.shape[-1] > len(variable.shape):
        raise errors.InvalidArgumentError(
            f"The last axis of indices must have from 0 to {len(variable.shape)} "
            f"elements, one for each axis of the variable '{variable.name}' that they "
            f"index; received indices of shape {where.shape}."
        )
    return row_positions.check(where, tuple(variable.shape)[: where.shape[-1]])


def gather_nd(variable: Any, indices: object) -> jax.Array:
    """Returns the elements or slices of a variable at some positions."""
    return _take(variable, _split_by_axis(_as_positions(variable, indices)))


def sparse_read(variable: Any, indices: object) -> jax.Array:
    """Returns the rows of a variable at some positions."""
    limits = variable.shape[:1]
    if not limits:
        raise errors.InvalidArgumentError(
            f"The variable '{variable.name}' is a scalar and has no rows to read."
        )
    where = row_positions.of_rows(indices, limits)
    if variable.state_cell.home is not None:
        return reading.read_rows(variable, where)
    return _take(variable, where)


def _take(variable: Variable, where: Any) -> jax.Array:
    # As TensorFlow on accelerators: zeros for what is out of range.
    whole: jax.Array = variable.value()
    return whole.at[where].get(mode="fill", fill_value=0, wrap_negative_indices=False)


def scatter_nd(variable: Any, kind: str, indices: object, updates: object) -> jax.Array:
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
    return scatter(variable, kind, flat, is_nd=True)


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
    sliced: VariableSlice = _attach(found, "assign", change)
    return sliced


def _assign_slice(
    variable: Variable, key: Any, value: object, name: str | None = None
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
    return _change(variable, lambda old: old.at[key].set(value), frame, is_own)


def _check_kind(variable: Variable, frame: ambient.Frame, is_own: bool) -> None:
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


def _check_slice(variable: Variable, key: Any, value: jax.Array) -> None:
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


def _attach(array: jax.Array, name: str, value: object) -> Any:
    """Returns an array with an attribute, which operations on the array do not keep.

    Args:
        array: an array that nobody else holds; or a tracer, whose twin is returned.
        name: the name of the attribute.
        value: its value.
    """
    if not isinstance(array, jax.core.Tracer):
        setattr(array, name, value)
        return array
    # A tracer has slots only. JAX tells tracers by what is in them, not by identity, so
    # a twin of a subclass with one more slot is the same value of the program.
    kind = type(array)
    twin: Any = object.__new__(_subclass(kind, name))
    for slot in _slots(kind):
        if hasattr(array, slot):
            setattr(twin, slot, getattr(array, slot))
    setattr(twin, name, value)
    return twin


@functools.cache
def _subclass(kind: type, slot: str) -> type:
    """Returns a class of tracers that has one more slot."""
    return type(kind)(kind.__name__, (kind,), {"__slots__": (slot,)})


@functools.cache
def _slots(kind: type) -> tuple[str, ...]:
    """Returns the names of all slots of a class of tracers."""
    found: list[str] = []
    for base in kind.__mro__:
        own = vars(base).get("__slots__", ())
        found += [own] if isinstance(own, str) else own
    return tuple(slot for slot in found if not slot.startswith("__"))


# Methods.

_Values = ArrayLike | StandsForArray | Sequence[object]


class VariableParts(ArrayOperators):
    """Reads and changes rows, elements and slices of a variable; abstract."""

    def __getitem__(self, key: Any) -> VariableSlice:
        return take_slice(self, key)

    def sparse_read(self, indices: _Values, name: str | None = None) -> jax.Array:
        """Returns the rows at some positions.

        Args:
            indices: the positions along the first axis.
            name: accepted, no effect.

        Raises:
            InvalidArgumentError: a known position is out of range. If a compiled step
                computes the position, such rows are zeros.

        >>> import unisono
        >>> unisono.Variable([1.0, 2.0, 4.0]).sparse_read([2, 0, 2]).tolist()
        [4.0, 1.0, 4.0]
        """
        return sparse_read(self, indices)

    def gather_nd(self, indices: _Values, name: str | None = None) -> jax.Array:
        """Returns the elements, or slices, at some positions.

        Args:
            indices: the positions; the last axis has an index for each of the first
                axes of the variable.
            name: accepted, no effect.

        Raises:
            InvalidArgumentError: as for `sparse_read`, or the last axis of `indices` is
                longer than the variable has axes.

        >>> import unisono
        >>> unisono.Variable([[1.0, 2.0], [3.0, 4.0]]).gather_nd(
        ...     [[0, 1], [1, 0]]
        ... ).tolist()
        [2.0, 3.0]
        """
        return gather_nd(self, indices)

    def scatter_add(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Adds to some rows; several rows with the same index are all added.

        Args:
            sparse_delta: the rows and their positions.
            **_: TensorFlow's `use_locking` and `name`, which have no effect.

        Returns:
            The new value, as the current context sees it.

        Raises:
            TypeError: `sparse_delta` is not an `IndexedSlices`.
            ValueError: the type of the rows does not fit the variable.
            NotImplementedError: the variable is sync-on-read.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_add(rows).tolist()
        [4.0, 2.0, 6.0]
        """
        return scatter(self, "add", sparse_delta)

    def scatter_sub(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Subtracts from some rows.

        Arguments, result and errors are the same as for `scatter_add`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_sub(rows).tolist()
        [-2.0, 2.0, 2.0]
        """
        return scatter(self, "sub", sparse_delta)

    def scatter_update(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replaces some rows.

        Arguments and result are the same as for `scatter_add`.

        Raises:
            NotImplementedError: the variable is sync-on-read, or its aggregation is SUM
                or MEAN.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_update(rows).tolist()
        [3.0, 2.0, 2.0]
        """
        return scatter(self, "update", sparse_delta)

    def scatter_min(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replaces some rows by the minimum of the old and the new one.

        Arguments, result and errors are the same as for `scatter_update`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_min(rows).tolist()
        [1.0, 2.0, 2.0]
        """
        return scatter(self, "min", sparse_delta)

    def scatter_max(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Replaces some rows by the maximum of the old and the new one.

        Arguments, result and errors are the same as for `scatter_update`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_max(rows).tolist()
        [3.0, 2.0, 4.0]
        """
        return scatter(self, "max", sparse_delta)

    def scatter_mul(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Multiplies some rows.

        Arguments, result and errors are the same as for `scatter_add`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_mul(rows).tolist()
        [3.0, 2.0, 8.0]
        """
        return scatter(self, "mul", sparse_delta)

    def scatter_div(self, sparse_delta: IndexedSlices, **_: object) -> jax.Array:
        """Divides some rows; integers are rounded towards zero.

        Arguments, result and errors are the same as for `scatter_add`.

        >>> import jax.numpy as jnp, unisono
        >>> rows = unisono.IndexedSlices(jnp.array([3.0, 2.0]), jnp.array([0, 2]))
        >>> unisono.Variable([1.0, 2.0, 4.0]).scatter_div(rows).tolist()
        [0.3333333432674408, 2.0, 2.0]
        """
        return scatter(self, "div", sparse_delta)

    def scatter_nd_add(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Adds to elements, or slices, at some positions.

        If a position occurs several times, all of its updates are applied. Distributed
        variables follow the rules of `scatter_add` and the similar methods.

        Args:
            indices: the positions; the last axis has an index for each of the first
                axes of the variable.
            updates: an element or slice for each position.
            name: accepted, no effect.

        Returns:
            The new value, as the current context sees it.

        Raises:
            InvalidArgumentError: the shapes do not fit each other, or a known position
                is out of range. If a compiled step computes the position, such updates
                are ignored.
            NotImplementedError: the variable is sync-on-read, or its aggregation does
                not allow it.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_add([[0], [2]], [2.0, 2.0]).tolist()
        [3.0, 2.0, 6.0]
        """
        return scatter_nd(self, "add", indices, updates)

    def scatter_nd_sub(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Subtracts from elements, or slices, at some positions.

        Arguments, result and errors are the same as for `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_sub([[0], [2]], [2.0, 2.0]).tolist()
        [-1.0, 2.0, 2.0]
        """
        return scatter_nd(self, "sub", indices, updates)

    def scatter_nd_update(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Replaces elements, or slices, at some positions.

        Arguments, result and errors are the same as for `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_update([[0], [2]], [2.0, 2.0]).tolist()
        [2.0, 2.0, 2.0]
        """
        return scatter_nd(self, "update", indices, updates)

    def scatter_nd_max(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Replaces elements by the maximum of the old and the new one.

        Arguments, result and errors are the same as for `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_max([[0], [2]], [2.0, 2.0]).tolist()
        [2.0, 2.0, 4.0]
        """
        return scatter_nd(self, "max", indices, updates)

    def scatter_nd_min(
        self, indices: _Values, updates: _Values, name: str | None = None
    ) -> jax.Array:
        """Replaces elements by the minimum of the old and the new one.

        Arguments, result and errors are the same as for `scatter_nd_add`.

        >>> import unisono
        >>> v = unisono.Variable([1.0, 2.0, 4.0])
        >>> v.scatter_nd_min([[0], [2]], [2.0, 2.0]).tolist()
        [1.0, 2.0, 2.0]
        """
        return scatter_nd(self, "min", indices, updates)


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


def _split_by_axis(positions: Any) -> tuple[Any, ...]:
    """Returns the indices of each axis, from positions along the last axis."""
    return tuple(positions[..., i] for i in range(positions.shape[-1]))


def _apply(kind: str, old: jax.Array, sparse: IndexedSlices, is_nd: bool) -> jax.Array:
    """Returns an array with some rows, or elements, changed."""
    rows: Any = sparse.values
    if kind == "div" and jnp.issubdtype(old.dtype, jnp.integer):
        return _divide(old, sparse.indices, rows)
    where = _split_by_axis(sparse.indices) if is_nd else sparse.indices
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
    # program, which `_change` makes.
    if cell.home is not None and not is_nd:
        return _scatter_on_server(cell, kind, sparse)
    is_own = storage.sees_copy(variable.state_cell, frame)
    if distributed and is_own and frame.mode != ambient.UPDATE:
        return _scatter_aggregated(variable, kind, sparse, frame, is_nd)
    return _change(
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


def _change(
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
        with assignment.lock_of(cell):
            target.begin_change(cell)
            old = collectives.place(target.copy(cell, None), device)
            target.set_whole(cell, _apply(kind, old, merged, is_nd))
        return assignment.copies_of(cell)

    met: jax.Array = port.meet(combine, jax.tree.map(frames.strip_gradient, sparse))
    return met
