"""Traces Python functions: what their programs compute, and which variables they use.

One trace finds the variables: every live variable is an input of it, and those that the
program does not use are then dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import partial_eval
from jax.sharding import Sharding
from jax.typing import ArrayLike

from unisono._src.execution import (
    compiler_limits,
    conversion as conversion_lib,
    equations,
    host_inputs,
    signature,
    traced_values,
    unchanged_arguments,
    value_sources,
)
from unisono._src.foundation import ambient, errors, jax_internals, library_hooks
from unisono._src.machines import topology
from unisono._src.state import function_frame, storage, trace_versions
from unisono._src.state.remote_state import Change
from unisono._src.state.storage import Cell
from unisono._src.values import collectives
from unisono._src.workers import eager_exchange

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr

# The devices of a program; None for a single one.
_Mesh = topology.Topology | None
# What is known of a trace, by name.
_Seen = dict[str, Any]


@final
@dataclasses.dataclass
class TracedFunction:
    """The program of a Python function for arguments of certain shapes.

    Attributes:
        jaxpr: the program. Its inputs are the values of `read`, then the arguments; its
            outputs are those of `written`, of `created`, the operands of `changes`,
            then the result.
        constants: the constants of the program.
        read: the cells whose values the program uses.
        written: the cells that it assigns.
        created: the cells that the trace has made, with their traced first values.
        outputs: the structure of the result.
        mesh: the devices that it runs on; None for a single device.
        name: the name of the function.
        needs_all_workers: whether all workers must call it together.
        gathered: the split cells that it may use only as a whole.
        has_worker_parts: whether the program differs between workers, by design.
        changes: what parameter servers do with the cells that they keep, in order. Its
            operands are the avals of the arrays that the program computes.
        unproved: what the workers compare when they call it together.
    """

    jaxpr: Jaxpr
    constants: value_sources.Constants
    read: list[Cell]
    written: list[Cell]
    created: dict[Cell, Any]
    outputs: Any
    mesh: _Mesh
    name: str
    needs_all_workers: bool
    gathered: frozenset[Cell]
    has_worker_parts: bool
    changes: list[Change]
    unproved: value_sources.Unproved

    @property
    def uses_servers(self) -> bool:
        """Whether parameter servers keep some of the cells."""
        return bool(self.changes) or any(c.home is not None for c in self.read)

    @property
    def home(self) -> Sharding | None:
        """The sharding of its arrays that are not split by replica; None for any."""
        if self.mesh is not None:
            return self.mesh.replicated_sharding
        cells = [*self.read, *self.written]
        return next((c.sharding for c in cells if c.sharding is not None), None)

    def result_avals(self) -> list[jax.core.ShapedArray]:
        """Return the shapes and types of the arrays of the result."""
        start = len(self.written) + len(self.created)
        start += sum(len(c.operands) for c in self.changes)
        return [equations.aval_of(v) for v in self.jaxpr.outvars[start:]]


class NeedsRetrace(errors.Signal):
    """A program was called with shapes or settings that it was not traced for.

    Only JAX's own dispatch, which is fast, compares them: a program that JAX has not
    compiled for them calls back into Python, which finds no trace and raises this.
    """


# JAX's settings that change what a trace computes. JAX compiles for each of their
# values, also in a block such as `with jax.default_matmul_precision("highest")`.
_SETTINGS = tuple(
    jax_internals.find_setting(f"jax_{name}")
    for name in (
        "default_matmul_precision",
        "enable_x64",
        "numpy_dtype_promotion",
        "numpy_rank_promotion",
        "threefry_partitionable",
    )
)


def aval_key(leaves: Sequence[ArrayLike]) -> tuple[Any, Any]:
    """Return by what JAX tells calls apart: shapes and types, and its settings."""
    found = (jax.typeof(x) for x in leaves)
    shapes = tuple((a.shape, a.dtype, a.weak_type) for a in found)
    return shapes, tuple([s.value for s in _SETTINGS])


@final
class TracesByShape(dict[object, TracedFunction]):
    """The traces that one program serves, by shapes and settings (see `aval_key`)."""

    def find_known(self, leaves: Sequence[ArrayLike]) -> TracedFunction:
        """Return the trace for arguments that the program is known to serve."""
        if len(self) == 1:
            return next(iter(self.values()))
        return self.find_for(leaves)

    def find_for(self, leaves: Sequence[ArrayLike]) -> TracedFunction:
        """Return the trace for arguments of such shapes.

        Raises:
            NeedsRetrace: there is none.
        """
        found = self.get(aval_key(leaves))
        if found is None:
            raise NeedsRetrace
        return found


@final
class TracedCall(NamedTuple):
    """The trace of a call that did not run.

    Attributes:
        trace: the trace.
        arrays: the arrays of the arguments.
        iterators: the iterators that the function takes elements from, in order.
        elements: the arrays of each of these elements, by shape and type.
    """

    trace: TracedFunction
    arrays: list[jax.Array]
    iterators: list[host_inputs.HostIterator]
    elements: list[list[jax.Array]]


@final
class Placeholder(np.ndarray):
    """Stands for an array of which only the shape and type are known."""


def trace(
    fn: Callable[..., Any],
    rest: object,
    leaves: Sequence[Any],
    mesh: _Mesh,
    may_create: bool,
    feeds: host_inputs.ElementFeeds,
    conversion: conversion_lib.Conversion,
) -> TracedFunction:
    """Trace a Python function by running it once on abstract values.

    It runs once more if a body that JAX traces by itself reads variables (see
    `trace_versions`), if it reads variables that were made after the trace began, if it
    has drawn random numbers of a state that was made for it, or if AutoGraph must
    convert it.

    Args:
        fn: the function.
        rest: the rest (see `signature`) of its arguments and keyword arguments.
        leaves: the arrays of both.
        mesh: the devices it will run on, if that is known.
        may_create: whether it may create variables.
        feeds: the elements that it takes from iterators.
        conversion: whether it is converted by AutoGraph.

    Raises:
        RuntimeError: the function uses variables of different devices.
        ValueError: the function creates variables, and may not.
    """
    versions = trace_versions.NONE
    try:
        while True:
            try:
                return _trace_with(
                    fn, rest, leaves, mesh, may_create, feeds, versions, conversion
                )
            except trace_versions.NeedsVersions:
                versions = trace_versions.Versions(are_needed=True)
                versions.advance()
            except trace_versions.NeedsNewTrace:
                continue
            except conversion_lib.NeedsConversion:
                conversion.is_on = True
    finally:
        if versions is not trace_versions.NONE:
            versions.close()


# The phases: run the function on tracers, under a frame that notes reads and writes;
# prove that copies which were written one by one are equal; drop the variables that the
# program does not use; and store the first values of new variables if the trace has to
# be repeated or has failed.
def _trace_with(
    fn: Callable[..., Any],
    rest: Any,
    leaves: Sequence[Any],
    mesh: _Mesh,
    may_create: bool,
    feeds: host_inputs.ElementFeeds,
    versions: trace_versions.Versions,
    conversion: conversion_lib.Conversion,
) -> TracedFunction:
    """Trace a function under the given versions of variables."""
    cells = storage.live_cells()
    seen: _Seen = {"name": getattr(fn, "__name__", "function")}

    def traced(stored: list[Any], arrays: list[Any]) -> Any:
        frame = function_frame.FunctionFrame(cells, stored, versions)
        frame.feeds, frame.program, frame.is_converted = feeds, fn, conversion.is_on
        with ambient.push(state=frame), library_hooks.enter_scopes():
            args, kwargs = feeds.begin(rest, arrays)
            try:
                with traced_values.explain():
                    chosen = conversion.choose(fn)
                    result = unchanged_arguments.call(chosen, args, kwargs)
                feeds.finish()
            except (Exception, errors.Signal) as error:
                # Raise later: variables created so far must still get their values.
                seen["raised"], result = error, None
            else:
                frame.finish()
            if frame.created and not may_create:
                raise _late_creation_error(next(iter(frame.created)))
            outputs, flat = signature.flatten_result(result)
        seen["frame"], seen["outputs"] = frame, outputs
        return _collect_outputs(frame, flat, seen)

    # Shapes are enough, and variables on servers have no array here.
    stored = [jax.ShapeDtypeStruct(c.stored_shape, c.dtype) for c in cells]
    given = (stored, [*leaves, *feeds.arrays])
    made = traced_values.check(jax.make_jaxpr(traced)(*given), conversion.is_on)
    closed = feeds.as_arguments(made, given)
    value_sources.check(closed, seen["alike"])
    seen["kinds"] = signature.leaf_kinds(("t", (*rest, *feeds.parts)))
    found = _prune(closed, cells, seen, mesh)
    raised, is_late = seen.get("raised"), seen["frame"].is_late
    seen.clear()  # It holds tracers, which must not outlive the trace.
    if raised is None and not is_late:
        return found
    materialize(found, [*leaves, *feeds.arrays])
    if raised is not None:
        raise raised
    return _trace_with(fn, rest, leaves, mesh, False, feeds, versions, conversion)


def _collect_outputs(
    frame: function_frame.FunctionFrame, flat: list[Any], seen: _Seen
) -> tuple[list[Any], ...]:
    """Return the outputs of a trace, and note in `seen` which cells they are for.

    Args:
        frame: the frame of the program.
        flat: the arrays of the function's result.
        seen: what is known of the trace.

    Returns:
        The new values of cells, the first values of cells, the operands of changes that
        servers make, the result, and pairs of values that must be equal.
    """
    seen["written"], seen["alike"], seen["changes"] = [], [], []
    created = list(frame.created.values())
    if "raised" in seen:
        return [], created, [], [], []
    changed = seen["written"] = [c for c in frame.written if c not in frame.created]
    seen["alike"] = [cell for cell, *_ in frame.alike]
    alike = value_sources.flatten(frame.alike)
    operands = [jnp.asarray(x) for c in frame.changes for x in c.operands]
    seen["changes"] = [
        dataclasses.replace(c, operands=tuple(jax.typeof(x) for x in c.operands))
        for c in frame.changes
    ]
    return [frame.values[c] for c in changed], created, operands, flat, alike


def _prune(
    closed: jax_internals.ClosedProgram, cells: list[Cell], seen: _Seen, mesh: _Mesh
) -> TracedFunction:
    """Return a trace without the variables that its program does not use."""
    frame = seen["frame"]
    # Dead code elimination may drop variables, which are the first inputs. Arguments
    # stay, so that a call passes them all.
    keep_args = [False] * len(cells) + [True] * (len(closed.jaxpr.invars) - len(cells))
    # The values that had to be equal were outputs only to be compared.
    compared = 2 * len(seen["alike"])
    wanted = [True] * (len(closed.jaxpr.outvars) - compared) + [False] * compared
    jaxpr, used = partial_eval.dce_jaxpr(closed.jaxpr, wanted, instantiate=keep_args)
    read = [c for c, u in zip(cells, used, strict=False) if u]
    # Only now: a live variable that the program does not use may be another strategy's.
    mesh = _common_mesh(mesh or frame.topology, [*read, *seen["written"]])
    if mesh is not None and mesh.spans:
        compiler_limits.check(jaxpr)
    # After `check`, which would take the layouts that this adds for the user's.
    jaxpr = compiler_limits.rewrite(jaxpr)
    split = {c for c in (*read, *seen["written"]) if c.split is not None}
    constants = value_sources.Constants(closed.consts, mesh)
    return TracedFunction(
        jaxpr,
        constants,
        read,
        seen["written"],
        dict(frame.created),
        seen["outputs"],
        mesh,
        seen["name"],
        mesh is not None and mesh.is_spread and _must_meet(jaxpr, read, seen),
        frozenset(c for c in split if compiler_limits.must_gather(jaxpr, c.split)),
        frame.has_worker_parts,
        seen["changes"],
        _find_unproved(jaxpr, constants, read, seen, mesh),
    )


def _find_unproved(
    jaxpr: Jaxpr,
    constants: value_sources.Constants,
    read: Sequence[Cell],
    seen: _Seen,
    mesh: _Mesh,
) -> value_sources.Unproved:
    """Return what the workers compare when they call a program together."""
    if mesh is None or not mesh.is_spread:
        return value_sources.Unproved()
    kinds = seen["kinds"]
    own = [not c.is_everywhere for c in read] + [k not in "pu" for k in kinds]
    # Workers that take local results of uneven shapes each take another part.
    has_parts = seen["frame"].has_worker_parts
    differs = [False] * len(read) + [has_parts and k == "u" for k in kinds]
    return value_sources.find_unproved(jaxpr, constants, own, seen["written"], differs)


def _must_meet(jaxpr: Jaxpr, read: Sequence[Cell], seen: _Seen) -> bool:
    """Whether all workers must call a program together.

    It communicates, or it changes a variable that they share. What is read of a
    variable that they have in parts is gathered by XLA, which the program does not say.
    """
    cells = (*read, *seen["written"])
    has_parts = any(c.is_stacked or (c.split and c.is_spread) for c in cells)
    has_rows = any(k in "pu" for k in seen["kinds"])
    changes = any(map(value_sources.is_shared, seen["written"]))
    return has_parts or has_rows or changes or value_sources.communicates(jaxpr)


def _common_mesh(mesh: _Mesh, cells: Sequence[Cell]) -> topology.Topology | None:
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


def put_at_home(array: ArrayLike, home: Sharding, mesh: _Mesh) -> jax.Array:
    """Return an input of a program, copied to the program's devices if need be.

    Args:
        array: the input.
        home: the sharding of the program's arrays that are not split by replica.
        mesh: the devices of the program; None for a single device.
    """
    if isinstance(array, jax.Array) and array.sharding.device_set == home.device_set:
        return array
    if mesh is not None and mesh.is_spread:
        placed: jax.Array = collectives.copy_weak_type(mesh.spread(array), array)
    else:
        placed = jax.device_put(array, home)
    return placed


def _take_first(found: TracedFunction, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Return worker 0's arrays for those that each worker has for itself.

    What workers compute in parts must be of one and the same input. If the trace makes
    no variable in parts, or they have the arrays in parts, nothing is sent.
    """
    cut = next((c for c in found.created if c.split and c.is_spread), None)
    if cut is None:
        return list(arrays)
    point, mesh = f"creation of variables in '{found.name}'", cut.topology

    def take(x: jax.Array) -> jax.Array:
        if not getattr(x, "is_fully_addressable", True) and not x.is_fully_replicated:
            return x
        own = collectives.own_copy(x)
        spread: jax.Array = mesh.spread(
            eager_exchange.broadcast_first(mesh, point, own)
        )
        return spread

    return list(map(take, arrays))


def materialize(found: TracedFunction, leaves: Sequence[Any]) -> None:
    """Compute and store the first values of the variables that a trace has created."""
    start = len(found.written)
    stop = start + len(found.created)
    if start == stop:
        return
    wanted = [start <= i < stop for i in range(len(found.jaxpr.outvars))]
    # `jax.debug.print` has effects, so dead code elimination would keep it, also in a
    # loop. It must not print here: the program itself prints when it runs.
    silent = [
        e.replace(effects=frozenset())
        for e in found.jaxpr.eqns
        if not e.primitive.name.startswith("debug")
    ]
    jaxpr, used = partial_eval.dce_jaxpr(found.jaxpr.replace(eqns=silent), wanted)
    given = [*map(storage.stored_array, found.read), *leaves]
    needed = [x for x, u in zip(given, used, strict=True) if u]
    if any(isinstance(x, Placeholder) for x in needed):
        raise ValueError(
            "The first value of a variable depends on an argument of the function, of "
            "which get_concrete_function knows the shape only. Call the function once "
            "before, or give the variable a value that needs no argument."
        )
    home, constants = found.home, found.constants.spread
    needed, constants = _take_first(found, needed), _take_first(found, constants)
    if home is not None:
        # A variable may be on a parameter device, away from the replicas.
        needed = [put_at_home(x, home, found.mesh) for x in needed]
    # A program of its own, which runs once: the function's own program comes later.
    made = jax.jit(
        lambda spread, *xs: jax.core.eval_jaxpr(
            jaxpr, found.constants.fill_in(spread), *xs
        ),
        # A split variable may be too large for one device, so it is made split.
        out_shardings=[c.sharding if c.split else None for c in found.created],
    )(constants, *needed)
    for cell, value in zip(found.created, made, strict=True):
        if cell.array is not None:
            # A block of `init_scope` has assigned the variable: as in TensorFlow, that
            # is its first value.
            continue
        if not cell.is_spread:
            cell.store(value)
        elif cell.split is not None:
            # Of inputs that are worker 0's, by all workers together.
            cell.begin(value)
        else:
            # Workers may have computed different values; `begin` takes worker 0's.
            value = collectives.own_copy(value)
            cell.begin(value[0] if cell.is_stacked else value)
