"""The SPMD executor: one program stands for all replicas."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from unisono._src.execution import contexts, jaxpr_equality, replica_invariance
from unisono._src.foundation import errors, nest
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.state import assignment, frames, replica_frame
from unisono._src.state.frames import Cell
from unisono._src.values import collectives, distributed
from unisono._src.values.array_operators import StandsForArray


@final
@dataclasses.dataclass
class _Traced:
    """What tracing the replica function has shown."""

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
class _Output:
    """Stands in a result for an array that the program gives back."""

    def __init__(self, arrays: int, treedef: Any) -> None:
        self.arrays = arrays
        self.treedef = treedef


@final
class _Shared:
    """Stands in a result for what a merge_call gave all replicas."""

    def __init__(self, index: int) -> None:
        self.index = index


def run(
    placement: frames.Placement,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Trace `fn` in a `shard_map` over the replicas, and merge what it returns.

    Args:
        placement: whose replicas they are.
        fn: the replica function.
        args: its positional arguments; `PerReplica` leaves have the stacked form.
        kwargs: its keyword arguments.

    Raises:
        NeedsLockstep: one program cannot stand for all replicas.
    """
    outer, topology = frames.frame(), placement.topology
    inputs, skeleton = _extract(((args), kwargs), topology)
    cells = [c for c in outer.cells() if not _has_parts(c) or c.topology == topology]
    stored = [outer.whole(c) for c in cells]

    def trace() -> _Traced:
        return _trace(placement, fn, skeleton, cells, (inputs, stored))

    seen = trace()
    _check_replicated(seen)
    for _ in range(_others(seen, topology.copies)):
        if not jaxpr_equality.is_same(seen.closed, trace().closed):
            raise assignment.NeedsLockstep(
                "The replica function makes another program on another call, so each "
                "replica gets its own; that is slow. Python state, such as a counter "
                "or NumPy's random numbers, is probably the cause."
            )
    given = jax.tree.leaves((inputs, stored))
    flat = jax.core.eval_jaxpr(seen.closed.jaxpr, seen.closed.consts, *given)
    arrays, changed = flat[: seen.arrays], flat[seen.arrays :]
    _write_back(outer, seen, changed)
    start = len(seen.replicated) + len(seen.created)
    shared = changed[start : start + len(seen.shared)]
    return _rebuild_result(seen.shape, arrays, shared, topology.replicas)


# A program that Python's state has a part in differs from call to call. Every replica
# is asked up to this number, as in TensorFlow; of more replicas one other is enough.
_ASK_ALL = 4


def _others(seen: _Traced, replicas: int) -> int:
    """How many further replicas to trace for comparison."""
    if seen.created or seen.merged:
        # What these do to Python must happen once for all replicas.
        return 0
    return replicas - 1 if replicas <= _ASK_ALL else 1


def _trace(
    placement: frames.Placement,
    fn: Callable[..., Any],
    skeleton: Any,
    cells: list[Cell],
    given: tuple[list[Any], list[Any]],
) -> _Traced:
    """Call `fn` once, as any of the replicas."""
    outer, topology = frames.frame(), placement.topology
    seen = _Traced()

    def body(own: list[Any], copies: list[Any]) -> Any:
        own = [jax.tree.map(lambda a: a[0], x) for x in own]
        port = collectives.SpmdPort(topology, outer.traces)
        pairs = zip(cells, copies, strict=True)
        views = {c: x[0] if c.is_stacked else x for c, x in pairs}
        local = replica_frame.LocalFrame(outer, views)
        index = jax.lax.axis_index(AXIS)
        with (
            contexts.replica_frame(placement, index, port, copy=None, state=local),
            outer.versions.fresh(),
        ):
            call_args, call_kwargs = _fill(skeleton, own)
            with contexts.explained():
                result = fn(*call_args, **call_kwargs)
            arrays = _flatten_result(result, port, seen)
        seen.merged = port.has_merged
        return arrays, *_flatten_state(local, seen, len(_specs_by_axis(cells)))

    split, same = PartitionSpec(AXIS), PartitionSpec()
    mapped = jax.shard_map(
        body,
        mesh=topology.mesh,
        in_specs=(split, [_spec(c) for c in cells]),
        out_specs=(split, same, split, _specs_by_axis(cells)),
        # How a replica uses its logical devices is left to the compiler.
        axis_names={AXIS},
        check_vma=False,
    )
    seen.closed = jax.make_jaxpr(mapped)(*given)
    return seen


def _has_parts(cell: Cell) -> bool:
    return cell.is_stacked or replica_frame.is_cut(cell)


def _spec(cell: Cell) -> PartitionSpec:
    """How replicas share what a cell stores."""
    if cell.is_stacked:
        return PartitionSpec(AXIS)
    return cell.split.spec if replica_frame.is_cut(cell) else PartitionSpec()


def _specs_by_axis(cells: Sequence[Cell]) -> list[PartitionSpec]:
    """How parts leave the replicas: by the axis along which they were cut."""
    axes = [c.split.axis for c in cells if replica_frame.is_cut(c)]
    return [PartitionSpec(*[None] * i, AXIS) for i in range(max(axes, default=-1) + 1)]


def _check_replicated(seen: _Traced) -> None:
    """Raise if the copies of a mirrored variable would differ between replicas."""
    (eqn,) = [e for e in seen.closed.jaxpr.eqns if e.primitive.name == "shard_map"]
    inputs = [len(spec) == 0 for spec in eqn.params["in_specs"]]
    found = replica_invariance.Invariance().outputs(eqn.params["jaxpr"], inputs)
    start = seen.arrays + len(seen.replicated) + len(seen.created) + len(seen.shared)
    stored = zip(seen.replicated, found[seen.arrays :], strict=False)
    alike = zip(seen.alike, found[start:], strict=False)
    for cell, same in (*stored, *alike):
        if not same:
            raise errors.diverging(cell.name, cell.origin)


@final
class _Slot:
    """Stands in the arguments for a per-replica value."""

    def __init__(self, index: int) -> None:
        self.index = index


def _extract(tree: Any, topology: Topology) -> tuple[list[Any], Any]:
    found: list[Any] = []

    def leaf(x: Any) -> Any:
        if isinstance(x, distributed.Mirrored):
            return x.whole
        if not isinstance(x, distributed.PerReplica):
            return x
        if x.count != topology.replicas:
            raise IndexError(
                str(errors.replica_count("PerReplica", x.count, topology.replicas))
            )
        if x.local is None and not topology.is_spread and _is_one_number(x):
            return x.values[0]
        found.append(x.stacked(topology))
        return _Slot(len(found) - 1)

    return found, nest.map_leaves(leaf, tree, StandsForArray)


def _is_one_number(x: distributed.PerReplica) -> bool:
    """Whether all replicas were given the same Python number."""
    parts = x._parts or (None,)
    return type(parts[0]) in (bool, int, float) and all(
        type(p) is type(parts[0]) and p == parts[0] for p in parts
    )


def _fill(skeleton: Any, own: Sequence[Any]) -> Any:
    return nest.map_leaves(
        lambda x: own[x.index] if isinstance(x, _Slot) else x, skeleton, StandsForArray
    )


def _flatten_result(result: Any, port: Any, seen: _Traced) -> list[Any]:
    arrays: list[Any] = []

    def leaf(x: Any) -> Any:
        if port.is_merged(x):
            seen.shared.append(x)
            return _Shared(len(seen.shared) - 1)
        if not isinstance(x, distributed.PerReplica) or x.local is None:
            return x
        flat, treedef = jax.tree.flatten(x.local)
        arrays.extend(jnp.asarray(a)[None] for a in flat)
        return _Output(len(flat), treedef)

    seen.shape = nest.map_structure(leaf, contexts.local_group(result, port))
    seen.arrays = len(arrays)
    return arrays


def _flatten_state(
    local: replica_frame.LocalFrame, seen: _Traced, axes: int
) -> tuple[list[Any], list[Any], list[list[Any]]]:
    """What leaves the program: equal values, copies, and parts by their axis."""
    changed = dict.fromkeys([*local.created, *local.written])
    seen.created = list(local.created)
    seen.stacked = [c for c in changed if c.is_stacked]
    by_part = [c for c in changed if c in local.parts]
    others = {*seen.stacked, *by_part}
    seen.replicated = [c for c in changed if c not in others]
    rows = [[c for c in by_part if c.split.axis == i] for i in range(axes)]
    seen.cut = [c for row in rows for c in row]
    copies = [local.values[c][None] for c in seen.stacked]
    same = [local.values[c] for c in seen.replicated]
    parts = [[local.parts[c] for c in row] for row in rows]
    seen.alike = [c for c, _ in local.alike]
    # These leave the program only to be looked at.
    same += [*local.created.values(), *seen.shared, *(x for _, x in local.alike)]
    return same, copies, parts


def _write_back(outer: frames.StateFrame, seen: _Traced, changed: list[Any]) -> None:
    count = len(seen.replicated)
    stop = count + len(seen.created)
    for cell, value in zip(seen.created, changed[count:stop], strict=True):
        outer.create(cell, value)
    cells = [*seen.replicated, *seen.stacked, *seen.cut]
    new = [*changed[:count], *changed[stop + len(seen.shared) + len(seen.alike) :]]
    for cell, value in zip(cells, new, strict=True):
        outer.set_whole(cell, value)


def _rebuild_result(
    shape: Any, arrays: list[Any], shared: list[Any], replicas: int
) -> Any:
    given = iter(arrays)

    def leaf(x: Any) -> Any:
        if isinstance(x, _Shared):
            return shared[x.index]
        if not isinstance(x, _Output):
            return x
        flat = [next(given) for _ in range(x.arrays)]
        return distributed.PerReplica.from_stacked(x.treedef.unflatten(flat), replicas)

    return nest.map_structure(leaf, shape)
