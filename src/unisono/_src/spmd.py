"""The SPMD executor: the replica function is traced once, for all replicas."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jax.sharding import PartitionSpec

from unisono._src import collectives, contexts, errors, nest, state, values
from unisono._src.state import Cell
from unisono._src.topology import AXIS, Topology

_serial = itertools.count()
NAME = "unisono_replicas_"


@dataclasses.dataclass
class _Traced:
    """What tracing the replica function has shown."""

    shape: Any = None
    replicated: list[Cell] = dataclasses.field(default_factory=list)
    stacked: list[Cell] = dataclasses.field(default_factory=list)
    created: list[Cell] = dataclasses.field(default_factory=list)


class _Output:
    """Stands in a result for an array that the program gives back."""

    def __init__(self, arrays: int, treedef: Any) -> None:
        self.arrays = arrays
        self.treedef = treedef


def run(
    placement: state.Placement,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Call `fn` once, in a `shard_map` over the replicas, and merge what it returns.

    Args:
        placement: whose replicas they are.
        fn: the replica function.
        args: its positional arguments; `PerReplica` leaves have the stacked form.
        kwargs: its keyword arguments.
    """
    outer, topology = state.frame(), placement.topology
    inputs, skeleton = _extract(((args), kwargs), topology)
    cells = [c for c in outer.cells() if not c.is_stacked or c.topology == topology]
    seen = _Traced()

    def body(own: list[Any], copies: list[Any]) -> Any:
        own = [jax.tree.map(lambda a: a[0], x) for x in own]
        port = collectives.SpmdPort(topology.replicas, outer.traces)
        pairs = zip(cells, copies, strict=True)
        given = {c: x[0] if c.is_stacked else x for c, x in pairs}
        local = state.LocalFrame(outer, given)
        index = jax.lax.axis_index(AXIS)
        with contexts.replica_frame(placement, index, port, copy=None, state=local):
            call_args, call_kwargs = _fill(skeleton, own)
            with contexts.explained():
                result = fn(*call_args, **call_kwargs)
            arrays = _flatten_result(result, port, seen)
        return arrays, *_flatten_state(local, seen)

    serial = next(_serial)
    body.__name__ = f"{NAME}{serial}"
    split, same = PartitionSpec(AXIS), PartitionSpec()
    arrays, replicated, stacked = jax.shard_map(
        body,
        mesh=topology.mesh,
        in_specs=(split, [split if c.is_stacked else same for c in cells]),
        out_specs=(split, same, split),
        check_vma=False,
    )(inputs, [outer.whole(c) for c in cells])
    _write_back(outer, seen, replicated, stacked)
    _remember(outer, serial, seen, len(arrays))
    return _rebuild_result(seen.shape, arrays, topology.replicas)


class _Slot:
    """Stands in the arguments for a per-replica value."""

    def __init__(self, index: int) -> None:
        self.index = index


def _extract(tree: Any, topology: Topology) -> tuple[list[Any], Any]:
    found: list[Any] = []

    def leaf(x: Any) -> Any:
        if isinstance(x, values.Mirrored):
            return x.whole
        if not isinstance(x, values.PerReplica):
            return x
        if x.count != topology.replicas:
            raise IndexError(
                str(errors.replica_count("PerReplica", x.count, topology.replicas))
            )
        if x.local is None and _is_one_number(x):
            return x.values[0]
        found.append(x.stacked(topology))
        return _Slot(len(found) - 1)

    return found, values.map_leaves(leaf, tree)


def _is_one_number(x: values.PerReplica) -> bool:
    """Whether all replicas were given the same Python number."""
    parts = x._parts or (None,)
    return type(parts[0]) in (bool, int, float) and all(
        type(p) is type(parts[0]) and p == parts[0] for p in parts
    )


def _fill(skeleton: Any, own: Sequence[Any]) -> Any:
    return values.map_leaves(
        lambda x: own[x.index] if isinstance(x, _Slot) else x, skeleton
    )


def _flatten_result(result: Any, port: Any, seen: _Traced) -> list[Any]:
    arrays: list[Any] = []

    def leaf(x: Any) -> Any:
        if isinstance(x, values.Mirrored):
            return x
        if not isinstance(x, values.PerReplica):
            return x
        flat, treedef = jax.tree.flatten(x.local)
        arrays.extend(jnp.asarray(a)[None] for a in flat)
        return _Output(len(flat), treedef)

    seen.shape = nest.map_structure(leaf, contexts.local_group(result, port))
    return arrays


def _flatten_state(
    local: state.LocalFrame, seen: _Traced
) -> tuple[list[Any], list[Any]]:
    changed = dict.fromkeys([*local.created, *local.written])
    seen.created = list(local.created)
    seen.stacked = [c for c in changed if c.is_stacked]
    seen.replicated = [c for c in changed if not c.is_stacked]
    copies = [local.values[c][None] for c in seen.stacked]
    first = list(local.created.values())
    return [*(local.values[c] for c in seen.replicated), *first], copies


def _write_back(
    outer: state.StateFrame, seen: _Traced, replicated: Any, stacked: Any
) -> None:
    count = len(seen.replicated)
    for cell, value in zip(seen.created, replicated[count:], strict=True):
        outer.create(cell, value)
    changed = [*seen.replicated, *seen.stacked]
    for cell, value in zip(changed, [*replicated[:count], *stacked], strict=True):
        outer.set_whole(cell, value)


def _remember(outer: Any, serial: int, seen: _Traced, offset: int) -> None:
    """Note which outputs of this `shard_map` must be equal on all replicas."""
    outer.note_replicated(serial, offset, seen.replicated)


def _rebuild_result(shape: Any, arrays: list[Any], replicas: int) -> Any:
    given = iter(arrays)

    def leaf(x: Any) -> Any:
        if not isinstance(x, _Output):
            return x
        flat = [next(given) for _ in range(x.arrays)]
        return values.PerReplica.from_stacked(x.treedef.unflatten(flat), replicas)

    return nest.map_structure(leaf, shape)


@dataclasses.dataclass(frozen=True)
class _Invariance:
    """Which values of a program are equal on all replicas, seen from its equations."""

    def outputs(self, jaxpr: Any, inputs: Sequence[bool]) -> list[bool]:
        """Whether each output is, given whether each input is."""
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        known.update((v, True) for v in jaxpr.constvars)
        for eqn in jaxpr.eqns:
            self._equation(eqn, known)
        return [self._of(v, known) for v in jaxpr.outvars]

    def _of(self, var: Any, known: dict[Any, bool]) -> bool:
        return True if isinstance(var, Literal) else known.get(var, False)

    def _equation(self, eqn: Any, known: dict[Any, bool]) -> None:
        name = eqn.primitive.name
        same = [self._of(v, known) for v in eqn.invars]
        if name in _EQUALISING and eqn.params.get("axis_index_groups") is None:
            out = [True] * len(eqn.outvars)
        elif name in _SEPARATING:
            out = [False] * len(eqn.outvars)
        elif all(same) and not _separates(eqn):
            out = [True] * len(eqn.outvars)
        else:
            out = self._nested(eqn, same)
        known.update(zip(eqn.outvars, out, strict=True))

    def _nested(self, eqn: Any, same: list[bool]) -> list[bool]:
        """Look into equations that hold programs; assume the worst of others."""
        name = eqn.primitive.name
        if name == "cond":
            return self._cond(eqn, same)
        if name == "scan":
            return self._scan(eqn, same)
        if name == "while":
            return self._while(eqn, same)
        inner = _jaxpr_of(eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr"))
        if name not in _CALLS or len(inner.invars) != len(same):
            return [False] * len(eqn.outvars)
        return self.outputs(inner, same)

    def _cond(self, eqn: Any, same: list[bool]) -> list[bool]:
        branches = [_jaxpr_of(b) for b in eqn.params["branches"]]
        if not same[0]:
            if any(map(_communicates, branches)):
                raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
            return [False] * len(eqn.outvars)
        found = [self.outputs(b, same[1:]) for b in branches]
        return [all(column) for column in zip(*found, strict=True)]

    def _while(self, eqn: Any, same: list[bool]) -> list[bool]:
        test, body = (_jaxpr_of(eqn.params[k]) for k in ("cond_jaxpr", "body_jaxpr"))
        split = eqn.params["cond_nconsts"]
        start = split + eqn.params["body_nconsts"]
        carry = same[start:]
        while True:
            after = self.outputs(body, [*same[split:start], *carry])
            after = [a and b for a, b in zip(carry, after, strict=True)]
            if after == carry:
                break
            carry = after
        if self.outputs(test, [*same[:split], *carry]) == [True]:
            return carry
        if _communicates(body):
            raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
        return [False] * len(eqn.outvars)

    def _scan(self, eqn: Any, same: list[bool]) -> list[bool]:
        consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
        inner = _jaxpr_of(eqn.params["jaxpr"])
        while True:
            out = self.outputs(inner, same)
            after = [
                a and b
                for a, b in zip(same[consts : consts + carry], out, strict=False)
            ]
            if after == same[consts : consts + carry]:
                return out
            same = [*same[:consts], *after, *same[consts + carry :]]


_EQUALISING = {"psum", "pmax", "pmin", "all_gather", "psum_invariant"}
_SEPARATING = {"axis_index", "ppermute", "all_to_all", "reduce_scatter",
               "pure_callback", "io_callback", *_EQUALISING}  # fmt: skip
_COLLECTIVES = {*_EQUALISING, "ppermute", "all_to_all", "reduce_scatter"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call",
          "custom_vjp_call", "remat", "checkpoint"}  # fmt: skip


def _separates(eqn: Any) -> bool:
    """Whether an equation with equal operands may differ between replicas inside."""
    inner = [p for p in map(_jaxpr_of, _params(eqn)) if p]
    return any(
        e.primitive.name in _SEPARATING or _separates(e) for p in inner for e in p.eqns
    )


def _communicates(jaxpr: Any) -> bool:
    """Whether replicas meet somewhere in a program."""
    return any(
        e.primitive.name in _COLLECTIVES
        or any(_communicates(p) for p in map(_jaxpr_of, _params(e)) if p)
        for e in jaxpr.eqns
    )


def _params(eqn: Any) -> list[Any]:
    return jax.tree.leaves(list(eqn.params.values()))


def _jaxpr_of(x: Any) -> Any:
    x = getattr(x, "jaxpr", x)
    return x if hasattr(x, "eqns") else None


def check_replicated(jaxpr: Any, notes: dict[int, tuple[int, list[Cell]]]) -> None:
    """Raise if the copies of a mirrored variable would differ between replicas.

    Args:
        jaxpr: the whole program.
        notes: for each run, by serial number, the position of the first output that
            must be equal on all replicas, and the cells of those outputs.
    """
    for eqn in jaxpr.eqns:
        if eqn.primitive.name != "shard_map":
            continue
        serial = _serial_of(eqn.params["jaxpr"])
        if serial < 0:
            continue
        offset, cells = notes.pop(serial)
        inputs = [len(spec) == 0 for spec in eqn.params["in_specs"]]
        found = _Invariance().outputs(eqn.params["jaxpr"], inputs)
        for cell, same in zip(cells, found[offset:], strict=False):
            if not same:
                raise _diverging(cell)
    if any(cells for _, cells in notes.values()):
        raise AssertionError("a run of replicas was not found in the traced program")


def _diverging(cell: Cell) -> ValueError:
    return ValueError(
        f"The copies of the mirrored variable '{cell.name}' (created at {cell.origin}) "
        "would get different values on different replicas. Combine the value first: "
        "all_reduce it, or give the variable an aggregation and assign it in replica "
        "context."
    )


def _serial_of(jaxpr: Any) -> int:
    info = getattr(jaxpr, "debug_info", None)
    text = getattr(info, "func_src_info", "") or ""
    name = text.split(" ", 1)[0]
    if not name.startswith(NAME):
        return -1
    return int(name[len(NAME) :])
