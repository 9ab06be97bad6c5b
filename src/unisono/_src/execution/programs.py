"""Compiled programs: how one is traced, and how it is called.

A call gathers the arrays of the variables that the program uses, calls a jitted
function, to which it donates the arrays of variables that the program writes, and
stores the results (decision 0003). One trace finds these variables: every live variable
is an input of it, and those that the program does not use are then dropped.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.interpreters import partial_eval

from unisono._src.execution import (
    compiler_detours,
    contexts,
    host_inputs,
    partitioner_limits,
    profile_names,
    replica_invariance,
    signature,
)
from unisono._src.execution import outputs as outputs_lib
from unisono._src.foundation import ambient, errors, library_hooks, nest
from unisono._src.machines import topology
from unisono._src.state import frames, mirroring, trace_versions
from unisono._src.state.frames import Cell
from unisono._src.values import collectives
from unisono._src.workers import watchdog

# Under short names, because every step looks them up.
_lock, _clock = frames.LOCK, frames.Clock
_throttle, _eager = topology.THROTTLE, trace_versions.EAGER
_ARRAY = operator.attrgetter("array")


class Miss(errors.Signal):
    """A program was called with shapes or types that it was not traced for.

    Only JAX's own dispatch, which is fast, compares shapes: a program that JAX has not
    compiled for them calls back into `Program._evaluate`, which raises this.
    """


@final
@dataclasses.dataclass
class TracedFunction:
    """The program of a Python function for arguments of certain shapes.

    Attributes:
        jaxpr: the program. Its inputs are the values of `read`, then the arguments; its
            outputs are those of `written`, of `created`, then the result.
        consts: the constants of the program.
        read: the cells whose values the program uses.
        written: the cells that it assigns.
        created: the cells that the trace has made, with their traced first values.
        outputs: the structure of the result.
        mesh: the devices that it runs on; None for a single device.
        name: the name of the function.
        needs_all_workers: whether all workers must call it together.
        gathered: the split cells that it may use only as a whole.
    """

    jaxpr: Any
    consts: Sequence[Any]
    read: list[Cell]
    written: list[Cell]
    created: dict[Cell, Any]
    outputs: Any
    mesh: topology.Topology | None
    name: str
    needs_all_workers: bool
    gathered: frozenset[Cell]


def aval_key(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shapes and types of arrays, by which JAX tells calls apart."""
    found = (jax.typeof(x) for x in leaves)
    return tuple((a.shape, a.dtype, a.weak_type) for a in found)


# Tracing.


def trace(
    fn: Callable[..., Any],
    rest: Any,
    leaves: Sequence[Any],
    mesh: topology.Topology | None,
    may_create: bool,
    plan: Sequence[Any] = (),
) -> TracedFunction:
    """Trace a Python function by running it once on abstract values.

    It runs once more if a body that JAX traces by itself reads variables (see
    `trace_versions`), or if it reads variables that were made after the trace began.

    Args:
        fn: the function.
        rest: the rest (see `signature`) of its arguments, of its keyword arguments, and
            of each element that it takes from iterators.
        leaves: the arrays of all of them.
        mesh: the devices it will run on, if that is known.
        may_create: whether it may create variables.
        plan: the sources of the elements, in order.

    Raises:
        RuntimeError: the function uses variables of different devices.
        ValueError: the function creates variables, and may not.
    """
    try:
        return _trace_with(
            fn, rest, leaves, mesh, may_create, plan, trace_versions.NONE
        )
    except trace_versions.NeedsVersions:
        versions = trace_versions.Versions(are_needed=True)
        versions.advance()
        try:
            return _trace_with(fn, rest, leaves, mesh, may_create, plan, versions)
        finally:
            versions.close()


def _trace_with(
    fn: Callable[..., Any],
    rest: Any,
    leaves: Sequence[Any],
    mesh: topology.Topology | None,
    may_create: bool,
    plan: Sequence[Any],
    versions: trace_versions.Versions,
) -> TracedFunction:
    """Trace a function under the given versions of variables."""
    cells = frames.live_cells()
    seen: dict[str, Any] = {}

    def traced(stored: list[Any], arrays: list[Any]) -> Any:
        frame = frames.FunctionFrame(cells, stored, versions)
        with ambient.push(state=frame), library_hooks.enter_scopes():
            given = iter(arrays)
            args, kwargs, *fed = (signature.rebuild(r, given) for r in rest)
            args, kwargs = _replace_iterators((args, kwargs))
            frame.feeds = host_inputs.Feeds(list(zip(plan, fed, strict=True)))
            try:
                with contexts.explain_traced_values():
                    result = fn(*args, **kwargs)
            except (Exception, errors.Signal) as error:
                # Raise later: variables created so far must still get their values.
                seen["raised"], result = error, None
            else:
                frame.finish()
            if frame.created and not may_create:
                raise _late_creation_error(next(iter(frame.created)))
            outputs, flat = outputs_lib.flatten(result)
        seen["frame"], seen["outputs"], seen["written"] = frame, outputs, []
        created = list(frame.created.values())
        if "raised" in seen:
            return [], created, []
        changed = seen["written"] = [c for c in frame.written if c not in frame.created]
        return [frame.values[c] for c in changed], created, flat

    stored = [jax.ShapeDtypeStruct(c.stored_shape, c.dtype) for c in cells]
    closed = jax.make_jaxpr(traced)(stored, list(leaves))
    seen["name"] = getattr(fn, "__name__", "function")
    seen["kinds"] = [k for part in rest for k in signature.leaf_kinds(part)]
    found = _prune(closed, cells, seen, mesh)
    raised, is_late = seen.get("raised"), seen["frame"].is_late
    seen.clear()  # It holds tracers, which must not outlive the trace.
    if raised is None and not is_late:
        return found
    materialize(found, leaves)
    if raised is not None:
        raise raised
    return _trace_with(fn, rest, leaves, mesh, False, plan, versions)


def _prune(closed: Any, cells: list[Cell], seen: Any, mesh: Any) -> TracedFunction:
    """Return a trace without the variables that its program does not use."""
    frame = seen["frame"]
    # Dead code elimination may drop variables, which are the first inputs. Arguments
    # stay, so that a call passes them all.
    keep_args = [False] * len(cells) + [True] * (len(closed.jaxpr.invars) - len(cells))
    jaxpr, used = partial_eval.dce_jaxpr(
        closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=keep_args
    )
    read = [c for c, u in zip(cells, used, strict=False) if u]
    mesh = _common_mesh(mesh or frame.topology, [*read, *seen["written"]])
    if mesh is not None and mesh.spans:
        partitioner_limits.check(jaxpr)
    jaxpr = compiler_detours.rewrite(jaxpr)
    split = {c for c in (*read, *seen["written"]) if c.split is not None}
    return TracedFunction(
        jaxpr,
        closed.consts,
        read,
        seen["written"],
        dict(frame.created),
        seen["outputs"],
        mesh,
        seen["name"],
        mesh is not None and mesh.is_spread and _must_meet(jaxpr, read, seen),
        frozenset(c for c in split if partitioner_limits.must_gather(jaxpr, c.split)),
    )


def _must_meet(jaxpr: Any, read: Sequence[Cell], seen: Any) -> bool:
    """Whether all workers must call a program together, because it communicates."""
    is_stacked = any(c.is_stacked for c in (*read, *seen["written"]))
    has_rows = any(k in "pu" for k in seen["kinds"])
    return is_stacked or has_rows or replica_invariance.communicates(jaxpr)


def _replace_iterators(tree: Any) -> Any:
    """Return arguments with each iterator replaced by a `Handle`."""
    count = itertools.count()

    def leaf(x: Any) -> Any:
        return host_inputs.Handle(next(count)) if isinstance(x, signature.Source) else x

    return nest.map_structure(leaf, tree)


def _common_mesh(mesh: topology.Topology | None, cells: Sequence[Cell]) -> Any:
    """Return the devices of a program; all its replicated variables are on them.

    Args:
        mesh: the devices of its replicas or arguments, if there are any.
        cells: the cells that it uses.

    Raises:
        RuntimeError: variables are on the devices of different strategies.
    """
    first = None
    for cell in cells:
        if not cell.is_everywhere:
            continue
        mesh, first = mesh or cell.topology, first or cell
        if cell.topology != mesh:
            other = f"'{first.name}' (created at {first.origin})"
            raise RuntimeError(
                f"One function uses the variable '{cell.name}' (created at "
                f"{cell.origin}) on {cell.copies} devices and, for example, {other}, "
                "or replicas, on others. A compiled function runs on the devices of "
                "one strategy; use a function for each."
            )
    return mesh


def _late_creation_error(cell: Cell) -> ValueError:
    """Return the error for a variable that is created on a later call."""
    return ValueError(
        "tf.function only supports singleton tf.Variables created on the first call. "
        f"The variable '{cell.name}' is created on every call, at {cell.origin}. "
        "Create it once, outside the function or behind `if variable is None`."
    )


# Calling.


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
        self.mesh = first.mesh
        self._home = _home_sharding(first)
        self._traces: dict[Any, TracedFunction] = {}
        # When cells were last checked for arrays that others hold; see `frames.Clock`.
        self._clock = -1
        self._must_place = any(self._is_elsewhere(c) for c in first.read)
        self._results_elsewhere = [
            c for c in self.written if self._is_elsewhere(c) or self._is_free(c)
        ]
        self._throttled = first.mesh is not None and first.mesh.needs_throttle
        self._may_raise = _has_callbacks(first.jaxpr)
        self.name = first.name
        self._jitted = jax.jit(
            profile_names.give_name(self._evaluate, first.name),
            # A callback may fail while the program runs. The old arrays must then still
            # be there.
            donate_argnums=() if self._may_raise else 0,
            out_shardings=self._out_shardings(first),
        )
        self._collect = outputs_lib.collector(first.outputs, first.mesh)
        self._call_alone = self._call_carefully if self._may_raise else self._call
        self.call: Any = (
            self._call_together if first.needs_all_workers else self._call_alone
        )
        profile_names.watch(self)

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
            and set(self.donated) | set(self.kept) == set(other.read)
            and self._may_raise == _has_callbacks(other.jaxpr)
            and self.mesh == other.mesh
        )

    def serves(self, key: Any) -> bool:
        """Whether the program was traced for the shapes in `key` (see `aval_key`)."""
        return key in self._traces

    def add(self, key: Any, found: TracedFunction) -> None:
        """Add a trace, so that the program serves calls with the shapes in `key`."""
        self._traces[key] = found

    def _out_shardings(self, first: TracedFunction) -> Any:
        """Return where the program leaves the values of cells, and its result."""
        if first.mesh is None:
            return (
                None if self._home is None else ([self._home] * len(self.written), None)
            )
        same, split = first.mesh.replicated, first.mesh.stacked
        stored = [_stored_sharding(c, same) for c in self.written]
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
        by_cell = dict(zip([*self.donated, *self.kept], [*donated, *kept], strict=True))
        inputs = [_gather_if_needed(c, by_cell[c], found) for c in found.read]
        out = jax.core.eval_jaxpr(found.jaxpr, found.consts, *inputs, *leaves)
        count = len(self.written)
        stored = zip(self.written, out, strict=False)
        return [_gather_if_needed(c, x, found) for c, x in stored], out[count:]

    def _call(self, leaves: list[Any]) -> Any:
        """Gather the arrays of cells, call the program, store the new arrays."""
        done: list[Any] = []
        with _lock:
            # A donated array is gone. So cells whose arrays others may hold get copies
            # first; the clock tells whether there can be any.
            if self._clock != _clock.escapes:
                mirroring.unescape(self.donated)
                mirroring.settle(self.kept)
                self._clock = _clock.escapes
            donated = list(map(_ARRAY, self.donated))
            kept = list(map(_ARRAY, self.kept)) if self.kept else self.kept
            if self._must_place:
                donated, kept, leaves = self._place_inputs(donated, kept, leaves)
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
                    for cell, array in zip(self.written, done[0][0]):  # noqa: B905
                        cell.array = array
        # Virtual CPU devices hang if too many steps are in flight (decision 0005).
        if self._throttled:
            _throttle.count += 1
            if _throttle.count >= _throttle.group:
                _throttle.wait(done[0][1], done[0][0])
        if self._results_elsewhere or _eager.has_read:
            self._bring_home()
            _eager.changed()
        return self._collect(done[0][1])

    def _call_together(self, leaves: list[Any]) -> Any:
        """Call a program that all workers must call, while they watch each other."""
        watchdog.enter((self.name, [x.shape for x in leaves]))
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

    def _call_with_moved_arguments(self, error: Exception, leaves: list[Any]) -> Any:
        """Call again with the arguments moved, if they were on other devices.

        Otherwise raise `error`, in the user's terms.
        """
        if self._must_place or "incompatible devices" not in str(error):
            raise self._explain_failure(watchdog.explain(error)) from None
        # From now on: the next call most likely has its arguments there too.
        self._must_place = True
        return self._call(leaves)

    def _call_carefully(self, leaves: list[Any]) -> Any:
        """Call a program with callbacks; store its results if all of it succeeds."""
        # Nothing is donated, so a callback that raises leaves the old arrays in place.
        mirroring.settle([*self.donated, *self.kept])
        donated = [c.array for c in self.donated]
        kept = [c.array for c in self.kept]
        donated, kept, leaves = self._place_inputs(donated, kept, leaves)
        new, flat = jax.block_until_ready(self._jitted(donated, kept, leaves))
        for cell, array in zip(self.written, new, strict=True):
            cell.array = array
        self._bring_home()
        return self._collect(flat)

    def _bring_home(self) -> None:
        """Move new arrays back to the devices of cells that live elsewhere."""
        for cell in self._results_elsewhere:
            home = cell.sharding or jax.local_devices()[0]
            moved = jax.device_put(collectives.own_copy(cell.array), home)
            cell.array = moved if cell.sharding else collectives.release(moved)

    def _place_inputs(self, donated: Any, kept: Any, leaves: Any) -> Any:
        """Return the inputs of a call, copied to the program's devices if need be."""
        home = self._home
        if home is None:
            return donated, kept, leaves

        def move(cells: list[Cell], arrays: list[Any]) -> list[Any]:
            pairs = zip(cells, arrays, strict=True)
            return [
                _copy_to_home(a, home, self.mesh) if self._is_elsewhere(c) else a
                for c, a in pairs
            ]

        devices = home.device_set
        leaves = [
            x
            if isinstance(x, jax.Array) and x.sharding.device_set == devices
            else _put_at_home(x, home, self.mesh)
            for x in leaves
        ]
        return move(self.donated, donated), move(self.kept, kept), leaves

    def _explain_failure(self, error: BaseException) -> BaseException:
        """Return the error to raise for one that a call raised.

        It names the variables whose donated arrays are lost.
        """
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

    def lower(self, leaves: list[Any]) -> Any:
        """Return the program as `jax.stages.Lowered`, for inspection."""
        donated = [c.array for c in self.donated]
        kept = [c.array for c in self.kept]
        if self._must_place:
            donated, kept, leaves = self._place_inputs(donated, kept, leaves)
        return self._jitted.lower(donated, kept, leaves)


def _gather_if_needed(cell: Cell, array: Any, found: TracedFunction) -> Any:
    """Return the array of a cell, gathered if the program needs it whole."""
    if cell not in found.gathered:
        return array
    return jax.lax.with_sharding_constraint(array, cell.topology.replicated)


def _stored_sharding(cell: Cell, otherwise: Any) -> Any:
    """Return the sharding in which a program on a mesh leaves the array of a cell."""
    return cell.sharding if cell.is_everywhere else otherwise


def _put_at_home(array: Any, home: Any, mesh: topology.Topology | None) -> Any:
    """Return an argument on the program's devices."""
    if mesh is not None and mesh.is_spread:
        return mesh.spread(array)
    return jax.device_put(array, home)


def _copy_to_home(array: Any, home: Any, mesh: topology.Topology | None) -> Any:
    """Return a copy on the program's devices, which may be donated."""
    if mesh is not None and mesh.is_spread:
        return mesh.spread(jnp.copy(array))
    return jax.device_put(array, home, may_alias=False)


def _home_sharding(found: TracedFunction) -> Any:
    """Return the sharding of what a program has on one device, or on all alike."""
    if found.mesh is not None:
        return found.mesh.replicated
    cells = [*found.read, *found.written]
    return next((c.sharding for c in cells if c.sharding is not None), None)


def _has_callbacks(jaxpr: Any) -> bool:
    """Whether a program calls Python while it runs, where Python may raise."""
    return any(
        "callback" in e.primitive.name
        or e.primitive.name.startswith("debug")
        or any(map(_has_callbacks, _inner_programs(e)))
        for e in jaxpr.eqns
    )


def _inner_programs(equation: Any) -> list[Any]:
    """Return the programs inside an equation."""
    found = jax.tree.leaves(list(equation.params.values()))
    found = [getattr(p, "jaxpr", p) for p in found]
    return [p for p in found if hasattr(p, "eqns")]


def materialize(found: TracedFunction, leaves: Sequence[Any]) -> None:
    """Compute and store the first values of the variables that a trace has created."""
    start = len(found.written)
    stop = start + len(found.created)
    if start == stop:
        return
    wanted = [start <= i < stop for i in range(len(found.jaxpr.outvars))]
    # `jax.debug.print` has effects, so dead code elimination would keep it. It must not
    # print here: the program itself prints when it runs.
    silent = [e for e in found.jaxpr.eqns if not e.primitive.name.startswith("debug")]
    jaxpr, used = partial_eval.dce_jaxpr(found.jaxpr.replace(eqns=silent), wanted)
    given = [*(c.array for c in found.read), *leaves]
    needed = [x for x, u in zip(given, used, strict=True) if u]
    made = jax.jit(
        lambda *xs: jax.core.eval_jaxpr(jaxpr, found.consts, *xs),
        # A split variable may be too large for one device, so it is made split.
        out_shardings=[c.sharding if c.split else None for c in found.created],
    )(*needed)
    for cell, value in zip(found.created, made, strict=True):
        if cell.is_spread:
            value = collectives.own_copy(value)
            cell.begin(value[0] if cell.is_stacked else value)
        else:
            cell.store(value)
