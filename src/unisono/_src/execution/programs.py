"""Compiled programs: what JAX compiles for the traces of a function."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, final

import jax

from unisono._src.execution import (
    equations,
    invalid_numbers,
    profile_names,
    program_calls,
    signature,
    step_marks,
)
from unisono._src.execution.program_calls import Arrays, ProgramCells
from unisono._src.execution.traced_function import TracedFunction, TracesByShape
from unisono._src.state import copy_checks
from unisono._src.state.storage import Cell
from unisono._src.values import jax_traces

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr


@final
class Program:
    """A jitted function, with the cells that it reads and writes.

    One program serves all traces of a function that differ only in the shapes of
    arguments.

    Args:
        first: the first trace that it serves.

    Attributes:
        call: runs the program on the arrays of a call, and returns the result. A
            profile replaces it while it is taken.
        cells: the cells that it reads and writes.
        name: the name of the function.
        traces: the traces that it serves.
    """

    def __init__(self, first: TracedFunction) -> None:
        self.name = first.name
        self.cells = ProgramCells(first)
        self.traces = TracesByShape()
        # All traces of a program are like this one, but for the shapes of arguments.
        self._first = first
        self._compiled = program_calls.CompiledProgram(
            first.name,
            self.cells,
            self._jit(first),
            signature.collector(first.outputs, first.mesh),
            _has_callbacks(first.jaxpr),
            self.traces,
            step_marks.StepLabels(first.name, first.mesh),
        )
        self.call = self._choose_call(first)
        # Last, because it may wrap `call`.
        profile_names.watch(self)

    def _jit(self, first: TracedFunction) -> program_calls.Jitted:
        """Return the function that JAX compiles, for the traces of this program."""
        made: Any = jax.jit(
            profile_names.give_name(self._evaluate, first.name),
            # A callback may fail while the program runs. The old arrays must then still
            # be there.
            donate_argnums=() if _has_callbacks(first.jaxpr) else 0,
            # Without it XLA may lay a new array out in another way than the old one,
            # and JAX would compile the next call for the new layout.
            out_shardings=self._out_shardings(first),
        )
        jitted: program_calls.Jitted = made
        return jitted

    def _choose_call(self, first: TracedFunction) -> program_calls.Call:
        """Return the way to call this program."""
        compiled = self._compiled
        if first.uses_servers:
            return program_calls.ServerCall(compiled, first).run
        alone = (
            program_calls.CallbackCall(compiled).run
            if compiled.has_callbacks
            else program_calls.DonatingCall(compiled).run
        )
        checks = None if first.mesh is None else copy_checks.find_checks()
        if checks is not None:
            alone = program_calls.CheckedCall(checks, alone).run
        if first.needs_all_workers:
            return program_calls.WorkersCall(compiled, alone).run
        return alone

    def fits(self, other: TracedFunction) -> bool:
        """Whether a trace differs from this program only in the shapes of arguments."""
        first, captured = self._first, self._first.constants.captured
        return (
            first.outputs == other.outputs
            and first.written == other.written
            # Changes that servers make are those of one trace.
            and not (first.changes or other.changes)
            and set(first.read) == set(other.read)
            and self._compiled.has_callbacks == _has_callbacks(other.jaxpr)
            and first.needs_all_workers == other.needs_all_workers
            and first.mesh == other.mesh
            and len(captured) == len(other.constants.captured)
            and all(map(operator.is_, captured, other.constants.captured))
        )

    def release(self) -> None:
        """Let go of what JAX has compiled; it is compiled again if it is called."""
        self._compiled.jitted.clear_cache()

    def lower(self, leaves: Arrays) -> jax.stages.Lowered:
        """Return the program as `jax.stages.Lowered`, for inspection."""
        return self._compiled.lower(leaves)

    def _out_shardings(self, first: TracedFunction) -> Any:
        """Return where the program leaves the values of cells, and its result."""
        if first.mesh is None:
            return self.cells.find_sharding()
        same, split = first.mesh.replicated_sharding, first.mesh.stacked_sharding
        stored = [c.sharding if c.is_everywhere else same for c in first.written]
        if self.cells.ledger is not None:
            stored.append(same)
        kinds = signature.leaf_kinds(first.outputs)
        return stored, [split if kind == "p" else same for kind in kinds]

    def _evaluate(
        self, donated: Arrays, kept: Arrays, leaves: Arrays
    ) -> tuple[Arrays, Arrays]:
        """Compute the new values of cells and the result; JAX compiles this.

        Raises:
            NeedsRetrace: there is no trace for arguments of these shapes.
        """
        found, cells = self.traces.find_for(leaves), self.cells
        # A trace has its inputs in the order of its own `read`; the program has the
        # donated ones first, and captured arrays behind the kept ones.
        more, kept = kept[len(cells.kept) :], kept[: len(cells.kept)]
        by_cell = dict(
            zip([*cells.donated, *cells.kept], [*donated, *kept], strict=True)
        )
        inputs = [_gather_if_needed(c, by_cell[c], found) for c in found.read]
        marks = [] if cells.ledger is None else [more.pop(), more.pop()]
        consts, args = found.constants.fill_in(more), [*inputs, *leaves]
        if jax_traces.is_clean():
            # With `jax_debug_nans` JAX calls this again if a result is not finite.
            invalid_numbers.explain(found, consts, args)
        if marks:
            label, ledger = marks
            out, after = step_marks.run(found, consts, args, ledger, label)
            marks = [after]
        else:
            out = jax.core.eval_jaxpr(found.jaxpr, consts, *args)
        count = len(cells.written)
        # Outputs too: XLA carries a split of an output back into the program.
        stored = zip(cells.written, out, strict=False)
        new = [_gather_if_needed(c, x, found) for c, x in stored]
        return [*new, *marks], out[count:]


def _gather_if_needed(cell: Cell, array: jax.Array, found: TracedFunction) -> jax.Array:
    """Return the array of a cell, gathered if the program needs it whole."""
    if cell not in found.gathered:
        return array
    whole = cell.topology.replicated_sharding
    gathered: jax.Array = jax.lax.with_sharding_constraint(array, whole)
    return gathered


def find_callback(jaxpr: Jaxpr) -> str | None:
    """Return the name of the first operation of a program that calls Python, if any."""
    names: list[str] = [e.primitive.name for e in equations.walk(jaxpr)]
    return next((n for n in names if "callback" in n or n.startswith("debug")), None)


def _has_callbacks(jaxpr: Jaxpr) -> bool:
    """Whether a program calls Python while it runs, where Python may raise."""
    return find_callback(jaxpr) is not None
