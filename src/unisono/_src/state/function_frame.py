"""The state frame of a program that is being traced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, errors
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, rows as rows_lib, storage, trace_versions
from unisono._src.state.remote_state import Change
from unisono._src.state.storage import Cell
from unisono._src.values import jax_traces, row_positions


@final
class FunctionFrame(frames.StateFrame):
    """Reads and writes cells in a program being traced, outside replicas.

    Args:
        cells: the cells that are inputs of the program.
        tracers: one per cell.
        found: the versions of the program.

    Attributes:
        values: the value of each cell now.
        inputs: the value of each cell at the start.
        written: the cells that were written, in that order.
        created: the first value of each cell that the program makes.
        topology: the replicas whose devices the program runs on, once known.
        is_late: whether a cell was read that is not among the inputs.
        feeds: the input that the program takes from datasets, if any.
        pending: for each mirrored cell of which not all copies were written, the new
            value of each replica.
        changes: what servers are to do with the cells that they keep, in order.
        alike: a cell, with the values of its first copy and of another one, for each
            copy that was written by itself; the program must prove that they are equal.
    """

    is_compiled = True

    def __init__(
        self,
        cells: Sequence[Cell],
        tracers: Sequence[jax.Array],
        found: trace_versions.Versions = trace_versions.NONE,
    ) -> None:
        self.versions = found
        self.values: dict[Cell, jax.Array] = dict(zip(cells, tracers, strict=True))
        self.inputs = dict(self.values)
        self.written: dict[Cell, None] = {}
        self.created: dict[Cell, jax.Array] = {}
        self.topology: Topology | None = None
        self.is_late = False
        self.feeds: Any = None
        self.pending: dict[Cell, dict[int, jax.Array]] = {}
        self.changes: list[Change] = []
        self.alike: list[tuple[Cell, Any, Any]] = []
        # A value that is made here knows the trace of the program.
        self.traces = (jax_traces.trace_of(jnp.zeros(())),)

    def whole(self, cell: Cell) -> jax.Array:
        """Returns the array that the cell stores."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        if cell in self.pending:
            raise errors.diverging_copies_error(cell.name, cell.origin)
        if cell not in self.values:
            # Made by another thread, or by code that ran outside this trace. In this
            # trace it is a constant; `is_late` asks for a new one with it as an input.
            storage.check_has_value(cell)
            self.values[cell] = storage.stored_array(cell)
            self.is_late = True
        return self.values[cell]

    def copy(self, cell: Cell, index: int | None) -> jax.Array:
        """Returns the value that replica `index` sees."""
        written = self.pending.get(cell, {})
        if index in written:
            return written[index]
        # Not `whole` while copies are pending: it raises, and this replica has not
        # written.
        whole = self.values[cell] if written else self.whole(cell)
        if cell.is_stacked:
            return whole[index or 0]
        # Each of the replicas that take turns gets an object of its own: one object for
        # all would count as one value, not as one per replica.
        return jnp.copy(whole) if index else whole

    def set_whole(self, cell: Cell, value: jax.Array) -> None:
        """Replaces the array that the cell stores."""
        frames.check_level(cell, value, self.traces)
        if cell.home is not None and cell not in self.created:
            self.change(Change((cell,), "assign", (value,)), lambda: [value])
            return
        self.versions.advance()
        self.values[cell] = value
        self.written[cell] = None

    def rows(self, cell: Cell, rows: row_positions.Positions) -> jax.Array:
        """Returns some rows, which are fetched when the program runs."""
        # After a change in this program the rows on the server are not the newest.
        is_changed = self.values.get(cell) is not self.inputs.get(cell)
        found: jax.Array
        if cell.home is None or is_changed:
            found = rows_lib.take(self.whole(cell), rows)
            return found
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        # An operation that stands for the rows; `server_lookups` cuts the program
        # there.
        found = rows_lib.lookup_p.bind(jnp.asarray(rows), cell=cell)
        return found

    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Notes what servers are to do; later reads see the new values."""
        for operand in change.operands:
            frames.check_operand(change.cells[0], operand, self.traces)
        # Before the change is noted: `compute` reads the values that it replaces.
        new = compute()
        self.versions.advance()
        self.changes.append(change)
        self.values.update(zip(change.cells, new, strict=True))

    def set_copy(self, cell: Cell, index: int | None, value: jax.Array) -> None:
        """Replaces the value that replica `index` sees."""
        if cell.is_stacked:
            value = self.whole(cell).at[index or 0].set(value)
        elif cell.is_replicated or cell.split is not None:
            # The program has one value for all copies; it is replaced when all of them
            # have been written. `update` settles by itself at its end.
            frames.check_level(cell, value, self.traces)
            self.pending.setdefault(cell, {})[index or 0] = value
            if ambient.current().updating is not cell:
                self.settle(cell)
            return
        self.set_whole(cell, value)

    def settle(self, cell: Cell) -> None:
        """Stores the copies of a cell that were updated one by one, if all were."""
        if len(self.pending.get(cell, ())) < cell.copies:
            return
        # The value of replica 0 stands for all. Whether the others are the same is
        # found from the program when it is complete.
        written = self.pending.pop(cell)
        first = written.pop(0)
        self.alike += [(cell, first, x) for x in written.values() if x is not first]
        self.set_whole(cell, first)

    def finish(self) -> None:
        """Raises if some copies of a mirrored variable were written and others not."""
        for cell in self.pending:
            raise errors.diverging_copies_error(cell.name, cell.origin)

    def create(self, cell: Cell, value: jax.Array) -> None:
        """Remembers the first value, which is stored when the program has run."""
        value = jnp.asarray(value)
        frames.check_level(cell, value, self.traces)
        if cell.is_stacked:
            value = jnp.broadcast_to(value, cell.stored_shape)
        # Not in `written`: `materialize` stores it before the program runs.
        self.values[cell] = self.created[cell] = value

    def cells(self) -> Iterable[Cell]:
        """Returns all cells of the program so far."""
        return self.values

    def note_topology(self, topology: Topology) -> None:
        """Notes the devices that the program runs on."""
        self.topology = topology
