"""The SPMD executor: one program serves all replicas (decision 0002)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from unisono._src.execution import (
    contexts,
    conversion,
    equations,
    late_gathers,
    late_values,
    merging,
    traced_values,
    value_sources,
)
from unisono._src.foundation import errors, nest
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.machines.partition import Split
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.state import frames, replica_frame, storage
from unisono._src.state.storage import Cell
from unisono._src.values import distributed, ports
from unisono._src.values.array_operators import StandsForArray


@final
@dataclasses.dataclass
class _ReplicaTrace:
    """The program of a replica function, and what its outputs are.

    Attributes:
        closed: the program, with the `shard_map` over the replicas in it.
        shape: the result, with a slot for each array.
        arrays: how many outputs are arrays of the result.
        merged: whether the function called `merge_call`.
        replicated: cells that get one value, equal on all replicas.
        stacked: cells that get a value per replica.
        cut: cells of which each replica has assigned its part.
        created: cells that the function has created.
        shared: values of the result that a `merge_call` returned.
        alike: cells for whose update a further value must be equal on all replicas.
    """

    closed: Any = None
    shape: Any = None
    arrays: int = 0
    merged: bool = False
    replicated: list[Cell] = dataclasses.field(default_factory=list)
    stacked: list[Cell] = dataclasses.field(default_factory=list)
    cut: list[Cell] = dataclasses.field(default_factory=list)
    created: list[Cell] = dataclasses.field(default_factory=list)
    shared: list[Any] = dataclasses.field(default_factory=list)
    alike: list[Cell] = dataclasses.field(default_factory=list)


@final
@dataclasses.dataclass(frozen=True)
class _ResultSlot:
    """Stands in a result for a per-replica value that the program returns.

    Attributes:
        arrays: how many arrays the value has.
        treedef: its structure.
    """

    arrays: int
    treedef: jax.tree_util.PyTreeDef


@final
@dataclasses.dataclass(frozen=True)
class _Slot:
    """Stands in arguments for a per-replica value, or in a result for a merged one.

    Attributes:
        index: its position among those values.
    """

    index: int


def run(
    placement: storage.Placement,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Trace `fn` in a `shard_map` over the replicas, and return the merged result.

    Args:
        placement: the placement of the strategy that runs the replicas.
        fn: the replica function.
        args: its positional arguments; `PerReplica` leaves have the stacked form.
        kwargs: its keyword arguments.

    Raises:
        NeedsLockstep: one program cannot serve all replicas.
        ValueError: copies of a mirrored variable would differ between replicas.
    """
    conversion.note_step()
    outer, topology = frames.frame(), placement.topology
    inputs, skeleton = _take_out_values(((args), kwargs), topology)
    # A stacked or cut cell of another strategy has no part for each replica of this
    # one. It is no input here; a read of it goes to the frame around the replicas.
    cells = [c for c in outer.cells() if not _has_parts(c) or c.topology == topology]
    stored = [_spread_copies(c, outer.whole(c)) for c in cells]

    program = frames.outermost()
    before = program.seeded

    def trace() -> _ReplicaTrace:
        # The random operations of each trace are the same ones, with the same states.
        program.seeded = before
        return _trace(placement, fn, skeleton, cells, (inputs, stored))

    # If Python's state, such as a counter, takes part in the function, other replicas
    # would make other programs. So trace it for them too, and compare.
    seen = trace()
    _check_replicated(seen, cells)
    for _ in range(_count_further_traces(seen, topology.copies)):
        if not _is_same(seen, trace()):
            raise ports.NeedsLockstep(
                "The replica function makes another program on another call, so each "
                "replica gets its own; that is slow. Python state, such as a counter "
                "or NumPy's random numbers, is probably the cause."
            )
    if seen.closed.effects and not seen.closed.out_avals:
        # Without results on the devices of all replicas, XLA would run it on one.
        raise ports.NeedsLockstep("The replica function has effects and no result.")
    # The traced program becomes a part of the one around it.
    given = jax.tree.leaves((inputs, stored))
    closed = _gather_late(placement, seen, cells)
    flat = jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *given)
    arrays, changed = flat[: seen.arrays], flat[seen.arrays :]
    _write_back(outer, seen, changed)
    start = len(seen.replicated) + len(seen.created)
    shared = changed[start : start + len(seen.shared)]
    return _rebuild_result(seen.shape, arrays, shared, topology.replicas)


def _gather_late(
    placement: storage.Placement, seen: _ReplicaTrace, cells: Sequence[Cell]
) -> ClosedProgram:
    """Return the traced program, with gathers of split cells where they are read."""
    closed: ClosedProgram = seen.closed
    if placement.plan is None or placement.plan.gather == "step":
        return closed
    # The cells are the last inputs.
    first = len(closed.jaxpr.invars) - len(cells)
    sources = {
        first + i: late_values.SplitInput(c.name, c.split, c.shape)
        for i, c in enumerate(cells)
        if replica_frame.is_cut(c)
    }
    platform = placement.topology.devices[0].platform
    return late_gathers.delay(closed, sources, platform)


# Up to this number of replicas the function is traced for each of them, as in
# TensorFlow; with more replicas it is traced for one other, which is enough to notice
# that programs differ from call to call.
_TRACE_ALL_UP_TO = 4


def _count_further_traces(seen: _ReplicaTrace, replicas: int) -> int:
    """Return for how many further replicas to trace the function, to compare."""
    if seen.created or seen.merged:
        # Creating variables and merging have effects in Python that must happen once.
        return 0
    return replicas - 1 if replicas <= _TRACE_ALL_UP_TO else 1


def _is_same(seen: _ReplicaTrace, other: _ReplicaTrace) -> bool:
    """Return whether two traces have the same program and the same result."""
    first, second = nest.leaves(seen.shape), nest.leaves(other.shape)
    return equations.is_same(seen.closed, other.closed) and equations.is_same_value(
        [*first], [*second]
    )


def _trace(
    placement: storage.Placement,
    fn: Callable[..., Any],
    skeleton: object,
    cells: list[Cell],
    given: tuple[list[Any], list[Any]],
) -> _ReplicaTrace:
    """Call `fn` once as a replica whose number is traced.

    Args:
        placement: the placement of the strategy that runs the replicas.
        fn: the replica function.
        skeleton: its arguments, with slots for per-replica values.
        cells: the variables that it may use.
        given: the per-replica values for the slots, and the values of the cells.
    """
    outer, topology = frames.frame(), placement.topology
    seen = _ReplicaTrace()

    def body(own: list[Any], copies: list[Any]) -> Any:
        # In a `shard_map` a stacked array has one row on each replica.
        own = [jax.tree.map(lambda a: a[0], x) for x in own]
        port = ports.SpmdPort(topology, outer.traces)
        pairs = zip(cells, copies, strict=True)
        views = {c: x[0] if c.is_stacked or _has_copies(c) else x for c, x in pairs}
        local = replica_frame.LocalFrame(outer, views)
        index = jax.lax.axis_index(AXIS)
        with (
            contexts.enter_replica(placement, index, port, copy=None, state=local),
            # A version of its own: bodies that JAX has traced for other code, or for
            # the trace before this one, hold tracers of those traces (decision 0008).
            outer.versions.separate_block(),
        ):
            call_args, call_kwargs = _fill_slots(skeleton, own)
            with traced_values.explain():
                result = fn(*call_args, **call_kwargs)
            arrays = _flatten_result(result, port, seen)
        seen.merged = port.has_merged
        return arrays, *_flatten_state(local, seen, len(_specs_by_axis(cells)))

    # JAX must know the specs before it runs `body`, and only `body` finds out which
    # cells are written. So outputs are lists of any length, one list for each spec. JAX
    # believes that `same` outputs are equal; `_check_replicated` proves it.
    split, same = PartitionSpec(AXIS), PartitionSpec()
    mapped = jax.shard_map(
        body,
        mesh=topology.mesh,
        in_specs=(split, [_split_of(c) for c in cells]),
        out_specs=(split, same, split, _specs_by_axis(cells)),
        # All other mesh axes are logical devices of a replica, which are left to the
        # compiler (decision 0016).
        axis_names={AXIS},
        # With `check_vma` JAX would sum gradients by itself (decision 0006).
        check_vma=False,
    )
    seen.closed = jax.make_jaxpr(mapped)(*given)
    return seen


def _has_parts(cell: Cell) -> bool:
    """Whether replicas see different parts of what a cell stores."""
    return cell.is_stacked or replica_frame.is_cut(cell)


def _has_copies(cell: Cell) -> bool:
    """Whether several replicas have the same part of a cell."""
    return replica_frame.is_cut(cell) and cell.split.copies > 1


def _spread_copies(cell: Cell, whole: jax.Array) -> jax.Array:
    """Return the array of a cell as the `shard_map` over replicas takes it."""
    if not _has_copies(cell):
        return whole
    split: Split = cell.split
    return split.spread_copies(whole, cell.topology)


def _row_of(cell: Cell) -> int:
    """Return the axis along which replicas return their parts of a cell."""
    return 0 if _has_copies(cell) else cell.split.axis


def _split_of(cell: Cell) -> PartitionSpec:
    """Return how the array of a cell is split over the replicas."""
    if cell.is_stacked or _has_copies(cell):
        return PartitionSpec(AXIS)
    return cell.split.spec if replica_frame.is_cut(cell) else PartitionSpec()


def _specs_by_axis(cells: Sequence[Cell]) -> list[PartitionSpec]:
    """Return the split of each group of parts; one group for each axis that is cut."""
    axes = [_row_of(c) for c in cells if replica_frame.is_cut(c)]
    return [PartitionSpec(*[None] * i, AXIS) for i in range(max(axes, default=-1) + 1)]


def _check_replicated(seen: _ReplicaTrace, cells: Sequence[Cell]) -> None:
    """Raise if the copies of a mirrored variable would differ between replicas."""
    (eqn,) = [e for e in seen.closed.jaxpr.eqns if e.primitive.name == "shard_map"]
    # An input that is not split is the same on all replicas.
    inputs = [len(spec) == 0 for spec in eqn.params["in_specs"]]
    # Of a cell with copies, replicas that have the same part have equal ones.
    given = seen.closed.jaxpr.invars[len(seen.closed.jaxpr.invars) - len(cells) :]
    pairs = zip(given, cells, strict=True)
    counts = {v: c.split.parts for v, c in pairs if _has_copies(c)}
    parts = [0 if hasattr(v, "val") else counts.get(v, 0) for v in eqn.invars]
    found = value_sources.find_equal(eqn.params["jaxpr"], inputs, parts)
    # The outputs are the arrays of the result, then what `_flatten_state` returns:
    # replicated, created, shared and alike values, and last those that may differ.
    start = seen.arrays + len(seen.replicated) + len(seen.created) + len(seen.shared)
    stored = zip(seen.replicated, found[seen.arrays :], strict=False)
    alike = zip(seen.alike, found[start:], strict=False)
    for cell, same in (*stored, *alike):
        if not same:
            raise errors.diverging_copies_error(cell.name, cell.origin)


def _take_out_values(tree: object, topology: Topology) -> tuple[list[Any], Any]:
    """Return the per-replica values of arguments, and the arguments with slots."""
    found: list[Any] = []

    def leaf(x: object) -> Any:
        if isinstance(x, distributed.Mirrored):
            # One array for all replicas, which the function captures.
            return x.whole
        if not isinstance(x, distributed.PerReplica):
            return x
        distributed.check_count(x, topology.replicas)
        # One number for all stays a Python number, which `if` and `range` can use. With
        # other workers it is not known here whether they have the same one.
        if x.local is None and not topology.is_spread and _is_one_number(x):
            return x.values[0]
        found.append(x.stacked(topology))
        return _Slot(len(found) - 1)

    return found, nest.map_leaves(leaf, tree, StandsForArray)


def _is_one_number(x: distributed.PerReplica) -> bool:
    """Whether all replicas were given the same Python number."""
    # Not `values`, which would split a stacked array; that has no Python numbers.
    if x.is_stacked:
        return False
    first, kind = x.values[0], type(x.values[0])
    is_number = kind in (bool, int, float)
    return is_number and all(type(p) is kind and p == first for p in x.values)


def _fill_slots(skeleton: object, own: Sequence[Any]) -> Any:
    """Return arguments with the replica's own values in their slots."""
    return nest.map_leaves(
        lambda x: own[x.index] if isinstance(x, _Slot) else x,
        skeleton,
        StandsForArray,
    )


def _flatten_result(
    result: object, port: ports.SpmdPort, seen: _ReplicaTrace
) -> list[Any]:
    """Return the arrays of a replica's result, as rows, and note its shape."""
    arrays: list[Any] = []

    def leaf(x: Any) -> Any:
        if port.is_merged(x):
            seen.shared.append(x)
            return _Slot(len(seen.shared) - 1)
        if not isinstance(x, distributed.PerReplica) or x.local is None:
            return x
        flat, treedef = jax.tree.flatten(x.local)
        arrays.extend(jnp.asarray(a)[None] for a in flat)
        return _ResultSlot(len(flat), treedef)

    seen.shape = nest.map_structure(leaf, merging.group_replica_values(result, port))
    seen.arrays = len(arrays)
    return arrays


def _flatten_state(
    local: replica_frame.LocalFrame, seen: _ReplicaTrace, axes: int
) -> tuple[list[Any], list[Any], list[list[Any]]]:
    """Return the new values of variables: equal ones, copies, and parts by axis."""
    changed = dict.fromkeys([*local.created, *local.written])
    seen.created = list(local.created)
    seen.stacked = [c for c in changed if c.is_stacked]
    by_part = [c for c in changed if c in local.parts]
    others = {*seen.stacked, *by_part}
    seen.replicated = [c for c in changed if c not in others]
    rows = [[c for c in by_part if _row_of(c) == i] for i in range(axes)]
    seen.cut = [c for row in rows for c in row]
    copies = [local.values[c][None] for c in seen.stacked]
    same = [local.values[c] for c in seen.replicated]
    own = local.parts
    parts = [[own[c][None] if _has_copies(c) else own[c] for c in r] for r in rows]
    seen.alike = [c for c, _ in local.alike]
    # Values that were created, merged or must be alike are outputs too, so that they
    # can be used or checked outside the `shard_map`.
    same += [*local.created.values(), *seen.shared, *(x for _, x in local.alike)]
    return same, copies, parts


def _write_back(
    outer: frames.StateFrame, seen: _ReplicaTrace, changed: list[Any]
) -> None:
    """Store the new values of variables in the frame around the replicas."""
    # In the order of `_flatten_state`: replicated, created, shared, alike, the rest.
    count = len(seen.replicated)
    stop = count + len(seen.created)
    for cell, value in zip(seen.created, changed[count:stop], strict=True):
        outer.create(cell, value)
    cells = [*seen.replicated, *seen.stacked, *seen.cut]
    new = [*changed[:count], *changed[stop + len(seen.shared) + len(seen.alike) :]]
    parts = set(seen.cut)
    for cell, value in zip(cells, new, strict=True):
        is_row = cell in parts and _has_copies(cell)
        whole = cell.split.join_copies(value, cell.topology) if is_row else value
        outer.set_whole(cell, whole)


def _rebuild_result(
    shape: Any, arrays: list[Any], shared: list[Any], replicas: int
) -> Any:
    """Return the merged result, with the program's outputs in its slots."""
    given = iter(arrays)

    def leaf(x: Any) -> Any:
        if isinstance(x, _Slot):
            return shared[x.index]
        if not isinstance(x, _ResultSlot):
            return x
        flat = [next(given) for _ in range(x.arrays)]
        return distributed.PerReplica.from_stacked(x.treedef.unflatten(flat), replicas)

    return nest.map_structure(leaf, shape)
