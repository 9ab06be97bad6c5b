"""The state frame of one replica inside an SPMD program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import jax

from unisono._src.machines.topology import AXIS
from unisono._src.state import frames, rows as rows_lib, trace_versions
from unisono._src.state.remote_state import Change
from unisono._src.state.storage import Cell
from unisono._src.values import collectives, jax_traces, row_positions


@final
class LocalFrame(frames.StateFrame):
    """Reads and writes cells as one replica of an SPMD program sees them.

    A replica has a part of a cell that is cut over the replicas (see
    docs/decisions/0017). Reading gathers the whole; an optimizer updates the part alone
    (`part`, `set_part`).

    Attributes:
        cut: the cells that can be read and written by parts.
        alike: pairs of a cell and a value from which its new parts were computed; the
            value must be the same on all replicas.
        values: the value of each cell that is not cut, or whose parts were gathered.
        parts: the replica's own part of each cell that is cut, unless `values` has a
            newer value.
        written: the cells that were written, in that order.
        created: the first value of each cell that was made here.
    """

    is_compiled = True

    def __init__(
        self, parent: frames.StateFrame, copies: dict[Cell, jax.Array]
    ) -> None:
        self.parent = parent
        self.cut = cut = {c for c in copies if is_cut(c)}
        self.values = {c: x for c, x in copies.items() if c not in cut}
        self.parts = {c: x for c, x in copies.items() if c in cut}
        self.alike: list[tuple[Cell, Any]] = []
        self.written: dict[Cell, None] = {}
        self.created: dict[Cell, jax.Array] = {}
        # A value that is made here knows the trace of the `shard_map`.
        own_trace = jax_traces.trace_of(jax.lax.axis_index(AXIS))
        self.traces = (own_trace, *parent.traces)
        self.versions = parent.versions

    def copy(self, cell: Cell, index: int | None = None) -> jax.Array:
        """Returns the replica's copy; of a cell that is cut, all parts together."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        if cell in self.values:
            return self.values[cell]
        if cell not in self.parts:
            return self.parent.whole(cell)
        # Outside any loop or branch that is being traced: the result is kept for later
        # reads, and not all replicas might take the branch to the collective.
        with jax_traces.enter(self.traces[0]):
            self.values[cell] = cell.split.gather(self.parts[cell])
        return self.values[cell]

    def whole(self, cell: Cell) -> jax.Array:
        """Returns the replica's copy, which is the whole of a replicated cell."""
        return self.copy(cell)

    def rows(self, cell: Cell, rows: row_positions.Positions) -> jax.Array:
        """Returns some rows of the replica's copy."""
        if cell.home is not None:
            return self.parent.rows(cell, rows)
        return rows_lib.take(self.whole(cell), rows)

    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Raises `NotImplementedError`: no strategy has servers and SPMD programs."""
        raise NotImplementedError("Servers are changed by one replica at a time.")

    def set_copy(self, cell: Cell, index: int | None, value: jax.Array) -> None:
        """Replaces the replica's copy."""
        frames.check_level(cell, value, self.traces)
        self.versions.advance()
        self.values[cell] = value
        # The part is older than the whole now; `part` cuts it anew.
        self.parts.pop(cell, None)
        self.written[cell] = None

    def set_whole(self, cell: Cell, value: jax.Array) -> None:
        """Replaces the value, which must be the same on all replicas."""
        self.set_copy(cell, None, value)

    def part(self, cell: Cell) -> jax.Array:
        """Returns the replica's part of a cell that is cut over the replicas."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        found = self.parts.get(cell)
        return cell.split.cut(self.values[cell]) if found is None else found

    def set_part(self, cell: Cell, value: jax.Array) -> None:
        """Replaces the replica's part."""
        frames.check_level(cell, value, self.traces)
        self.versions.advance()
        self.parts[cell] = value
        self.values.pop(cell, None)
        self.written[cell] = None

    def create(self, cell: Cell, value: jax.Array) -> None:
        """Remembers the first value, which is that of replica 0 on all of them."""
        frames.check_level(cell, value, self.traces)
        self.values[cell] = self.created[cell] = collectives.pick_local(value, 0)


def is_cut(cell: Cell) -> bool:
    """Whether each replica has only a part of a cell."""
    return cell.split is not None and cell.split.is_over_replicas
