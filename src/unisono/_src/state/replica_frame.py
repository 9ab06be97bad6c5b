"""The state frame of one replica inside an SPMD program."""

from __future__ import annotations

from typing import Any

import jax

from unisono._src.state import frames, trace_versions
from unisono._src.state.frames import Cell
from unisono._src.values import collectives, jax_traces


class LocalFrame(frames.StateFrame):
    """The values of cells as a replica of an SPMD program has them.

    Of a cell that is cut over the replicas it has a part. Reading gathers the whole;
    the update of an optimizer goes by parts (`part`, `set_part`).

    Attributes:
        cut: the cells that can be read and written by parts.
        alike: cells, each with a value that its new parts come from, and that
            therefore must be the same on all replicas.
    """

    is_compiled = True

    def __init__(self, parent: frames.StateFrame, copies: dict[Cell, Any]) -> None:
        self.parent = parent
        self.cut = cut = {c for c in copies if is_cut(c)}
        self.values = {c: x for c, x in copies.items() if c not in cut}
        self.parts = {c: x for c, x in copies.items() if c in cut}
        self.alike: list[tuple[Cell, Any]] = []
        self.written: dict[Cell, None] = {}
        self.created: dict[Cell, Any] = {}
        own = jax.lax.axis_index(collectives.AXIS)._trace  # type: ignore[attr-defined]
        self.traces = (own, *parent.traces)
        self.versions = parent.versions

    def copy(self, cell: Cell, index: int | None = None) -> Any:
        """The own copy; the whole of a cell that is cut."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        if cell in self.values:
            return self.values[cell]
        if cell not in self.parts:
            return self.parent.whole(cell)
        # Outside any loop or branch: not all replicas may go there to meet.
        with jax_traces.enter(self.traces[0]):
            self.values[cell] = cell.split.gather(self.parts[cell])
        return self.values[cell]

    def whole(self, cell: Cell) -> Any:
        """The own copy: for replicated cells it is the whole."""
        return self.copy(cell)

    def set_copy(self, cell: Cell, index: int | None, value: Any) -> None:
        """Replace the own copy."""
        frames.check_level(cell, value, self.traces)
        self.versions.advance()
        self.values[cell] = value
        self.parts.pop(cell, None)
        self.written[cell] = None

    def set_whole(self, cell: Cell, value: Any) -> None:
        """Replace the value; it must be the same on all replicas."""
        self.set_copy(cell, None, value)

    def part(self, cell: Cell) -> Any:
        """The own part of a cell that is cut over the replicas."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        found = self.parts.get(cell)
        return cell.split.cut(self.values[cell]) if found is None else found

    def set_part(self, cell: Cell, value: Any) -> None:
        """Replace the own part."""
        frames.check_level(cell, value, self.traces)
        self.versions.advance()
        self.parts[cell] = value
        self.values.pop(cell, None)
        self.written[cell] = None

    def create(self, cell: Cell, value: Any) -> None:
        """Remember the first value: that of replica 0."""
        frames.check_level(cell, value, self.traces)
        self.values[cell] = self.created[cell] = collectives.pick_local(value, 0)


def is_cut(cell: Cell) -> bool:
    """Whether a replica has a part of a cell, not the whole."""
    return cell.split is not None and cell.split.is_over_replicas
