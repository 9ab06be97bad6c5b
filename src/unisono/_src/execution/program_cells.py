"""The cells that a program reads and writes, and the devices that it needs them on."""

from __future__ import annotations

import operator
import types
from collections.abc import Sequence
from typing import Protocol, final

import jax
import jax.numpy as jnp

from unisono._src.execution import traced_function
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.foundation import errors
from unisono._src.machines.topology import Topology
from unisono._src.state import holding, mirroring
from unisono._src.state.storage import Cell
from unisono._src.values import collectives
from unisono._src.workers import watchdog

_HOLDER = operator.attrgetter("holder")
Arrays = list[jax.Array]
# The arrays that a program is called with: those that it may take over, those that it
# only reads, and those of the arguments.
Inputs = tuple[Arrays, Arrays, Arrays]


class HasArray(Protocol):
    """An object that has the array of an input or output."""

    array: jax.Array


@final
class ProgramCells:
    """The cells of a program.

    Args:
        first: the first trace of the program.

    Attributes:
        donated: the cells that the program reads and writes.
        kept: the cells that it only reads.
        written: the cells that it writes.
        inputs: everything that is only read: `kept`, captured arrays, and the ledger.
        stored: everything that is stored: `written`, and the ledger.
        ledger: with other workers a step has two inputs more, the ledger and its own
            label, and leaves the ledger behind as an output (see `step_marks`).
        mesh: the devices of the program; None for a single device.
        must_place: whether arrays are copied to the program's devices before a call.
        elsewhere: the written cells whose new values are brought back after a call.
    """

    def __init__(self, first: TracedFunction) -> None:
        written = dict.fromkeys(first.written)
        self.donated = [c for c in first.read if c in written]
        self.kept = [c for c in first.read if c not in written]
        self.written = first.written
        self._every = list(dict.fromkeys([*first.read, *first.written]))
        self.mesh = first.mesh
        self._home = first.home
        together = first.needs_all_workers
        self.ledger = watchdog.find_ledger(first.mesh) if together else None
        more: list[HasArray] = [] if self.ledger is None else [self.ledger]
        # Arrays that the program captures are inputs, like those of cells.
        spread = [types.SimpleNamespace(array=x) for x in first.constants.spread]
        self.inputs: list[HasArray] = [*self.kept, *spread, *more]
        self.stored: list[HasArray] = [*self.written, *more]
        self.must_place = any(self._is_elsewhere(c) for c in first.read)
        self.elsewhere = [
            c for c in self.written if self._is_elsewhere(c) or self._is_free(c)
        ]

    def _is_elsewhere(self, cell: Cell) -> bool:
        """Whether the array of a cell is on other devices than the program's."""
        if self.mesh is not None:
            return not cell.is_everywhere
        return cell.sharding is not None and cell.sharding != self._home

    def _is_free(self, cell: Cell) -> bool:
        """Whether a cell belongs to no device, although the program does."""
        return cell.sharding is None and self._home is not None

    def find_sharding(self) -> tuple[list[jax.sharding.Sharding], None] | None:
        """Return where a program on one device leaves the values of its cells."""
        if self._home is None:
            return None
        return [self._home] * len(self.written), None

    def take_over(self, what: str) -> None:
        """Wait for other threads that hold cells, and make arrays safe to donate.

        Args:
            what: what the program is, for messages.
        """
        if any(map(_HOLDER, self._every)):
            holding.wait_for(self._every, what)
        mirroring.unescape(self.donated)
        mirroring.settle(self.kept)

    def place(self, donated: Arrays, kept: Arrays, leaves: Arrays) -> Inputs:
        """Return the inputs of a call, copied to the program's devices if need be."""
        home, mesh = self._home, self.mesh
        if home is None:
            return donated, kept, leaves

        def move(cells: Sequence[Cell], arrays: Arrays) -> Arrays:
            # Captured arrays, behind those of cells, are there already.
            pairs = zip(cells, arrays, strict=False)
            moved = [
                _copy_to_home(a, home, mesh) if self._is_elsewhere(c) else a
                for c, a in pairs
            ]
            return [*moved, *arrays[len(cells) :]]

        leaves = [traced_function.put_at_home(x, home, mesh) for x in leaves]
        return move(self.donated, donated), move(self.kept, kept), leaves

    def bring_home(self) -> None:
        """Move new arrays back to the devices of cells that live elsewhere."""
        for cell in self.elsewhere:
            home = cell.sharding or jax.local_devices()[0]
            # A cell that may be anywhere goes back uncommitted, so that JAX may combine
            # it with arrays of other devices.
            moved = jax.device_put(collectives.own_copy(cell.array), home)
            cell.array = moved if cell.sharding else collectives.release(moved)

    def explain_failure(self, error: BaseException) -> BaseException:
        """Return the error to raise for one that a call raised.

        It names the variables whose donated arrays are lost.
        """
        # JAX deletes donated arrays when it dispatches; an error before that loses
        # none.
        lost = [c.name for c in self.donated if c.array.is_deleted()]
        if isinstance(error, errors.WorkerError):
            error.lost = tuple(lost)
        if not lost or isinstance(error, errors.WorkerError):
            return error
        return errors.FailedPreconditionError(
            f"The step failed while it ran: {error}. These variables were being "
            f"updated in place and are gone: {', '.join(lost)}. Restore them from a "
            "checkpoint or assign them again; all other variables are intact."
        )


def _copy_to_home(
    array: jax.Array, home: jax.sharding.Sharding, mesh: Topology | None
) -> jax.Array:
    """Return a copy on the program's devices, which may be donated."""
    if mesh is not None and mesh.is_spread:
        copied: jax.Array = mesh.spread(jnp.copy(array))
    else:
        copied = jax.device_put(array, home, may_alias=False)
    return copied
