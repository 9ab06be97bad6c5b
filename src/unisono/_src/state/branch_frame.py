"""The state frame of a branch or loop body that becomes a part of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, final

import jax

from unisono._src.machines.topology import Topology
from unisono._src.state import frames, replica_frame, rows as rows_lib, trace_versions
from unisono._src.state.remote_state import Change
from unisono._src.state.storage import Cell
from unisono._src.values import jax_traces, row_positions


class CreatedInBody(ValueError):
    """A variable was created inside a branch or loop body."""


@final
class BranchFrame(frames.StateFrame):
    """Reads and writes cells in a body that JAX traces by itself.

    Writes stay here: the code that made the body returns the new values from it and
    stores them in the frame around it.

    Args:
        parent: the frame of the code around the body.
        given: the values that cells have at the start, if they are inputs of the body.

    Attributes:
        values: the value of each cell that is an input or was written.
        written: the cells that were written, in that order.
        is_loop_body: whether AutoGraph has made it for a loop.
    """

    is_compiled = True
    is_loop_body = False

    def __init__(self, parent: frames.StateFrame, given: dict[Cell, jax.Array]) -> None:
        self.parent = parent
        self.values = dict(given)
        self.written: dict[Cell, None] = {}
        self.traces = (jax_traces.base_trace(), *parent.traces)
        self.versions = parent.versions
        # Whether a replica runs, which sees its copy as the whole of each cell. Its
        # frame may be around those of gradients and of other bodies.
        self._is_local = any(
            isinstance(f, replica_frame.LocalFrame) for f in frames.enclosing(parent)
        )

    def whole(self, cell: Cell) -> jax.Array:
        """Returns the array that the cell stores."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        if cell in self.values:
            return self.values[cell]
        # The body is made for one use, so JAX keeps no trace of it with this value.
        with jax_traces.enter(self.parent.traces[0]):
            return self.parent.whole(cell)

    def copy(self, cell: Cell, index: int | None) -> jax.Array:
        """Returns the value that replica `index` sees."""
        if cell in self.values or self._is_local:
            whole = self.whole(cell)
            is_row = cell.is_stacked and not self._is_local
            return whole[index or 0] if is_row else whole
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        # Read as code of the frame around the body, which does not know the body's
        # trace.
        with jax_traces.enter(self.parent.traces[0]):
            return self.parent.copy(cell, index)

    def set_whole(self, cell: Cell, value: jax.Array) -> None:
        """Replaces the array that the cell stores, in the body."""
        frames.check_level(cell, value, self.traces)
        self.versions.advance()
        self.values[cell] = value
        self.written[cell] = None

    def set_copy(self, cell: Cell, index: int | None, value: jax.Array) -> None:
        """Replaces the value that replica `index` sees, in the body.

        Raises:
            RuntimeError: replicas take turns, and would write one copy in the body.
        """
        if self._is_local or not cell.is_everywhere:
            self.set_whole(cell, value)
        elif cell.is_stacked:
            self.set_whole(cell, self.whole(cell).at[index or 0].set(value))
        else:
            raise RuntimeError(
                f"One copy of the mirrored variable '{cell.name}' (created at "
                f"{cell.origin}) was assigned inside a branch or loop body. Assign all "
                "copies there, or return the value and assign it afterwards."
            )

    def rows(self, cell: Cell, rows: row_positions.Positions) -> jax.Array:
        """Returns some rows of the array that the cell stores.

        Raises:
            RuntimeError: a parameter server keeps them, and is asked before the step.
        """
        if cell.home is None:
            return rows_lib.take(self.whole(cell), rows)
        raise RuntimeError(
            f"Rows of the variable '{cell.name}' (created at {cell.origin}) were "
            "looked up inside a branch or loop body. A parameter server keeps it: look "
            "the rows up before the branch or loop."
        )

    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> NoReturn:
        """Raises `RuntimeError`: servers are told after the step, whatever it did."""
        cell = change.cells[0]
        raise RuntimeError(
            f"The variable '{cell.name}' (created at {cell.origin}) was changed inside "
            "a branch or loop body. A parameter server keeps it: return the value from "
            "there and assign it afterwards."
        )

    def create(self, cell: Cell, value: jax.Array) -> NoReturn:
        """Raises `ValueError`: a branch may not be taken, and a loop runs again."""
        raise CreatedInBody(
            f"The variable '{cell.name}' was created inside a branch or loop body, at "
            f"{cell.origin}. Create it outside."
        )

    def cells(self) -> Iterable[Cell]:
        """Returns the cells whose values the frame around the body has."""
        return self.parent.cells()

    def note_topology(self, topology: Topology) -> None:
        """Notes the devices that the program runs on."""
        self.parent.note_topology(topology)
