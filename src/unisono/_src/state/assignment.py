"""Assigns variables by (synchronization × aggregation × context).

There is one function per context: plain variables, a copy inside `update`, replica
context, cross-replica context. Nothing here knows which executor runs the replicas;
they exchange values through a port. See docs/decisions/0003.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import ReduceOp, VariableAggregation
from unisono._src.machines import partition
from unisono._src.machines.topology import AXIS
from unisono._src.state import (
    aggregation,
    conversion,
    frames,
    holding,
    mirroring,
    reading,
    remote_state,
    storage,
    trace_versions,
)
from unisono._src.state.storage import Policy
from unisono._src.values import (
    collectives,
    distributed,
    jax_tapes,
    jax_traces,
    part_exchange,
    ports,
)
from unisono._src.values.array_operators import operand
from unisono._src.workers import eager_exchange

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable

# What an assignment returns; across replicas a mirrored value.
_New: TypeAlias = jax.Array | distributed.Mirrored | None

REPLACE, ADD, SUB = "assign", "assign_add", "assign_sub"


def _apply(op: str, old: jax.Array | Any, value: jax.Array) -> jax.Array:
    """Returns the value after an assignment."""
    if op == REPLACE:
        return value
    return old + value if op == ADD else old - value


def assign(variable: Variable, op: str, value: object, read_value: bool) -> _New:
    """Assigns `value` by the rules of the running context.

    Args:
        variable: the variable.
        op: REPLACE, ADD or SUB.
        value: the new value, or the number to add or subtract.
        read_value: whether to return the new value, not None.
    """
    cell = variable.state_cell
    # The cases, from special to general: a server has the variable; it is one array, or
    # one copy is meant; the code is outside replicas; the running code owns its copy;
    # replicas write one variable together.
    frame = storage.check_strategy(cell)
    if cell.home is not None:
        result = _write_on_server(cell, op, value, read_value)
    elif cell.policy is Policy.PLAIN or variable.replica_index is not None:
        result = _write_one(variable, op, value, frame)
    elif not storage.sees_copy(cell, frame):
        result = _write_cross(variable, op, value, frame, read_value)
    elif frame.mode == ambient.UPDATE or cell.policy is Policy.ON_READ:
        result = _write_copy(cell, op, convert(cell, value), frame.copy)
    else:
        result = write_aggregated(variable, op, value, frame)
    if frame.tape is not None and isinstance(result, jax.Array):
        # What follows is computed from the variable, and so is its gradient.
        return reading.read(variable) if read_value else None
    return result if read_value else None


def _write_on_server(
    cell: storage.Cell, op: str, value: object, read_value: bool
) -> _New:
    """Lets a parameter server assign to a variable that it keeps."""
    target, delta = frames.frame(), convert(cell, value)
    target.change(
        remote_state.Change((cell,), op, (delta,)),
        lambda: [_apply(op, target.whole(cell) if op != REPLACE else None, delta)],
    )
    return target.whole(cell) if read_value else None


def write_own(variable: Variable, op: str, value: object) -> None:
    """Writes the running replica's copy of a mirrored variable, without aggregation.

    All replicas must write the same. An SPMD program raises unless this can be proved
    (docs/decisions/0006); copies that are written in turn are compared when the
    variable is next read across replicas.
    """
    cell = variable.state_cell
    _write_copy(cell, op, convert(cell, value), ambient.current().copy)


def convert(cell: storage.Cell, value: object) -> jax.Array:
    """Returns `value` as an array of the cell's shape and type.

    Raises:
        TypeError: a Python number, or one in a list, is of a kind that the variable
            cannot hold, such as a float for an integer variable.
        ValueError: an array is of such a kind, or the shape differs.
    """
    value = conversion.as_type(value, cell.dtype, cell.name)
    if value.shape != cell.shape:
        raise ValueError(
            # TensorFlow's text, with its spaces.
            f"Cannot assign value to variable ' {cell.name}:0': Shape mismatch.The "
            f"variable shape {cell.shape}, and the assigned value shape {value.shape} "
            "are incompatible. A variable keeps the shape of its first value, also if "
            "it was made with an open `shape`; make another variable."
        )
    return frames.strip_gradient(value)


def _write_one(
    variable: Variable, op: str, value: object, frame: ambient.Frame
) -> _New:
    """Writes a variable that is one array, or one component of a variable."""
    cell = variable.state_cell
    if cell.policy is Policy.PLAIN and frame.port is not None and frame.port.is_spmd:
        raise lockstep_signal(cell)
    reading.check_component(variable, frame)
    if cell.policy is Policy.PLAIN:
        value = _move_to_cell(cell, value, frame)
    return _write_copy(cell, op, convert(cell, value), variable.replica_index)


def _write_copy(
    cell: storage.Cell, op: str, value: jax.Array, index: int | None
) -> jax.Array:
    """Writes one replica's copy of a cell, and returns its new value."""
    if op != REPLACE:
        return change_copy(cell, index, lambda old: _apply(op, old, value))
    frames.frame().set_copy(cell, index, value)
    return value


def lock_of(cell: storage.Cell) -> AbstractContextManager[object]:
    """Returns the lock to hold while a cell is read and changed.

    There is none if reading is a meeting of workers, who are waited for.
    """
    return contextlib.nullcontext() if cell.is_apart else storage.LOCK


def change_copy(
    cell: storage.Cell, index: int | None, fn: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Replaces one replica's copy of a cell by a function of it, and returns that.

    Args:
        cell: the cell.
        index: the replica; None for the first one of this process.
        fn: the function. It must not wait for anything.
    """
    target = frames.frame()
    # Under the lock, so that nothing is lost which other threads store.
    with lock_of(cell):
        target.begin_change(cell)
        new = fn(target.copy(cell, index))
        target.set_copy(cell, index, new)
    return new


def change_whole(
    cell: storage.Cell, fn: Callable[[jax.Array], jax.Array], among_workers: bool
) -> None:
    """Replaces the value of a cell that is not per replica by a function of it.

    Args:
        cell: the cell.
        fn: the function. It must not wait for anything.
        among_workers: whether all workers must find the same value.

    Raises:
        ValueError: workers have found different values.
    """
    target = frames.frame()
    seen: jax.Array | None = None
    new: jax.Array | Any = None
    if among_workers:
        # Other workers are waited for without the lock.
        mirroring.settle([cell])
        seen = cell.array
        new = fn(reading.common_value(cell, target))
        check_workers(cell, new)
    with storage.LOCK:
        target.begin_change(cell)
        # Another thread may have changed the value while the workers met.
        if seen is not None and cell.array is not seen and cell.is_apart:
            raise RuntimeError(
                f"Another thread has changed the variable '{cell.name}' (created at "
                f"{cell.origin}) while the workers computed its new value together. "
                "Change a variable that workers have in parts from one thread."
            )
        if seen is None or cell.array is not seen:
            new = fn(reading.common_value(cell, target))
        target.set_whole(cell, new)


def lockstep_signal(cell: storage.Cell) -> ports.NeedsLockstep:
    """Returns the signal for a plain variable that every replica writes in turn."""
    return ports.NeedsLockstep(
        f"The variable '{cell.name}' (created at {cell.origin}, outside the strategy's "
        "scope) is written by every replica in turn."
    )


def check_workers(cell: storage.Cell, new: jax.Array) -> None:
    """Raises `ValueError` unless all workers assign the same; they must all call it."""
    if not mirroring.is_same_on_workers(cell, new):
        raise errors.diverging_copies_error(cell.name, cell.origin)


def _write_cross(
    variable: Variable,
    op: str,
    value: object,
    frame: ambient.Frame,
    read_value: bool,
    is_combined: bool = False,
) -> _New:
    """Assigns in cross-replica context.

    Args:
        variable: the variable.
        op: REPLACE, ADD or SUB.
        value: the value to assign.
        frame: the running context.
        read_value: whether to return the new value.
        is_combined: whether all workers are known to have the same `value`.
    """
    cell = variable.state_cell
    if cell.policy is Policy.ON_READ:
        return _write_cross_on_read(variable, op, value, frame, read_value)
    if isinstance(value, distributed.PerReplica) and cell.copies > 1:
        raise ValueError(
            f"Cannot assign a PerReplica value to the mirrored variable '{cell.name}' "
            f"(created at {cell.origin}) in cross-replica context: its copies would "
            "differ. Reduce the value first, or assign in replica context with an "
            "aggregation."
        )
    value = _read_without_aggregation(value)
    target = frames.frame()
    if cell.split is not None and cell.is_spread and frame.state is None:
        return _write_cut(cell, op, value, read_value, is_combined)
    if isinstance(value, distributed.Mirrored):
        value = value.values[0] if cell.is_spread else value.whole
    # JAX does not add arrays of different devices, so the value moves to the cell's.
    delta = convert(cell, _move_to_cell(cell, value, frame))
    # Workers may have computed different values. An aggregate is the same for all.
    among_workers = cell.is_spread and frame.state is None and not is_combined
    if op != REPLACE:
        change_whole(cell, lambda old: _apply(op, old, delta), among_workers)
    else:
        if among_workers:
            check_workers(cell, delta)
        target.set_whole(cell, delta)
    if not read_value:
        return None
    # TensorFlow returns a mirrored value from an assignment across replicas.
    if cell.policy is Policy.MIRRORED and cell.copies > 1:
        return distributed.Mirrored.of(target.whole(cell), cell.copies)
    return target.whole(cell)


def _write_cut(
    cell: storage.Cell, op: str, value: object, read_value: bool, is_combined: bool
) -> _New:
    """Assigns eagerly, across replicas, a variable that workers have in parts.

    Takes the same as `_write_cross`. Workers compare the whole value, and each stores
    its parts of it.
    """
    target, value = frames.frame(), operand(value)
    if isinstance(value, distributed.Mirrored):
        value = value.values[0]
    is_like = getattr(value, "shape", None) == cell.shape
    if isinstance(value, np.ndarray) and is_like and value.dtype == cell.dtype:
        # From the host, so that no device holds a large value whole.
        new: jax.Array | np.ndarray = np.array(value)
    else:
        new = convert(cell, _move_to_cell(cell, value, ambient.current()))
    if op != REPLACE:
        new = _apply(op, reading.common_value(cell, target), jnp.asarray(new))
    if not is_combined:
        # Not `check_workers`: it takes arrays of JAX only.
        point = f"assignment of variable '{cell.name}'"
        if not eager_exchange.is_same(cell.topology, point, new):
            raise errors.diverging_copies_error(cell.name, cell.origin)
    target.set_whole(cell, part_exchange.cut(new, cell.sharding))
    if not read_value:
        return None
    whole = collectives.release(jnp.asarray(new))
    return distributed.Mirrored([whole] * cell.topology.copies, cell.topology)


def _read_without_aggregation(value: object) -> object:
    """Returns the first copy of a sync-on-read variable; any other value as it is.

    TensorFlow does not aggregate a variable that is assigned to another one.
    """
    cell = getattr(value, "state_cell", None)
    if cell is not None and cell.policy is Policy.ON_READ:
        return frames.frame().copy(cell, None)
    return value


def _move_to_cell(cell: storage.Cell, value: object, frame: ambient.Frame) -> object:
    """Returns an eager value on the devices of the cell, to compute with its array."""
    if frame.state is not None or cell.sharding is None:
        return value
    value = operand(value)
    if isinstance(value, jax.core.Tracer):
        value = jax_tapes.lower(value)
    # Part by part from the host, so that no device holds a large value whole.
    if cell.split is not None and not cell.is_spread and isinstance(value, np.ndarray):
        is_like = value.shape == cell.shape and value.dtype == cell.dtype
        return partition.put(value, cell.sharding) if is_like else value
    if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
        return value
    if cell.is_spread:
        # Each worker computes with its own copy; see `reading.common_value`.
        return collectives.move_committed(
            collectives.own_copy(value), cell.topology.home
        )
    return value if cell.is_stacked else jax.device_put(value, cell.sharding)


def _write_cross_on_read(
    variable: Variable, op: str, value: object, frame: ambient.Frame, read_value: bool
) -> _New:
    """Assigns one value to all replicas of a sync-on-read variable."""
    cell = variable.state_cell
    if op != REPLACE:
        raise ValueError(
            f"SyncOnReadVariable does not support `{op}` in cross-replica context when "
            "aggregation is set to `tf.VariableAggregation."
            f"{variable.state_cell.aggregation.name}`. Call it in replica context, "
            "through strategy.run, or use `assign`."
        )
    if isinstance(value, distributed.PerReplica):
        raise AttributeError(
            "'PerReplica' object has no attribute 'dtype': a SyncOnReadVariable takes "
            "a single value in cross-replica context; reduce the value first."
        )
    new = convert(cell, value)
    target = frames.frame()
    if cell.is_stacked and not (frame.port is not None and frame.port.is_spmd):
        target.set_whole(cell, make_copies(cell, new))
    else:
        first, others = _divide(cell, new)
        if first is not others:
            first = jnp.where(jax.lax.axis_index(AXIS) == 0, first, others)
        target.set_copy(cell, None, first)
    return reading.read(variable) if read_value else None


def make_copies(cell: storage.Cell, value: jax.Array) -> jax.Array:
    """Returns the values of all replicas that a sync-on-read variable reads as one.

    Args:
        cell: the cell of the variable; it is stacked.
        value: the value to read.
    """
    first, others = _divide(cell, value)
    copies = jnp.broadcast_to(others, cell.stored_shape)
    return copies if first is others else copies.at[0].set(first)


def _divide(cell: storage.Cell, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the values of the first and of every other copy that read as `value`."""
    if cell.aggregation is not VariableAggregation.SUM or cell.copies == 1:
        return value, value
    if not jnp.issubdtype(cell.dtype, jnp.integer):
        share = (value / cell.copies).astype(cell.dtype)
        return share, share
    # Not by way of floating-point numbers, which are not exact. TensorFlow drops the
    # remainder; here the first copy has it, so that reading gives the value again.
    if cell.copies > jnp.iinfo(cell.dtype).max:  # type: ignore[no-untyped-call]
        return value, jnp.zeros_like(value)
    share = jax.lax.div(value, jnp.full_like(value, cell.copies))
    return value - share * (cell.copies - 1), share


# Replica context, aggregating.


def write_aggregated(
    variable: Variable, op: str, value: object, frame: ambient.Frame
) -> _New:
    """Assigns the aggregate of the values that the replicas give.

    Raises:
        ValueError: the variable has no aggregation.
    """
    cell = variable.state_cell
    if cell.aggregation is VariableAggregation.NONE:
        message = (
            "You must specify an aggregation method to update a "
            f"{type(variable).__name__} in Replica Context. You can do so by passing "
            "an explicit value for argument `aggregation` to tf.Variable(..), e.g. "
            "`tf.Variable(..., aggregation=tf.VariableAggregation.SUM)`. The variable "
            f"'{cell.name}' was created at {cell.origin}."
        )
        raise errors.add_section(ValueError(message), "No aggregation method")
    port = frame.port
    if port is None or port.is_alone:
        return _write_copy(cell, op, convert(cell, value), frame.copy)
    if port.is_spmd:
        combined = aggregation.combine_spmd(variable, value, port)
        return _write_copy(cell, op, convert(cell, combined), None)

    def combine(payloads: list[Any]) -> Sequence[Any]:
        if frame.state is None and cell.is_replicated and not cell.is_spread:
            new = _write_at_once(variable, op, payloads)
            if new is not None:
                return new
        # The general way: combine, then assign as cross-replica code does.
        combined = aggregation.combine_parts(variable, payloads)
        # Not `frame`: this runs once, in the cross-replica context of the merge.
        outer = ambient.current()
        _write_cross(variable, op, combined, outer, False, is_combined=True)
        return copies_of(cell)

    # A short question first: replicas that run eagerly give plain arrays or numbers.
    is_plain = isinstance(value, (jax.Array, int, float)) and not isinstance(
        value, jax.core.Tracer
    )
    payload = value if is_plain else aggregation.make_payload(value)
    new: jax.Array = port.meet(combine, payload)
    if frame.state is not None:
        # The write went through the frame around the replica; this one may overlay it.
        frame.state.note_assignment(cell, new)
    return new


_SIGNS = {REPLACE: 0, ADD: 1, SUB: -1}


def _write_at_once(
    variable: Variable, op: str, payloads: Sequence[Any]
) -> Sequence[Any] | None:
    """Combines the payloads and stores the result, if all are plain arrays.

    So does one number of Python's that all replicas give.

    It computes on one device and copies the result to the others, because a program on
    several devices takes as long to start as all of this.

    Returns:
        The new value on each replica. None, and nothing is stored, if the assignment
        needs the general rules.
    """
    cell = variable.state_cell
    is_mean = cell.aggregation is VariableAggregation.MEAN
    is_first = cell.aggregation is VariableAggregation.ONLY_FIRST_REPLICA
    if not jax_traces.is_clean():
        return None
    if is_first or all(map(operator.is_, payloads, payloads[1:])):
        if not is_mean and not is_first:
            # One object from all replicas cannot be summed: the general rules raise.
            return None
        payloads = payloads[:1]
    with storage.LOCK:
        if cell.holder is not None:
            holding.wait_to_change(cell)
        # A cell whose copies may differ must be compared before the first one is read.
        if cell.is_suspect:
            return None
        storage.check_has_value(cell)
        topology = cell.topology
        new = collectives.update_at_once(
            _SIGNS[op],
            ReduceOp.MEAN if is_mean else ReduceOp.SUM,
            collectives.shards(cell.array, topology)[0],
            payloads,
            topology.home,
        )
        return None if new is None else cell.store_copies(new)


def copies_of(cell: storage.Cell) -> list[Any]:
    """Returns each replica's value of a cell, as an object of its own."""
    source = frames.frame()
    if source.is_compiled:
        return collectives.hand_out(source.copy(cell, 0), [None] * cell.copies)
    if cell.is_apart:
        # Once: all workers must meet as often, whatever the numbers of their replicas.
        whole = source.copy(cell, None)
        return collectives.hand_out(whole, cell.topology.local_devices)
    return [source.copy(cell, i) for i in cell.topology.local]


# Reading and replacing in one go.


def draw(variable: Variable, fn: Callable[[jax.Array], jax.Array]) -> jax.Array:
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
    (old,) = cell.home.group.read([cell], {cell: [change]})
    return old


def _is_done_alone(cell: storage.Cell) -> bool:
    """Whether a cell is read and assigned without a meeting of replicas or workers.

    They are never waited for with the lock of all cells.
    """
    frame = ambient.current()
    if frame.mode == ambient.UPDATE or cell.policy is Policy.PLAIN:
        return True
    is_local = storage.sees_copy(cell, frame) or not cell.is_spread
    return cell.policy is Policy.ON_READ and is_local
