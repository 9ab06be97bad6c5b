"""Compiled programs, and how they are called.

A call gathers the arrays of the variables that the program uses, calls a jitted
function, to which it donates the arrays of variables that the program writes, and
stores the results (decision 0003).
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax._src import config

from unisono._src.execution import (
    equations,
    invalid_numbers,
    profile_names,
    program_checks,
    server_lookups,
    signature,
    step_labels,
    step_marks,
    traced_function,
)
from unisono._src.execution.traced_function import TracedFunction
from unisono._src.foundation import errors, jax_types
from unisono._src.machines import topology
from unisono._src.state import holding, mirroring, servers, storage, trace_versions
from unisono._src.state.storage import Cell
from unisono._src.values import collectives, jax_traces
from unisono._src.workers import watchdog

# Under short names, because every step looks them up.
_lock, _clock = storage.LOCK, storage.Clock
_throttle, _eager = topology.THROTTLE, trace_versions.EAGER
_ARRAY, _HOLDER = operator.attrgetter("array"), operator.attrgetter("holder")
# One program with callbacks runs at a time: a failure that a callback notes would not
# tell whose it is.
_callbacks = holding.Turn()


class Miss(errors.Signal):
    """A program was called with shapes or settings that it was not traced for.

    Only JAX's own dispatch, which is fast, compares them: a program that JAX has not
    compiled for them calls back into `Program._evaluate`, which raises this.
    """


# JAX's settings that change what a trace computes. JAX compiles for each of their
# values, also in a block such as `with jax.default_matmul_precision("highest")`.
_SETTINGS = tuple(
    config.config_states[f"jax_{name}"]
    for name in (
        "default_matmul_precision",
        "enable_x64",
        "numpy_dtype_promotion",
        "numpy_rank_promotion",
        "threefry_partitionable",
    )
)


def aval_key(leaves: Sequence[Any]) -> tuple[Any, Any]:
    """Return by what JAX tells calls apart: shapes and types, and its settings."""
    found = (jax.typeof(x) for x in leaves)
    shapes = tuple((a.shape, a.dtype, a.weak_type) for a in found)
    return shapes, tuple([s.value for s in _SETTINGS])


@final
class Program:
    """A jitted function, with the cells that it reads and writes.

    One program serves all traces of a function that differ only in the shapes of
    arguments.

    Attributes:
        call: runs the program on the arrays of a call, and returns the result. A
            profile replaces it while it is taken.
        donated: the cells that the program reads and writes.
        kept: the cells that it only reads.
        mesh: the devices that it runs on; None for a single device.
        name: the name of the function.
        outputs: the structure of its result.
        written: the cells that it writes.
    """

    def __init__(self, first: TracedFunction) -> None:
        written = dict.fromkeys(first.written)
        self.outputs = first.outputs
        self.donated = [c for c in first.read if c in written]
        self.kept = [c for c in first.read if c not in written]
        self.written = first.written
        self._cells = list(dict.fromkeys([*first.read, *first.written]))
        self.mesh = first.mesh
        self._home = first.home
        self._traces: dict[Any, TracedFunction] = {}
        self._labels = step_labels.StepLabels(first.name, first.mesh)
        # When cells were last checked for arrays that others hold; see `storage.Clock`.
        self._clock = -1
        # Cells of another place are copied to the program's devices before each call,
        # and their new values are brought back after it.
        self._must_place = any(self._is_elsewhere(c) for c in first.read)
        self._results_elsewhere = [
            c for c in self.written if self._is_elsewhere(c) or self._is_free(c)
        ]
        self._throttled = first.mesh is not None and first.mesh.needs_throttle
        self._may_raise = _has_callbacks(first.jaxpr)
        self._is_together = first.needs_all_workers
        self.name = first.name
        self._captured = first.constants.captured
        # With other workers a step has two inputs more, the ledger and its own label,
        # and leaves the ledger behind as an output (see `step_marks`).
        self._ledger = watchdog.find_ledger(first.mesh) if self._is_together else None
        # Everything that is only read, and everything that is stored: objects that have
        # an array each.
        ledger: list[Any] = [] if self._ledger is None else [self._ledger]
        spread = map(_CapturedArray, first.constants.spread)
        self._inputs: list[Any] = [*self.kept, *spread, *ledger]
        self._stored: list[Any] = [*self.written, *ledger]
        self._must_prepare = self._must_place or self._ledger is not None
        self._jitted: Any = self._jit(first)
        self._collect = signature.collector(first.outputs, first.mesh)
        # The kind of call is chosen once, so that a step asks for none of this.
        self._call_alone = self._call_carefully if self._may_raise else self._call
        self.call: Any = self._call_together if self._is_together else self._call_alone
        self._changes = first.changes
        self._staged: dict[Any, server_lookups.Staged] = {}
        self._has_lookups = server_lookups.has_lookups(first.jaxpr)
        if first.uses_servers:
            self.call = self._call_with_servers
        # Last, because it may wrap `call`.
        profile_names.watch(self)

    def _jit(self, first: TracedFunction) -> Any:
        """Return the function that JAX compiles, for the traces of this program."""
        return jax.jit(
            profile_names.give_name(self._evaluate, first.name),
            # A callback may fail while the program runs. The old arrays must then still
            # be there.
            donate_argnums=() if self._may_raise else 0,
            # Without it XLA may lay a new array out in another way than the old one,
            # and JAX would compile the next call for the new layout.
            out_shardings=self._out_shardings(first),
        )

    def _is_elsewhere(self, cell: Cell) -> bool:
        """Whether the array of a cell is on other devices than the program's."""
        if self.mesh is not None:
            return not cell.is_everywhere
        return cell.sharding is not None and cell.sharding != self._home

    def _is_free(self, cell: Cell) -> bool:
        """Whether a cell belongs to no device, although the program does."""
        return cell.sharding is None and self._home is not None

    def fits(self, other: TracedFunction) -> bool:
        """Whether a trace differs from this program only in the shapes of arguments."""
        return (
            self.outputs == other.outputs
            and self.written == other.written
            # `_changes` are those of one trace.
            and not (self._changes or other.changes)
            and set(self.donated) | set(self.kept) == set(other.read)
            and self._may_raise == _has_callbacks(other.jaxpr)
            and self._is_together == other.needs_all_workers
            and self.mesh == other.mesh
            and len(self._captured) == len(other.constants.captured)
            and all(map(operator.is_, self._captured, other.constants.captured))
        )

    def serves(self, key: Any) -> bool:
        """Whether the program was traced for the shapes in `key` (see `aval_key`)."""
        return key in self._traces

    def trace_for(self, key: Any) -> TracedFunction:
        """Return the trace for the shapes in `key` (see `aval_key`)."""
        return self._traces[key]

    def add(self, key: Any, found: TracedFunction) -> None:
        """Add a trace, so that the program serves calls with the shapes in `key`."""
        self._traces[key] = found

    def release(self) -> None:
        """Let go of what JAX has compiled; it is compiled again if it is called."""
        self._jitted.clear_cache()

    def _out_shardings(self, first: TracedFunction) -> Any:
        """Return where the program leaves the values of cells, and its result."""
        if first.mesh is None:
            return (
                None if self._home is None else ([self._home] * len(self.written), None)
            )
        same, split = first.mesh.replicated_sharding, first.mesh.stacked_sharding
        stored = [_stored_sharding(c, same) for c in self.written]
        if self._ledger is not None:
            stored.append(same)
        kinds = signature.leaf_kinds(first.outputs)
        return stored, [split if kind == "p" else same for kind in kinds]

    def _evaluate(
        self, donated: list[Any], kept: list[Any], leaves: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Compute the new values of cells and the result; JAX compiles this.

        Raises:
            Miss: there is no trace for arguments of these shapes.
        """
        found = self._traces.get(aval_key(leaves))
        if found is None:
            raise Miss
        # A trace has its inputs in the order of its own `read`; the program has the
        # donated ones first, and captured arrays behind the kept ones.
        more, kept = kept[len(self.kept) :], kept[: len(self.kept)]
        by_cell = dict(zip([*self.donated, *self.kept], [*donated, *kept], strict=True))
        inputs = [_gather_if_needed(c, by_cell[c], found) for c in found.read]
        marks = [] if self._ledger is None else [more.pop(), more.pop()]
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
        count = len(self.written)
        # Outputs too: XLA carries a split of an output back into the program.
        stored = zip(self.written, out, strict=False)
        new = [_gather_if_needed(c, x, found) for c, x in stored]
        return [*new, *marks], out[count:]

    def _call(self, leaves: list[Any]) -> Any:
        """Gather the arrays of cells, call the program, store the new arrays."""
        done: list[Any] = []
        with _lock:
            # A donated array is gone. So cells whose arrays others may hold get copies
            # first; the clock tells whether there can be any.
            if self._clock != _clock.escapes:
                self._take_over()
            donated = list(map(_ARRAY, self.donated))
            kept = list(map(_ARRAY, self._inputs))
            if self._must_prepare:
                donated, kept, leaves = self._prepare_inputs(donated, kept, leaves)
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
                    if self._results_elsewhere:
                        self._bring_home()
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

    def _take_over(self) -> None:
        """Wait for other threads that hold cells, and make arrays safe to donate."""
        if any(map(_HOLDER, self._cells)):
            holding.wait_for(self._cells, self._what)
        mirroring.unescape(self.donated)
        mirroring.settle(self.kept)
        self._clock = _clock.escapes

    @property
    def _what(self) -> str:
        """What the program is, for messages."""
        return f"the step '{self.name}'{', which calls Python' * self._may_raise}"

    def _call_together(self, leaves: list[Any]) -> Any:
        """Call a program that all workers must call, while they watch each other."""
        label = self._labels.find(leaves) or self._label_step(leaves)
        # What a callback is given is seen before the marks are compared.
        watchdog.enter(label, self._may_raise, self._ledger)
        try:
            made = self._call_alone(leaves)
        except Miss:
            # Nothing ran; the program that is found next enters again.
            watchdog.leave()
            raise
        except ValueError as error:
            # JAX reports a collective of an earlier step that has failed this way.
            watchdog.raise_explained(error)
        watchdog.watch(self.written or made)
        return made

    def _label_step(self, leaves: list[Any]) -> str:
        """Return the label by which workers compare this program, for these shapes.

        It has a digest of the program: workers that have another version of a step, or
        another constant in it, would compute together what none of them has written.

        Raises:
            Miss: the program is not traced for the shapes.
        """
        found = self._traces.get(aval_key(leaves))
        if found is None:
            raise Miss
        if found.has_worker_parts:
            # Workers take local results of uneven shapes, so their programs differ by
            # design (decision 0013).
            digest = "of this worker"
        elif self._may_raise:
            digest = step_labels.digest_jaxpr(found.jaxpr)
        else:
            digest = step_labels.digest_lowered(self.lower(leaves))
        return self._labels.add(leaves, found, digest)

    def _call_with_moved_arguments(self, error: Exception, leaves: list[Any]) -> Any:
        """Call again with the arguments moved, if they were on other devices.

        Otherwise raise `error`, in the user's terms.
        """
        # JAX has looked at the devices before it donated anything, so the second call
        # finds all arrays. `_call` still holds the lock, which is reentrant.
        if self._must_place or "incompatible devices" not in str(error):
            raise self._explain_failure(watchdog.explain(error)) from None
        # From now on: the next call most likely has its arguments there too.
        self._must_place = self._must_prepare = True
        return self._call(leaves)

    def _call_carefully(self, leaves: list[Any]) -> Any:
        """Call a program with callbacks; store its results if all of it succeeds.

        Raises:
            RuntimeError: other code has changed a variable that the program writes.
        """
        with holding.hold([_callbacks, *self.written], self._what):
            cells = [*self.donated, *self.kept]
            with _lock:
                mirroring.settle(cells)
                donated, kept = (
                    list(map(_ARRAY, self.donated)),
                    list(map(_ARRAY, self._inputs)),
                )
                before = list(map(_ARRAY, self.written))
                # Nothing is donated, so a callback that raises leaves the old arrays in
                # place. Nor may a step that a callback calls donate them meanwhile.
                kept_back = [c for c in cells if not c.escaped]
                for cell in cells:
                    cell.escape()
                clock = _clock.escapes
            donated, kept, leaves = self._prepare_inputs(donated, kept, leaves)
            program_checks.clear()
            new, flat = jax.block_until_ready(self._jitted(donated, kept, leaves))
            # Arrays may be ready before the callbacks have run.
            jax.effects_barrier()
            program_checks.raise_failure()
            with _lock:
                for cell, array in zip(self.written, before, strict=True):
                    if cell.array is not array:
                        raise _changed_meanwhile_error(self.name, cell)
                for cell, array in zip(self._stored, new, strict=True):
                    cell.array = array
                if _clock.escapes == clock:
                    # Nobody else took an array, so the next step need not copy any.
                    for cell in kept_back:
                        cell.escaped = False
                self._bring_home()
        return self._collect(flat)

    def _call_with_servers(self, leaves: list[Any]) -> Any:
        """Call a program whose variables are, in part, on parameter servers."""
        # Servers are waited for, so the cells of this process are held without the
        # lock.
        with holding.hold(self.written, self._what):
            return self._call_holding(leaves)

    def _call_holding(self, leaves: list[Any]) -> Any:
        """Call a program with servers; the cells that it writes are held."""
        cells = [*self.donated, *self.kept]
        with _lock:
            mirroring.settle(cells)
            for cell in cells:
                # So that no step of another thread donates the array meanwhile.
                cell.escape()
        # Read everything at once, run, store what is kept here, and send the changes. A
        # value that was read never goes back: others may have changed it (decision
        # 0026).
        draws, later = servers.split_draws(self._changes, cells)
        arrays = servers.read_all(cells, draws)
        count = len(self.donated)
        # The arrays of cells of this process are copied, because they are donated.
        donated = [jnp.copy(x) for x in arrays[:count]]
        donated, kept, leaves = self._place_inputs(donated, arrays[count:], leaves)
        if self._has_lookups:
            new, rest = self._run_in_stages([*donated, *kept], leaves)
        else:
            # Waited for: a program that fails must have changed nothing on the servers.
            new, rest = jax.block_until_ready(self._jitted(donated, kept, leaves))
        with _lock:
            for cell, array in zip(self.written, new, strict=True):
                cell.array = array
            self._bring_home()
        given = iter(rest)
        changes = [
            dataclasses.replace(c, operands=tuple(next(given) for _ in c.operands))
            for c in later
        ]
        servers.apply_all(changes)
        return self._collect(list(given))

    def _run_in_stages(self, arrays: list[Any], leaves: list[Any]) -> Any:
        """Return the new values and the rest of a program that asks for rows."""
        key = aval_key(leaves)
        found, run = self._traces[key], self._staged.get(key)
        if run is None:
            closed = jax_types.ClosedJaxpr(found.jaxpr, found.constants.fill_in(()))
            run = self._staged[key] = server_lookups.Staged(closed, self.name)
        by_cell = dict(zip([*self.donated, *self.kept], arrays, strict=True))
        out = run([*(by_cell[c] for c in found.read), *leaves])
        return out[: len(self.written)], out[len(self.written) :]

    def _bring_home(self) -> None:
        """Move new arrays back to the devices of cells that live elsewhere."""
        for cell in self._results_elsewhere:
            home = cell.sharding or jax.local_devices()[0]
            # A cell that may be anywhere goes back uncommitted, so that JAX may combine
            # it with arrays of other devices.
            moved = jax.device_put(collectives.own_copy(cell.array), home)
            cell.array = moved if cell.sharding else collectives.release(moved)

    def _prepare_inputs(self, donated: Any, kept: Any, leaves: Any) -> Any:
        """Return the inputs of a call, with its label, on the program's devices."""
        if self._ledger is not None:
            kept.append(self._labels.find_number(leaves))
        if not self._must_place and not self._may_raise:
            return donated, kept, leaves
        return self._place_inputs(donated, kept, leaves)

    def _place_inputs(self, donated: Any, kept: Any, leaves: Any) -> Any:
        """Return the inputs of a call, copied to the program's devices if need be."""
        home = self._home
        if home is None:
            return donated, kept, leaves

        def move(cells: list[Cell], arrays: list[Any]) -> list[Any]:
            # Captured arrays, behind those of cells, are there already.
            pairs = zip(cells, arrays, strict=False)
            moved = [
                _copy_to_home(a, home, self.mesh) if self._is_elsewhere(c) else a
                for c, a in pairs
            ]
            return [*moved, *arrays[len(cells) :]]

        leaves = [traced_function.put_at_home(x, home, self.mesh) for x in leaves]
        return move(self.donated, donated), move(self.kept, kept), leaves

    def _explain_failure(self, error: BaseException) -> BaseException:
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

    def lower(self, leaves: list[Any]) -> jax.stages.Lowered:
        """Return the program as `jax.stages.Lowered`, for inspection."""
        donated = [c.array for c in self.donated]
        kept = [x.array for x in self._inputs]
        if self._ledger is not None:
            # Any number serves: the label has a digest of this very program.
            kept.append(self._labels.make_number(""))
        if self._must_place:
            donated, kept, leaves = self._place_inputs(donated, kept, leaves)
        lowered: jax.stages.Lowered = self._jitted.lower(donated, kept, leaves)
        return lowered


@final
class _CapturedArray:
    """An array that a program captures and takes as an input, like that of a cell."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array


def _changed_meanwhile_error(name: str, cell: Cell) -> RuntimeError:
    """Return the error for a change that storing a program's results would undo."""
    return RuntimeError(
        f"The variable '{cell.name}' was changed while '{name}' ran, by a callback of "
        f"it or by another thread, and '{name}' writes it too. A step that calls "
        "Python, as unisono.print, assertions and numpy_function do, stores its "
        "results at its end, which would undo that change; it has stored nothing. "
        "Assign the variable in the step alone, or after it."
    )


def _gather_if_needed(cell: Cell, array: Any, found: TracedFunction) -> Any:
    """Return the array of a cell, gathered if the program needs it whole."""
    if cell not in found.gathered:
        return array
    return jax.lax.with_sharding_constraint(array, cell.topology.replicated_sharding)


def _stored_sharding(cell: Cell, otherwise: Any) -> Any:
    """Return the sharding in which a program on a mesh leaves the array of a cell."""
    return cell.sharding if cell.is_everywhere else otherwise


def _copy_to_home(array: Any, home: Any, mesh: topology.Topology | None) -> Any:
    """Return a copy on the program's devices, which may be donated."""
    if mesh is not None and mesh.is_spread:
        return mesh.spread(jnp.copy(array))
    return jax.device_put(array, home, may_alias=False)


def find_callback(jaxpr: Any) -> str | None:
    """Return the name of the first operation of a program that calls Python, if any."""
    for e in jaxpr.eqns:
        name: str = e.primitive.name
        if "callback" in name or name.startswith("debug"):
            return name
        for inner in map(find_callback, equations.inner(e)):
            if inner is not None:
                return inner
    return None


def _has_callbacks(jaxpr: Any) -> bool:
    """Whether a program calls Python while it runs, where Python may raise."""
    return find_callback(jaxpr) is not None
