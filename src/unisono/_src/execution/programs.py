"""Compiled programs: tracing one, and the path of every later call.

A call gathers the arrays of the variables that the program touches, calls a jitted
function with those it writes donated, and stores what comes back. Which variables
those are is found in one trace, in which every live variable is an input; the unused
ones are then dropped from the program.
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

_lock, _clock = frames.LOCK, frames.Clock
_throttle, _eager = topology.THROTTLE, trace_versions.EAGER
_ARRAY = operator.attrgetter("array")


class Miss(errors.Signal):
    """A program was called with shapes or types that it was not traced for."""


@final
@dataclasses.dataclass
class Trace:
    """One trace of a Python function."""

    jaxpr: Any
    consts: Sequence[Any]
    read: list[Cell]
    written: list[Cell]
    created: dict[Cell, Any]
    outputs: Any
    mesh: topology.Topology | None
    name: str
    meets: bool
    gathered: frozenset[Cell]


def aval_key(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Shapes and types of arrays, as JAX tells calls apart."""
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
) -> Trace:
    """Run the Python function once on abstract values.

    Once more if a body that JAX traces by itself reads variables (see `versions`), or
    if it met variables that were made after the trace had begun.

    Args:
        fn: the function.
        rest: of its flattened arguments, keyword arguments and fed elements.
        leaves: their arrays.
        mesh: the devices it will run on, if that is known.
        may_create: whether it may create variables.
        plan: which iterators the fed elements come from.
    """
    try:
        return _trace(fn, rest, leaves, mesh, may_create, plan, trace_versions.NONE)
    except trace_versions.NeedsVersions:
        kept = trace_versions.Versions(are_needed=True)
        kept.advance()
        try:
            return _trace(fn, rest, leaves, mesh, may_create, plan, kept)
        finally:
            kept.close()


def _trace(
    fn: Callable[..., Any],
    rest: Any,
    leaves: Sequence[Any],
    mesh: topology.Topology | None,
    may_create: bool,
    plan: Sequence[Any],
    kept: trace_versions.Versions,
) -> Trace:
    cells = frames.live_cells()
    seen: dict[str, Any] = {}

    def traced(stored: list[Any], arrays: list[Any]) -> Any:
        frame = frames.FunctionFrame(cells, stored, kept)
        with ambient.pushed(state=frame), library_hooks.entered():
            given = iter(arrays)
            args, kwargs, *fed = (signature.rebuild(r, given) for r in rest)
            args, kwargs = _with_handles((args, kwargs))
            frame.feeds = host_inputs.Feeds(list(zip(plan, fed, strict=True)))
            try:
                with contexts.explained():
                    result = fn(*args, **kwargs)
            except (Exception, errors.Signal) as error:
                # What was created shall have its value although the call fails.
                seen["raised"], result = error, None
            else:
                frame.finish()
            if frame.created and not may_create:
                raise _created_again(next(iter(frame.created)))
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
    found = _pruned(closed, cells, seen, mesh)
    raised, is_late = seen.get("raised"), seen["frame"].is_late
    seen.clear()
    if raised is None and not is_late:
        return found
    materialize(found, leaves)
    if raised is not None:
        raise raised
    return _trace(fn, rest, leaves, mesh, False, plan, kept)


def _pruned(closed: Any, cells: list[Cell], seen: Any, mesh: Any) -> Trace:
    frame = seen["frame"]
    keep_args = [False] * len(cells) + [True] * (len(closed.jaxpr.invars) - len(cells))
    jaxpr, used = partial_eval.dce_jaxpr(
        closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=keep_args
    )
    read = [c for c, u in zip(cells, used, strict=False) if u]
    mesh = _one_mesh(mesh or frame.topology, [*read, *seen["written"]])
    if mesh is not None and mesh.spans:
        partitioner_limits.check(jaxpr)
    jaxpr = compiler_detours.rewrite(jaxpr)
    split = {c for c in (*read, *seen["written"]) if c.split is not None}
    return Trace(
        jaxpr,
        closed.consts,
        read,
        seen["written"],
        dict(frame.created),
        seen["outputs"],
        mesh,
        seen["name"],
        mesh is not None and mesh.is_spread and _meets(jaxpr, read, seen),
        frozenset(c for c in split if partitioner_limits.must_gather(jaxpr, c.split)),
    )


def _meets(jaxpr: Any, read: Sequence[Cell], seen: Any) -> bool:
    """Whether workers need each other for a program: one alone may run others."""
    is_stacked = any(c.is_stacked for c in (*read, *seen["written"]))
    has_rows = any(k in "pu" for k in seen["kinds"])
    return is_stacked or has_rows or replica_invariance.communicates(jaxpr)


def _with_handles(tree: Any) -> Any:
    """Arguments with a stand-in for each iterator."""
    count = itertools.count()

    def leaf(x: Any) -> Any:
        return host_inputs.Handle(next(count)) if isinstance(x, signature.Source) else x

    return nest.map_structure(leaf, tree)


def _one_mesh(mesh: topology.Topology | None, cells: Sequence[Cell]) -> Any:
    """The devices that a program needs; all its replicated variables share them."""
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


def _created_again(cell: Cell) -> ValueError:
    return ValueError(
        "tf.function only supports singleton tf.Variables created on the first call. "
        f"The variable '{cell.name}' is created on every call, at {cell.origin}. "
        "Create it once, outside the function or behind `if variable is None`."
    )


# Calling.


@final
class Program:
    """A jitted function with the cells it reads and writes."""

    def __init__(self, first: Trace) -> None:
        written = dict.fromkeys(first.written)
        self.outputs = first.outputs
        self.donated = [c for c in first.read if c in written]
        self.kept = [c for c in first.read if c not in written]
        self.written = first.written
        self.mesh = first.mesh
        self._home = _home(first)
        self._traces: dict[Any, Trace] = {}
        self._clock = -1
        self._places = any(self._is_elsewhere(c) for c in first.read)
        self._elsewhere_out = [
            c for c in self.written if self._is_elsewhere(c) or self._is_free(c)
        ]
        self._throttled = first.mesh is not None and first.mesh.needs_throttle
        self._may_raise = _calls_back(first.jaxpr)
        self.name = first.name
        self._jitted = jax.jit(
            profile_names.named(self._evaluate, first.name),
            # What a failing callback leaves behind must not be the only copy.
            donate_argnums=() if self._may_raise else 0,
            out_shardings=self._out_shardings(first),
        )
        self._collect = outputs_lib.collector(first.outputs, first.mesh)
        self._call_alone = self._call_carefully if self._may_raise else self._call
        self.call: Any = self._call_together if first.meets else self._call_alone
        profile_names.watch(self)

    def _is_elsewhere(self, cell: Cell) -> bool:
        """Whether the cell lives on other devices than the program runs on."""
        if self.mesh is not None:
            return not cell.is_everywhere
        return cell.sharding is not None and cell.sharding != self._home

    def _is_free(self, cell: Cell) -> bool:
        """Whether the cell belongs to no device, but the program does."""
        return cell.sharding is None and self._home is not None

    def fits(self, other: Trace) -> bool:
        """Whether another trace differs only in the shapes of arguments."""
        return (
            self.outputs == other.outputs
            and self.written == other.written
            and set(self.donated) | set(self.kept) == set(other.read)
            and self._may_raise == _calls_back(other.jaxpr)
            and self.mesh == other.mesh
        )

    def serves(self, key: Any) -> bool:
        """Whether it was traced for arguments of the shapes in `key`."""
        return key in self._traces

    def add(self, key: Any, found: Trace) -> None:
        """Let the program serve calls with arguments of the shapes in `key`."""
        self._traces[key] = found

    def _out_shardings(self, first: Trace) -> Any:
        if first.mesh is None:
            return (
                None if self._home is None else ([self._home] * len(self.written), None)
            )
        same, split = first.mesh.replicated, first.mesh.stacked
        stored = [_stored_as(c, same) for c in self.written]
        kinds = signature.leaf_kinds(first.outputs)
        return stored, [split if kind == "p" else same for kind in kinds]

    def _evaluate(
        self, donated: list[Any], kept: list[Any], leaves: list[Any]
    ) -> tuple[list[Any], list[Any]]:
        found = self._traces.get(aval_key(leaves))
        if found is None:
            raise Miss
        by_cell = dict(zip([*self.donated, *self.kept], [*donated, *kept], strict=True))
        inputs = [_whole(c, by_cell[c], found) for c in found.read]
        out = jax.core.eval_jaxpr(found.jaxpr, found.consts, *inputs, *leaves)
        count = len(self.written)
        stored = zip(self.written, out, strict=False)
        return [_whole(c, x, found) for c, x in stored], out[count:]

    def _call(self, leaves: list[Any]) -> Any:
        """Gather, call, scatter."""
        done: list[Any] = []
        with _lock:
            if self._clock != _clock.escapes:
                mirroring.unescape(self.donated)
                mirroring.settle(self.kept)
                self._clock = _clock.escapes
            donated = list(map(_ARRAY, self.donated))
            kept = list(map(_ARRAY, self.kept)) if self.kept else self.kept
            if self._places:
                donated, kept, leaves = self._placed(donated, kept, leaves)
            try:
                # An interrupt strikes between two instructions of Python. This is
                # one: whatever happens after it, the results are there to be stored.
                done.extend(map(self._jitted, (donated,), (kept,), (leaves,)))
            except Exception as error:
                return self._again(error, leaves)
            finally:
                if done:
                    for cell, array in zip(self.written, done[0][0]):  # noqa: B905
                        cell.array = array
        if self._throttled:
            _throttle.count += 1
            if _throttle.count >= _throttle.group:
                _throttle.wait(done[0][1], done[0][0])
        if self._elsewhere_out or _eager.has_read:
            self._bring_home()
            _eager.changed()
        return self._collect(done[0][1])

    def _call_together(self, leaves: list[Any]) -> Any:
        """A call that all workers must make; they watch each other."""
        watchdog.enter((self.name, [x.shape for x in leaves]))
        try:
            return self._call_alone(leaves)
        except Miss:
            watchdog.leave()
            raise
        except ValueError as error:
            # How JAX tells that a collective of an earlier step has failed.
            watchdog.raise_explained(error)

    def _again(self, error: Exception, leaves: list[Any]) -> Any:
        """Once more with the arguments moved, if they were on other devices."""
        if self._places or "incompatible devices" not in str(error):
            raise self._explained(watchdog.explain(error)) from None
        self._places = True
        return self._call(leaves)

    def _call_carefully(self, leaves: list[Any]) -> Any:
        """Store nothing before all of it is there: Python code may raise on the way."""
        mirroring.settle([*self.donated, *self.kept])
        donated = [c.array for c in self.donated]
        kept = [c.array for c in self.kept]
        donated, kept, leaves = self._placed(donated, kept, leaves)
        new, flat = jax.block_until_ready(self._jitted(donated, kept, leaves))
        for cell, array in zip(self.written, new, strict=True):
            cell.array = array
        self._bring_home()
        return self._collect(flat)

    def _bring_home(self) -> None:
        for cell in self._elsewhere_out:
            home = cell.sharding or jax.local_devices()[0]
            moved = jax.device_put(collectives.own_copy(cell.array), home)
            cell.array = moved if cell.sharding else collectives.release(moved)

    def _placed(self, donated: Any, kept: Any, leaves: Any) -> Any:
        """Copy what lives on other devices to those of the program."""
        home = self._home
        if home is None:
            return donated, kept, leaves

        def move(cells: list[Cell], arrays: list[Any]) -> list[Any]:
            pairs = zip(cells, arrays, strict=True)
            return [
                _moved(a, home, self.mesh) if self._is_elsewhere(c) else a
                for c, a in pairs
            ]

        devices = home.device_set
        leaves = [
            x
            if isinstance(x, jax.Array) and x.sharding.device_set == devices
            else _put(x, home, self.mesh)
            for x in leaves
        ]
        return move(self.donated, donated), move(self.kept, kept), leaves

    def _explained(self, error: BaseException) -> BaseException:
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

    def lowered(self, leaves: list[Any]) -> Any:
        """The program's lowering, for inspection."""
        donated = [c.array for c in self.donated]
        kept = [c.array for c in self.kept]
        if self._places:
            donated, kept, leaves = self._placed(donated, kept, leaves)
        return self._jitted.lower(donated, kept, leaves)


def _whole(cell: Cell, array: Any, found: Trace) -> Any:
    """The array of a cell as a program may have it."""
    if cell not in found.gathered:
        return array
    return jax.lax.with_sharding_constraint(array, cell.topology.replicated)


def _stored_as(cell: Cell, otherwise: Any) -> Any:
    """How a program on many devices leaves the array of a cell."""
    return cell.sharding if cell.is_everywhere else otherwise


def _put(array: Any, home: Any, mesh: topology.Topology | None) -> Any:
    if mesh is not None and mesh.is_spread:
        return mesh.spread(array)
    return jax.device_put(array, home)


def _moved(array: Any, home: Any, mesh: topology.Topology | None) -> Any:
    """A copy that may be donated."""
    if mesh is not None and mesh.is_spread:
        return mesh.spread(jnp.copy(array))
    return jax.device_put(array, home, may_alias=False)


def _home(found: Trace) -> Any:
    """Where a program keeps what is on one device only, or on all of them alike."""
    if found.mesh is not None:
        return found.mesh.replicated
    cells = [*found.read, *found.written]
    return next((c.sharding for c in cells if c.sharding is not None), None)


def _calls_back(jaxpr: Any) -> bool:
    """Whether a program calls Python while it runs, which may raise there."""
    return any(
        "callback" in e.primitive.name
        or e.primitive.name.startswith("debug")
        or any(map(_calls_back, _inner(e)))
        for e in jaxpr.eqns
    )


def _inner(equation: Any) -> list[Any]:
    found = jax.tree.leaves(list(equation.params.values()))
    found = [getattr(p, "jaxpr", p) for p in found]
    return [p for p in found if hasattr(p, "eqns")]


def materialize(found: Trace, leaves: Sequence[Any]) -> None:
    """Give the variables that a trace has created their first values."""
    start = len(found.written)
    stop = start + len(found.created)
    if start == stop:
        return
    wanted = [start <= i < stop for i in range(len(found.jaxpr.outvars))]
    silent = [e for e in found.jaxpr.eqns if not e.primitive.name.startswith("debug")]
    jaxpr, used = partial_eval.dce_jaxpr(found.jaxpr.replace(eqns=silent), wanted)
    given = [*(c.array for c in found.read), *leaves]
    needed = [x for x, u in zip(given, used, strict=True) if u]
    made = jax.jit(
        lambda *xs: jax.core.eval_jaxpr(jaxpr, found.consts, *xs),
        # No device shall ever hold the whole of what is cut.
        out_shardings=[c.sharding if c.split else None for c in found.created],
    )(*needed)
    for cell, value in zip(found.created, made, strict=True):
        if cell.is_spread:
            value = collectives.own_copy(value)
            cell.begin(value[0] if cell.is_stacked else value)
        else:
            cell.store(value)
