"""Reads variables by (synchronization × aggregation × context).

A replica sees its own copy, other code the value that all copies have or the aggregate
of the replicas' values. See docs/decisions/0003.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import ReduceOp, VariableAggregation
from unisono._src.state import frames, mirroring, remote_state, rows, storage
from unisono._src.state.storage import Policy
from unisono._src.values import collectives, jax_tapes, part_exchange, ports
from unisono._src.workers import eager_exchange

if TYPE_CHECKING:
    from unisono._src.state.variables import Variable


def read(variable: Variable) -> jax.Array:
    """Returns the value as the running context sees it.

    A replica sees its copy; other code sees the value of a mirrored variable, or the
    aggregate of a sync-on-read variable.
    """
    cell = variable.state_cell
    frame = storage.check_strategy(cell)
    if frame.tape is not None:
        return _read_for_tape(variable, frame.tape)
    # The cases, from special to general: a cached read, one component, one array, the
    # running replica's copy, the aggregate, and a copy that stands for all.
    source: frames.StateFrame = frame.state or frames.EAGER
    if frame.servers.reads is not None and cell.home is not None:
        return remote_state.read_once(cell, source, frame.servers.reads)  # type: ignore[no-any-return]
    if variable.replica_index is not None and cell.policy is not Policy.CENTRAL:
        if cell.is_stacked:
            check_component(variable, frame)
        return source.copy(cell, variable.replica_index)
    if cell.policy is Policy.PLAIN:
        return source.whole(cell)
    if storage.sees_copy(cell, frame):
        # An update in a program must give one value for all copies of a variable, and
        # what is read here differs between replicas.
        if cell.is_stacked and frame.updating is not None:
            raise errors.diverging_copies_error(
                frame.updating.name, frame.updating.origin
            )
        return source.copy(cell, frame.copy)
    if cell.policy is Policy.ON_READ:
        return _aggregate(variable, frame, source)
    is_shared = cell.is_replicated or cell.split is not None
    if is_shared and frame.state is None:
        # Copies that replicas wrote in turn are compared when somebody wants the one
        # value, because only then all of them have written.
        mirroring.verify(cell)
        return source.copy(cell, None)
    return source.whole(cell)


def _read_for_tape(variable: Variable, tape: jax_tapes.Recording) -> jax.Array:
    """Returns the value so that the open gradient tapes follow it."""
    # The tapes around this one follow the value first; each adds a tangent of its own.
    with ambient.push(tape=tape.outer):
        value = read(variable)
    return tape.follow(variable.state_cell, value, variable, variable.trainable)


def read_rows(variable: Variable, where: object) -> jax.Array:
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


def _read_rows_for_tape(
    variable: Variable, where: object, tape: jax_tapes.Recording
) -> jax.Array:
    """Returns rows so that the open gradient tapes follow them."""
    with ambient.push(tape=tape.outer):
        found = read_rows(variable, where)
    if variable.state_cell.home is None:
        return rows.take(read(variable), rows.as_positions(where))
    return tape.follow_rows(found, [(variable.state_cell, where, variable)])


def read_stored(variable: Variable) -> jax.Array:
    """Returns the value in cross-replica context without gathering it on a device.

    The array of a variable that is cut over the devices stays cut; other workers may
    have parts of it.
    """
    cell = variable.state_cell
    if cell.split is None or variable.replica_index is not None:
        return read(variable)
    mirroring.verify(cell)
    return frames.EAGER.whole(cell)


def read_on_host(variable: Variable) -> np.ndarray:
    """Returns a new NumPy array of the value.

    A variable that is cut over the devices is put together on the host.
    """
    cell = variable.state_cell
    frame = storage.check_strategy(cell)
    is_part = variable.replica_index is not None or storage.sees_copy(cell, frame)
    if cell.split is None or frame.state is not None or is_part:
        return np.array(read(variable), copy=True)
    if not cell.is_spread:
        return np.array(read_stored(variable), copy=True)
    mirroring.verify(cell)
    array = frames.EAGER.whole(cell)
    if cell.is_apart:
        parts = part_exchange.gather(array, cell.split, cell.topology, cell.name)
    else:
        parts = [
            p for _, p in sorted(part_exchange.own_parts(array, cell.split).items())
        ]
    return np.concatenate([np.asarray(p) for p in parts], cell.split.axis)


def has_part(variable: Variable) -> bool:
    """Whether a worker has parts of a variable only, and the code is in no program."""
    cell = variable.state_cell
    is_cut = cell.split is not None and cell.split.is_over_replicas
    return is_cut and cell.is_spread and not frames.frame().is_compiled


def name_part(variable: Variable) -> str:
    """Returns for people which part of a variable `local_part` is.

    Where a variable is shown, other workers are not asked for theirs: a debugger shows
    variables of one worker alone.
    """
    cell, index = variable.state_cell, variable.replica_index
    number = (cell.topology.first if index is None else index) % cell.split.parts
    return f"part {number} of {cell.split.parts} along axis {cell.split.axis}"


def read_own_parts(variable: Variable) -> tuple[jax.Array, ...]:
    """Returns what the replicas of this process have of a variable's value.

    Other workers are not asked. The value of a variable that is not cut is whole.

    Raises:
        RuntimeError: the code is in a function, which runs for the replicas of all
            workers.
    """
    cell = variable.state_cell
    if frames.frame().is_compiled:
        raise RuntimeError(
            f"The part of the variable '{cell.name}' that is on this worker was asked "
            "for in a function, which is one program for all workers. Ask for it "
            "outside functions."
        )
    if cell.split is None or not cell.split.is_over_replicas:
        return (frames.EAGER.copy(cell, None),)
    pieces = collectives.shards(frames.EAGER.whole(cell), cell.topology)
    return tuple(collectives.release(p) for p in pieces)


def _aggregate(
    variable: Variable, frame: ambient.Frame, source: frames.StateFrame
) -> jax.Array:
    """Returns the aggregate of a sync-on-read variable's values."""
    cell = variable.state_cell
    aggregation = variable.state_cell.aggregation
    if aggregation is VariableAggregation.ONLY_FIRST_REPLICA:
        if frame.port is not None and frame.port.is_spmd:
            # A collective even here: the other replicas must learn what the first one
            # has.
            return collectives.pick_local(source.copy(cell, None), 0)
        if frame.state is None and cell.is_spread:
            point = f"reading of variable '{cell.name}'"
            first: jax.Array = eager_exchange.broadcast_first(
                cell.topology, point, source.copy(cell, None)
            )
            return first
        return source.copy(cell, 0)
    op = ReduceOp.from_variable_aggregation(aggregation)
    if cell.copies == 1:
        return source.copy(cell, 0)
    whole: jax.Array
    if frame.port is not None and frame.port.is_spmd:
        whole = collectives.reduce_local(op, source.copy(cell, None), cell.copies)
    elif frame.state is None:
        topology = cell.topology
        parts = [source.copy(cell, i) for i in topology.local]
        point = f"reading of variable '{cell.name}'"
        parts = collectives.all_parts(parts, topology, point)
        whole = collectives.reduce_parts(op, parts, topology.home)
    else:
        # In a program outside replicas: the rows are on the replicas' devices, so they
        # are reduced by the collective that replicas use.
        whole = collectives.reduce_stacked(op, source.whole(cell), cell.topology)
    return whole


def check_component(variable: Variable, frame: ambient.Frame) -> None:
    """Raises `NeedsLockstep` if an SPMD program cannot reach a component.

    Such a program has the running replica's copy only. In an update it is the one that
    the function was given.
    """
    is_spmd = frame.port is not None and frame.port.is_spmd
    if variable.replica_index is not None and is_spmd and frame.mode == ambient.REPLICA:
        raise ports.NeedsLockstep(
            f"A replica uses the component '{variable.name}' of a variable by itself."
        )


def common_value(cell: storage.Cell, source: frames.StateFrame) -> jax.Array:
    """Returns the value of a cell that is not per replica, to compute with.

    Eagerly, with other workers, it is this worker's copy: a computation with the whole
    array would be a program that all workers must run.

    Raises:
        ValueError: the copies differ, so that there is no such value.
    """
    if source.is_compiled:
        return source.whole(cell)
    mirroring.verify(cell)
    return source.copy(cell, None) if cell.is_spread else source.whole(cell)
