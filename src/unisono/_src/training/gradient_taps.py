"""Copies of the gradients that reach optimizers, for code that compares runs.

A compiled step returns no gradients. While somebody collects them, an optimizer writes
each replica's gradient to a variable of its own, which is an output of the step.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import final

import jax.numpy as jnp

from unisono._src.foundation import ambient
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state import creation, frames, storage
from unisono._src.state.variables import Variable
from unisono._src.training.part_updates import Gradient
from unisono._src.values import jax_traces
from unisono._src.values.indexed_slices import IndexedSlices


@final
class GradientTaps:
    """The variables that gradients are written to.

    Attributes:
        by_cell: for the cell of each variable with a gradient, the variable whose
            copies are the gradients of the replicas.
        lines: for the same cells, file and line of the code that called the optimizer.
        slots: the cells of the optimizers' own variables.
    """

    def __init__(self) -> None:
        self.by_cell: dict[storage.Cell, Variable] = {}
        self.lines: dict[storage.Cell, str] = {}
        self.slots: set[storage.Cell] = set()

    def write(self, variable: Variable, gradient: Gradient) -> None:
        """Writes the gradient of a variable, in a replica or across them."""
        cell = variable.state_cell
        if cell not in self.by_cell:
            self.by_cell[cell] = _make_tap(cell)
        self.lines[cell] = creation.find_origin()
        if isinstance(gradient, IndexedSlices):
            rows = IndexedSlices(gradient.values, gradient.indices, variable.shape)
            gradient = rows.to_dense()
        self.by_cell[cell].assign(jnp.asarray(gradient, cell.dtype), read_value=False)


def _make_tap(cell: storage.Cell) -> Variable:
    """Returns a variable for the gradients of another one, also while tracing."""
    frame = ambient.ROOT
    if cell.placement is not None:
        # Central storage has one array for all replicas, and each has a gradient.
        placement = dataclasses.replace(cell.placement, kind=storage.Policy.MIRRORED)
        frame = frame._replace(
            strategy=cell.owner, mode=ambient.CROSS, placement=placement
        )
    with ambient.enter(frame), jax_traces.compute_at_once():
        return Variable(
            jnp.zeros(cell.shape, cell.dtype),
            trainable=False,
            name=f"gradient of {cell.name}",
            synchronization=VariableSynchronization.ON_READ,
            aggregation=VariableAggregation.SUM,
        )


@final
class _Current:
    taps: GradientTaps | None = None


@contextlib.contextmanager
def collect(taps: GradientTaps) -> Iterator[None]:
    """Has optimizers write the gradients that they get, in a block."""
    outer, _Current.taps = _Current.taps, taps
    try:
        yield
    finally:
        _Current.taps = outer


def note(
    gradients: Sequence[Gradient | None],
    variables: Sequence[object],
    slots: Iterable[object],
) -> None:
    """Writes the gradients that an optimizer got, if somebody collects them.

    Args:
        gradients: the gradients; in a replica, its own.
        variables: the variable of each.
        slots: the variables of the optimizer itself.
    """
    taps = _Current.taps
    if taps is None:
        return
    if not frames.frame().is_compiled and not jax_traces.is_clean():
        return  # A program of JAX alone, as `fit` has it: no variable gets out of it.
    taps.slots |= {v.state_cell for v in slots if isinstance(v, Variable)}
    for gradient, variable in zip(gradients, variables, strict=True):
        if gradient is None or not isinstance(variable, Variable):
            continue
        # A server sums gradients as they come; there are no replicas to compare.
        if variable.state_cell.home is None:
            taps.write(variable, gradient)
