"""Frames, through which every read and write of a variable goes.

The eager frame uses the array that the variable's cell stores; the frame of a program
that is being made uses a tracer. `frame` returns the one that holds now. See
docs/decisions/0003.
"""

from __future__ import annotations

import abc
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, errors
from unisono._src.machines.topology import Topology
from unisono._src.state import (
    holding,
    remote_state,
    rows as rows_lib,
    storage,
    trace_versions,
)
from unisono._src.state.remote_state import Change
from unisono._src.state.storage import Cell, Policy
from unisono._src.values import collectives, jax_tapes, jax_traces, row_positions

_T = TypeVar("_T")


# Frames stand inside each other, and `ambient.Frame.state` is the innermost one.
# `EagerFrame` is outside all programs; `FunctionFrame` is that of a program outside
# replicas; `LocalFrame` is one replica of an SPMD program; `BranchFrame` is a branch or
# loop body; `GradientFrame` lies over any of them while a gradient is taken.
class StateFrame(abc.ABC):
    """Reads and writes cells; abstract.

    Attributes:
        traces: JAX's traces whose values may be written here, innermost first.
        is_compiled: whether a program is being made.
        has_worker_parts: whether that program differs between workers, by design.
        versions: the versions under which JAX caches bodies that read variables.
        program: the Python function that is being traced, if it is known.
        is_converted: whether the program is made by AutoGraph's functions.
        steps: how often each line of the program has taken a step so far.
        seeded: how many random operations with a seed the program has so far; the
            outermost frame counts for all.
    """

    traces: tuple[jax.core.Trace, ...] = ()
    is_compiled = has_worker_parts = is_converted = False
    versions = trace_versions.NONE
    program: Any = None
    seeded = 0
    steps: Mapping[Any, int] = types.MappingProxyType({})

    @abc.abstractmethod
    def whole(self, cell: Cell) -> jax.Array:
        """Returns the array that the cell stores."""

    @abc.abstractmethod
    def copy(self, cell: Cell, index: int | None) -> jax.Array:
        """Returns the value that replica `index` sees; None for the first one here."""

    @abc.abstractmethod
    def set_whole(self, cell: Cell, value: jax.Array) -> None:
        """Replaces the array that the cell stores."""

    @abc.abstractmethod
    def set_copy(self, cell: Cell, index: int | None, value: jax.Array) -> None:
        """Replaces the value that replica `index` sees; None for the first one here."""

    @abc.abstractmethod
    def create(self, cell: Cell, value: jax.Array) -> None:
        """Gives a new cell its first value, of the variable's own shape."""

    @abc.abstractmethod
    def rows(self, cell: Cell, rows: row_positions.Positions) -> jax.Array:
        """Returns some rows of the array that the cell stores."""

    @abc.abstractmethod
    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Changes cells that parameter servers keep.

        Args:
            change: what the servers do.
            compute: returns the new values, as far as they are known here.
        """

    def begin_change(self, cell: Cell) -> None:  # noqa: B027
        """Prepares a change that depends on the value; call it with the lock held."""

    def note_assignment(self, cell: Cell, value: jax.Array) -> None:  # noqa: B027
        """Notes a value that was written through another frame."""

    def settle(self, cell: Cell) -> None:  # noqa: B027
        """Stores the copies of a cell that were updated one by one, if all were."""

    def cells(self) -> Iterable[Cell]:
        """Returns the cells whose values this frame has."""
        raise NotImplementedError

    def note_topology(self, topology: Topology) -> None:
        """Notes the devices that the program runs on."""
        raise NotImplementedError


@final
class EagerFrame(StateFrame):
    """Reads and writes the cells' own arrays."""

    def whole(self, cell: Cell) -> jax.Array:
        """Returns the array that the cell stores; the caller may keep it."""
        # A short question first: nearly all reads are outside JAX's transformations.
        if not jax_traces.is_clean():
            trace_versions.check_reading((), self.versions, cell.name)
        if cell.home is not None:
            (found,) = cell.home.group.read([cell])
            return found
        if cell.drafts and cell.is_spread and not cell.settle():
            # Without the lock, because other workers are waited for.
            raise errors.diverging_copies_error(cell.name, cell.origin)
        with storage.LOCK:
            storage.check_has_value(cell)
            if cell.drafts and not cell.settle():
                raise errors.diverging_copies_error(cell.name, cell.origin)
            cell.escape()
            if cell.is_everywhere:
                # JAX lists the pieces now, before several threads have the array.
                collectives.shards(cell.array, cell.topology)
            return cell.array

    def copy(self, cell: Cell, index: int | None) -> jax.Array:
        """Returns the value that replica `index` sees, on that replica's device."""
        if cell.split is not None:
            trace_versions.check_reading((), self.versions, cell.name)
            if cell.is_apart:
                with storage.LOCK:
                    storage.check_has_value(cell)
                    # No step may donate the array while the others are waited for.
                    cell.escape()
                return collectives.release(cell.gather(index))
            with storage.LOCK:
                storage.check_has_value(cell)
                return collectives.release(cell.gather(index))
        array = self.whole(cell)
        if cell.is_stacked:
            here = cell.topology.position(index)
            piece = collectives.shards(array, cell.topology)[here]
            # Released, because code of a replica may combine it with arrays of other
            # devices.
            return collectives.release(piece.reshape(cell.shape))
        if cell.is_replicated:
            here = cell.topology.position(index)
            return collectives.release(collectives.shards(array, cell.topology)[here])
        if cell.policy is Policy.CENTRAL and cell.copies > 1:
            return collectives.place(array, cell.topology.devices[index or 0])
        return array

    def begin_change(self, cell: Cell) -> None:
        """Waits until no other thread holds the cell; the lock must be held."""
        if cell.holder is not None:
            holding.wait_to_change(cell)

    def set_whole(self, cell: Cell, value: jax.Array) -> None:
        """Replaces the array that the cell stores."""
        if cell.home is not None:
            storage.check_type(cell, value)
            self.change(Change((cell,), "assign", (value,)), lambda: [value])
            return
        # Not `check_level`: the cell looks at the type when it stores the array.
        check_operand(cell, value, ())
        with storage.LOCK:
            if cell.holder is not None:
                holding.wait_to_change(cell)
            cell.store(value)

    def set_copy(self, cell: Cell, index: int | None, value: jax.Array) -> None:
        """Replaces the copy on one replica's device; the others stay as they are."""
        if not cell.is_everywhere:
            self.set_whole(cell, value)
            return
        check_level(cell, value, ())
        with storage.LOCK:
            if cell.holder is not None:
                holding.wait_to_change(cell)
            _store_copy(cell, index, value)
            trace_versions.EAGER.note_change()
            cell.escape()

    def create(self, cell: Cell, value: jax.Array) -> None:
        """Stores the first value in all copies."""
        check_level(cell, value, ())
        cell.begin(value)

    def rows(self, cell: Cell, rows: row_positions.Positions) -> jax.Array:
        """Returns some rows; of a cell on a server, only these are fetched."""
        found: jax.Array
        if cell.home is None or isinstance(rows, jax.core.Tracer):
            found = rows_lib.take(self.whole(cell), rows)
        else:
            found = cell.home.group.read_rows(cell, rows)
        return found

    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Lets servers change cells, and waits until they have."""
        for operand in change.operands:
            check_operand(change.cells[0], operand, ())
        trace_versions.EAGER.note_change()
        remote_state.apply_all([change])


def _store_copy(cell: Cell, index: int | None, value: jax.Array) -> None:
    """Stores one replica's copy of a cell that every device has, or a part of it."""
    topology = cell.topology
    if cell.split is not None:
        # The parts on the devices are replaced by `settle`, if all drafts agree.
        cell.drafts[topology.first if index is None else index] = value
        cell.is_suspect = True
        return
    # A JAX array cannot change in part: take the pieces of all replicas, exchange one,
    # and make a new array of the same buffers.
    pieces = list(collectives.shards(cell.array, topology))
    here = topology.position(index)
    shape, device = pieces[here].shape, topology.local_devices[here]
    pieces[here] = jax.device_put(jnp.reshape(value, shape), device)
    cell.array = topology.assemble(cell.stored_shape, cell.sharding, pieces)
    # The other copies should follow; until a check they may differ.
    cell.is_suspect = cell.is_replicated


EAGER = EagerFrame()


def frame() -> StateFrame:
    """Returns the frame that reads and writes go through now."""
    return ambient.current().state or EAGER


def enclosing(source: StateFrame | None) -> Iterator[StateFrame]:
    """Yields a frame and those around it, from the inside out."""
    while source is not None:
        yield source
        source = getattr(source, "parent", None)


def outermost() -> StateFrame:
    """Returns the frame of the whole program, around those of replicas and bodies."""
    return list(enclosing(frame()))[-1]


def note_worker_parts() -> None:
    """Notes that the program being traced differs between workers, by design."""
    for source in enclosing(frame()):
        source.has_worker_parts = True


def has_value(cell: Cell) -> bool:
    """Whether a cell has a value: a stored one, or one that the program will store."""
    if cell.home is not None:
        return True
    if cell.array is not None:
        return not cell.array.is_deleted()
    return any(cell in getattr(f, "created", ()) for f in enclosing(frame()))


def peek(cell: Cell) -> jax.Array:
    """Returns the first copy, for callers that do not keep it.

    Unlike a read it does not count as an escape: the next step may donate the array.
    """
    source = frame()
    if cell.home is not None and not source.is_compiled:
        return storage.stored_array(cell)
    if source.is_compiled or cell.array is None:
        # A program being made may have assigned the cell already.
        return source.copy(cell, 0)
    if not (cell.is_stacked or cell.is_replicated):
        return cell.array
    with storage.LOCK:
        piece = collectives.shards(cell.array, cell.topology)[0]
    return collectives.release(piece.reshape(cell.shape))


def strip_gradient(value: _T) -> _T:
    """Returns `value` without its gradient; assigned values carry none."""
    if not isinstance(value, jax.core.Tracer):
        return value
    value = jax_tapes.lower(value)
    return jax.lax.stop_gradient(value) if isinstance(value, jax.core.Tracer) else value


def check_level(
    cell: Cell, value: jax.Array, traces: tuple[jax.core.Trace, ...]
) -> None:
    """Raises if an array must not be written to a cell.

    Args:
        cell: the cell that would be written.
        value: the new value.
        traces: the traces of the frame; none when eager.

    Raises:
        RuntimeError: the running code is in a body that JAX traces by itself, or
            `value` comes from one.
        ValueError: `value` is not of the type that the cell holds.
    """
    storage.check_type(cell, value)
    check_operand(cell, value, traces)


def check_operand(
    cell: Cell, value: jax.Array, traces: tuple[jax.core.Trace, ...]
) -> None:
    """Raises `RuntimeError` if an array must not be used to change a cell.

    Takes the same as `check_level`, but for the type of `value`.
    """
    # A short question first: nearly all writes are eager.
    if jax_traces.is_clean() and not isinstance(value, jax.core.Tracer):
        return
    where = jax_traces.base_trace()
    is_here = jax_traces.is_eager(where) or any(where is t for t in traces)
    if is_here and not isinstance(value, jax.core.Tracer):
        return
    if is_here and any(jax_traces.trace_of(value) is t for t in traces):
        return
    # The code, or the value, belongs to a trace that is not the program's own. JAX
    # would not let the value leave that trace, and would say so much later.
    body = "a function given to jax.lax.scan, cond, while_loop, jax.checkpoint or vmap"
    if not traces:
        body = f"{body}, or jax.jit itself (use unisono.function instead)"
    raise RuntimeError(
        f"The variable '{cell.name}' (created at {cell.origin}) was assigned inside "
        f"{body}. Its new value exists only in that body and would leak out of it. "
        "Return the value from the body and assign it afterwards."
    )
