"""The ways to call a compiled program, and the cells that it reads and writes.

Each gathers the arrays of the variables that the program uses, calls the jitted
function, and stores the results (decision 0003). The way is chosen once for a program,
so that a step asks for none of what another way needs.
"""

from __future__ import annotations

import dataclasses
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp

from unisono._src.execution import (
    equations,
    program_checks,
    step_marks,
    traced_function,
)
from unisono._src.execution.traced_function import (
    NeedsRetrace,
    TracedFunction,
    TracesByShape,
)
from unisono._src.foundation import errors, jax_internals
from unisono._src.machines import topology
from unisono._src.machines.topology import Topology
from unisono._src.state import (
    copy_checks,
    holding,
    mirroring,
    remote_state,
    rows,
    storage,
    trace_versions,
)
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


Call = Callable[[Arrays], Any]
# Under short names, because every step looks them up.
_lock, _clock = storage.LOCK, storage.Clock
_throttle, _eager = topology.THROTTLE, trace_versions.EAGER
_ARRAY = operator.attrgetter("array")
# One program with callbacks runs at a time: a failure that a callback notes would not
# tell whose it is.
_callbacks = holding.Turn()


class Jitted(Protocol):
    """What `jax.jit` makes of a program."""

    def __call__(
        self, donated: Arrays, kept: Arrays, leaves: Arrays, /
    ) -> tuple[Arrays, Arrays]:
        """Return the new values of cells, and the arrays of the result."""

    def lower(self, *args: Arrays) -> jax.stages.Lowered:
        """Return the program of a call."""

    def clear_cache(self) -> None:
        """Let go of what was compiled."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class CompiledProgram:
    """A compiled program, and what each way to call it needs.

    Attributes:
        name: the name of the function.
        cells: the cells that it reads and writes.
        jitted: the function that JAX compiles.
        collect: makes the caller's result of the program's arrays.
        has_callbacks: whether it calls Python while it runs.
        traces: the traces that it serves.
        labels: the labels by which workers compare it.
    """

    name: str
    cells: ProgramCells
    jitted: Jitted
    collect: Callable[[Arrays], Any]
    has_callbacks: bool
    traces: TracesByShape
    labels: step_marks.StepLabels

    @property
    def what(self) -> str:
        """What the program is, for messages."""
        return f"the step '{self.name}'{', which calls Python' * self.has_callbacks}"

    def prepare(self, donated: Arrays, kept: Arrays, leaves: Arrays) -> Inputs:
        """Return the inputs of a call, with its label, on the program's devices."""
        if self.cells.ledger is not None:
            kept.append(self.labels.find_number(leaves))
        if not self.cells.must_place and not self.has_callbacks:
            return donated, kept, leaves
        return self.cells.place(donated, kept, leaves)

    def lower(self, leaves: Arrays) -> jax.stages.Lowered:
        """Return the program as `jax.stages.Lowered`, for inspection."""
        cells = self.cells
        donated = list(map(_ARRAY, cells.donated))
        kept = list(map(_ARRAY, cells.inputs))
        if cells.ledger is not None:
            # Any number serves: the label has a digest of this very program.
            kept.append(self.labels.make_number(""))
        if cells.must_place:
            donated, kept, leaves = cells.place(donated, kept, leaves)
        return self.jitted.lower(donated, kept, leaves)


@final
class DonatingCall:
    """Calls a program that takes over the arrays of the variables that it writes.

    Args:
        compiled: the program.
    """

    def __init__(self, compiled: CompiledProgram) -> None:
        self._compiled = compiled
        # What every step looks up is here, and not one object further.
        cells = compiled.cells
        self._cells = cells
        self._donated, self._inputs = cells.donated, cells.inputs
        self._stored, self._elsewhere = cells.stored, cells.elsewhere
        self._jitted, self._collect = compiled.jitted, compiled.collect
        self._must_prepare = cells.must_place or cells.ledger is not None
        self._throttled = cells.mesh is not None and cells.mesh.needs_throttle
        # When cells were last checked for arrays that others hold; see `storage.Clock`.
        self._clock = -1

    def run(self, leaves: Arrays) -> Any:
        """Gather the arrays of cells, call the program, store the new arrays."""
        done: list[tuple[Arrays, Arrays]] = []
        with _lock:
            # A donated array is gone. So cells whose arrays others may hold get copies
            # first; the clock tells whether there can be any.
            if self._clock != _clock.escapes:
                self._cells.take_over(self._compiled.what)
                self._clock = _clock.escapes
            donated = list(map(_ARRAY, self._donated))
            kept = list(map(_ARRAY, self._inputs))
            if self._must_prepare:
                donated, kept, leaves = self._compiled.prepare(donated, kept, leaves)
            try:
                # An interrupt (Ctrl-C) comes between two instructions of Python. Here
                # one instruction calls the program and keeps its results, so that no
                # interrupt can lose them after the old arrays were donated.
                done.extend(map(self._jitted, (donated,), (kept,), (leaves,)))
            except Exception as error:
                return self._call_with_moved_arguments(error, leaves)
            finally:
                if done:
                    # The lengths are equal: `strict` would only cost time.
                    for cell, array in zip(self._stored, done[0][0]):  # noqa: B905
                        cell.array = array
                    if self._elsewhere:
                        self._cells.bring_home()
        # Virtual CPU devices hang if too many steps are in flight (decision 0005).
        if self._throttled:
            _throttle.count += 1
            if _throttle.count >= _throttle.group:
                _throttle.wait(done[0][1], done[0][0])
        # Rare: eager code has read a variable in a body that JAX has cached and must
        # not use again (decision 0008).
        if _eager.has_read:
            _eager.note_change()
        return self._collect(done[0][1])

    def _call_with_moved_arguments(self, error: Exception, leaves: Arrays) -> Any:
        """Call again with the arguments moved, if they were on other devices.

        Otherwise raise `error`, in the user's terms.
        """
        # JAX has looked at the devices before it donated anything, so the second call
        # finds all arrays. `run` still holds the lock, which is reentrant.
        cells = self._cells
        if cells.must_place or "incompatible devices" not in str(error):
            raise cells.explain_failure(watchdog.explain(error)) from None
        # From now on: the next call most likely has its arguments there too.
        cells.must_place = self._must_prepare = True
        return self.run(leaves)


@final
class CallbackCall:
    """Calls a program with callbacks, and stores its results if all of it succeeds.

    Args:
        compiled: the program.
    """

    def __init__(self, compiled: CompiledProgram) -> None:
        self._compiled = compiled

    def run(self, leaves: Arrays) -> Any:
        """Call the program.

        Raises:
            RuntimeError: other code has changed a variable that the program writes.
        """
        compiled, cells = self._compiled, self._compiled.cells
        with holding.hold([_callbacks, *cells.written], compiled.what):
            read = [*cells.donated, *cells.kept]
            with _lock:
                mirroring.settle(read)
                donated = list(map(_ARRAY, cells.donated))
                kept = list(map(_ARRAY, cells.inputs))
                before = list(map(_ARRAY, cells.written))
                # Nothing is donated, so a callback that raises leaves the old arrays in
                # place. Nor may a step that a callback calls donate them meanwhile.
                kept_back = [c for c in read if not c.escaped]
                for cell in read:
                    cell.escape()
                clock = _clock.escapes
            donated, kept, leaves = compiled.prepare(donated, kept, leaves)
            program_checks.clear()
            new, flat = jax.block_until_ready(compiled.jitted(donated, kept, leaves))
            # Arrays may be ready before the callbacks have run.
            jax.effects_barrier()
            program_checks.raise_failure()
            with _lock:
                self._check_unchanged(before)
                for stored, array in zip(cells.stored, new, strict=True):
                    stored.array = array
                if _clock.escapes == clock:
                    # Nobody else took an array, so the next step need not copy any.
                    for cell in kept_back:
                        cell.escaped = False
                cells.bring_home()
        return compiled.collect(flat)

    def _check_unchanged(self, before: Arrays) -> None:
        """Raise if other code has replaced the arrays of the cells to write."""
        for cell, array in zip(self._compiled.cells.written, before, strict=True):
            if cell.array is not array:
                raise _changed_meanwhile_error(self._compiled.name, cell)


@final
class CheckedCall:
    """Calls a program, and compares the copies of mirrored variables now and then.

    Args:
        checks: the comparisons of this process.
        inner: calls it without them.
    """

    def __init__(self, checks: copy_checks.CopyChecks, inner: Call) -> None:
        self._checks = checks
        self._inner = inner

    def run(self, leaves: Arrays) -> Any:
        """Call the program."""
        self._checks.note_step()
        return self._inner(leaves)


@final
class WorkersCall:
    """Calls a program that all workers must call, while they watch each other.

    Args:
        compiled: the program.
        alone: calls it without the watch.
    """

    def __init__(self, compiled: CompiledProgram, alone: Call) -> None:
        self._compiled = compiled
        self._alone = alone

    def run(self, leaves: Arrays) -> Any:
        """Call the program."""
        compiled = self._compiled
        label = compiled.labels.find(leaves) or self._label_step(leaves)
        # What a callback is given is seen before the marks are compared.
        watchdog.enter(label, compiled.has_callbacks, compiled.cells.ledger)
        try:
            made = self._alone(leaves)
        except NeedsRetrace:
            # Nothing ran; the program that is found next enters again.
            watchdog.leave()
            raise
        except ValueError as error:
            # JAX reports a collective of an earlier step that has failed this way.
            watchdog.raise_explained(error)
        watchdog.watch(compiled.cells.written or made)
        return made

    def _label_step(self, leaves: Arrays) -> str:
        """Return the label by which workers compare this program, for these shapes.

        Raises:
            NeedsRetrace: the program is not traced for the shapes.
        """
        compiled = self._compiled
        found = compiled.traces.find_for(leaves)
        if found.has_worker_parts:
            # Workers take local results of uneven shapes, so their programs differ by
            # design (decision 0013).
            digest = "of this worker"
        elif compiled.has_callbacks:
            digest = step_marks.digest_jaxpr(found.jaxpr)
        else:
            digest = step_marks.digest_lowered(compiled.lower(leaves), found.jaxpr)
        return compiled.labels.add(leaves, found, digest)


@final
class ServerCall:
    """Calls a program whose variables are, in part, on parameter servers.

    Args:
        compiled: the program.
        first: the one trace that it serves.
    """

    def __init__(self, compiled: CompiledProgram, first: TracedFunction) -> None:
        self._compiled = compiled
        self._changes = first.changes
        self._staged: dict[int, Callable[[Sequence[Any]], Any]] = {}
        lookup = equations.find_equation(first.jaxpr, rows.lookup_p)
        # The servers of what the program looks up; None if it does not.
        self._servers: remote_state.RemoteState | None = (
            None if lookup is None else lookup.params["cell"].home.group
        )

    def run(self, leaves: Arrays) -> Any:
        """Call the program."""
        # Servers are waited for, so the cells of this process are held without the
        # lock.
        with holding.hold(self._compiled.cells.written, self._compiled.what):
            return self._call_holding(leaves)

    def _call_holding(self, leaves: Arrays) -> Any:
        """Call the program; the cells that it writes are held."""
        compiled, own = self._compiled, self._compiled.cells
        cells = [*own.donated, *own.kept]
        with _lock:
            mirroring.settle(cells)
            for cell in cells:
                # So that no step of another thread donates the array meanwhile.
                cell.escape()
        # Read everything at once, run, store what is kept here, and send the changes. A
        # value that was read never goes back: others may have changed it (decision
        # 0026).
        draws, later = remote_state.split_draws(self._changes, cells)
        arrays = remote_state.read_all(cells, draws)
        count = len(own.donated)
        # The arrays of cells of this process are copied, because they are donated.
        donated = [jnp.copy(x) for x in arrays[:count]]
        donated, kept, leaves = own.place(donated, arrays[count:], leaves)
        if self._servers is not None:
            new, rest = self._run_in_stages(self._servers, [*donated, *kept], leaves)
        else:
            # Waited for: a program that fails must have changed nothing on the servers.
            new, rest = jax.block_until_ready(compiled.jitted(donated, kept, leaves))
        with _lock:
            for cell, array in zip(own.written, new, strict=True):
                cell.array = array
            own.bring_home()
        given = iter(rest)
        changes = [
            dataclasses.replace(c, operands=tuple(next(given) for _ in c.operands))
            for c in later
        ]
        remote_state.apply_all(changes)
        return compiled.collect(list(given))

    def _run_in_stages(
        self, group: remote_state.RemoteState, arrays: Arrays, leaves: Arrays
    ) -> tuple[Arrays, Arrays]:
        """Return the new values and the rest of a program that asks for rows."""
        own, found = self._compiled.cells, self._compiled.traces.find_for(leaves)
        run = self._staged.get(id(found))
        if run is None:
            closed = jax_internals.ClosedJaxpr(found.jaxpr, found.constants.fill_in(()))
            run = group.stage(closed, self._compiled.name)
            self._staged[id(found)] = run
        by_cell = dict(zip([*own.donated, *own.kept], arrays, strict=True))
        out = run([*(by_cell[c] for c in found.read), *leaves])
        return out[: len(own.written)], out[len(own.written) :]


def _changed_meanwhile_error(name: str, cell: Cell) -> RuntimeError:
    """Return the error for a change that storing a program's results would undo."""
    return RuntimeError(
        f"The variable '{cell.name}' was changed while '{name}' ran, by a callback of "
        f"it or by another thread, and '{name}' writes it too. A step that calls "
        "Python, as unisono.print, assertions and numpy_function do, stores its "
        "results at its end, which would undo that change; it has stored nothing. "
        "Assign the variable in the step alone, or after it."
    )
