"""Gathers split weights where a replica's program reads them, not before it.

A replica reads a split variable by gathering its parts. The program that JAX traces has
this gather once, before all readers, so that every weight would be whole from the
forward to the backward pass. Here each reader gets a gather of its own, which cannot
begin before another operand of the reader is there. A loop over layers gets the parts
of their stack, and each turn gathers its slice. The values are the same; a weight about
which nothing is known here is gathered before its reader, as it was (decision 0036).
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

import jax
import jax.numpy as jnp

from unisono._src.execution import equations, late_scatters
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.machines import partition
from unisono._src.machines.topology import AXIS

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

    Value: TypeAlias = "jax.Array | Late"
    _Tie: TypeAlias = Callable[[jax.Array, jax.Array], jax.Array]

_log = logging.getLogger("unisono")

# In bytes: so much of what was gathered last is kept for readers that follow.
SHARED = 1 << 22

# Primitives by name. The first keep all elements of one operand, in another shape or
# type; the second do so element by element, so that they can be done to a slice; the
# third are ways in which JAX writes a call with a plain program inside.
_CHEAP = {
    "broadcast_in_dim", "convert_element_type", "copy", "copy_p", "reshape", "squeeze",
    "stop_gradient", "transpose",
}  # fmt: skip
_ELEMENTWISE = {"convert_element_type", "copy", "copy_p", "stop_gradient"}
_PLAIN_CALLS = {
    "jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2",
}  # fmt: skip


@final
@dataclasses.dataclass(frozen=True)
class SplitInput:
    """A variable whose parts are inputs of a replica's program.

    Attributes:
        name: its name, for messages.
        split: how it is cut over the replicas.
        shape: its whole shape.
    """

    name: str
    split: partition.Split
    shape: tuple[int, ...]


@final
@dataclasses.dataclass(frozen=True)
class Late:
    """A whole array that is not gathered yet.

    Attributes:
        source: the variable.
        part: this replica's part of it, or of a slice of it.
        split: how the whole of `part` is cut.
        changes: cheap operations on the whole, each with the program that it is of.
    """

    source: SplitInput
    part: jax.Array
    split: partition.Split
    changes: tuple[tuple[Jaxpr, JaxprEqn], ...] = ()

    @property
    def key(self) -> tuple[int, ...]:
        """What is equal for equal wholes, as long as both are in use."""
        return id(self.part), *(id(eqn) for _, eqn in self.changes)

    def gather(self, part: jax.Array) -> jax.Array:
        """Return the whole array, given `part` or what stands for it."""
        whole = self.split.gather(part)
        for jaxpr, eqn in self.changes:
            (whole,) = equations.compute(jaxpr, eqn, [whole])
        return whole

    def change(self, jaxpr: Jaxpr, eqn: JaxprEqn) -> Late | None:
        """Return the result of an equation, not gathered either; None if it must be."""
        name = eqn.primitive.name
        if not self.changes and name == "slice":
            return self._slice(eqn)
        before, after = (equations.aval_of(v) for v in (eqn.invars[0], eqn.outvars[0]))
        if name not in _CHEAP or before.size != after.size:
            return None
        if name == "squeeze" and not self.changes:
            return self._squeeze(eqn)
        # What is smaller is gathered faster, so a larger type comes afterwards.
        is_larger = after.dtype.itemsize > before.dtype.itemsize
        if name in _ELEMENTWISE and not self.changes and not is_larger:
            (part,) = equations.compute(jaxpr, eqn, [self.part])
            return dataclasses.replace(self, part=part)
        return dataclasses.replace(self, changes=(*self.changes, (jaxpr, eqn)))

    def _slice(self, eqn: JaxprEqn) -> Late | None:
        """Return a slice of the whole, if the cut axis is not sliced."""
        axis, whole = self.split.axis, equations.aval_of(eqn.invars[0]).shape
        start, limit = eqn.params["start_indices"], list(eqn.params["limit_indices"])
        strides = eqn.params["strides"] or (1,) * len(whole)
        if (start[axis], limit[axis], strides[axis]) != (0, whole[axis], 1):
            return None
        limit[axis] = self.part.shape[axis]
        part = jax.lax.slice(self.part, start, limit, strides)
        return dataclasses.replace(self, part=part)

    def _squeeze(self, eqn: JaxprEqn) -> Late:
        """Return the whole without axes of one element; the cut one is longer."""
        gone = eqn.params["dimensions"]
        axis = self.split.axis - sum(i < self.split.axis for i in gone)
        split = dataclasses.replace(self.split, axis=axis)
        return dataclasses.replace(
            self, part=jax.lax.squeeze(self.part, gone), split=split
        )

    def find_slices(self) -> partition.Split | None:
        """Return how slices along the first axis are cut; None if they are not."""
        is_plain = all(eqn.primitive.name in _ELEMENTWISE for _, eqn in self.changes)
        if self.split.axis == 0 or not is_plain:
            return None
        return dataclasses.replace(self.split, axis=self.split.axis - 1)


def delay(
    closed: ClosedProgram, sources: Mapping[int, SplitInput], platform: str
) -> ClosedProgram:
    """Return a program that gathers weights where it reads them.

    Args:
        closed: a program with a `shard_map` over the replicas in it.
        sources: the variables among its inputs that are cut, by position.
        platform: the platform of the devices, such as ``"cpu"``.
    """
    if not sources:
        return closed
    known = {closed.jaxpr.invars[i]: source for i, source in sources.items()}

    def follow(eqn: JaxprEqn, given: list[jax.Array]) -> Sequence[jax.Array]:
        if eqn.primitive.name != "shard_map":
            return equations.compute(closed.jaxpr, eqn, given)
        parts = [None if equations.is_literal(v) else known.get(v) for v in eqn.invars]
        return _map(eqn, parts, platform)(*given)

    def run(*args: jax.Array) -> list[jax.Array]:
        return equations.interpret(
            closed.jaxpr, closed.consts, args, follow, equations.value_of
        )

    return jax.make_jaxpr(run)(*closed.in_avals)


def _map(
    eqn: JaxprEqn, sources: Sequence[SplitInput | None], platform: str
) -> Callable[..., list[jax.Array]]:
    """Return the function of a `shard_map` equation, with gathers where they belong."""
    params, jaxpr = eqn.params, equations.jaxpr_of(eqn.params["jaxpr"])
    assert jaxpr is not None
    pairs = zip(jaxpr.invars, sources, strict=True)
    parts = {v: source for v, source in pairs if source is not None}
    consts = getattr(params["jaxpr"], "consts", ())

    def body(*args: jax.Array) -> list[jax.Array]:
        walk = _LateWalk(_TIES.get(platform, _tie_by_barrier), parts, set())
        return walk.gather_all(walk.run(jaxpr, consts, args))

    return jax.shard_map(
        body,
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=list(params["out_specs"]),
        axis_names={AXIS},
        check_vma=False,
    )


@final
class _LateWalk:
    """Goes through a replica's program and makes one that gathers late.

    Args:
        tie: makes an array that is not there before another one. None for a turn of a
            loop, which gathers each weight once and has forgotten it at its end.
        parts: the inputs that are parts, with their variables.
        told: the names of variables that the log tells of already.
    """

    def __init__(
        self, tie: _Tie | None, parts: Mapping[Any, SplitInput], told: set[str]
    ) -> None:
        self._tie = tie
        self._told = told
        self._parts = parts
        self._recent: list[tuple[tuple[int, ...], jax.Array, Late]] = []
        # When each value was made: an operand that came last is the best one to tie to.
        self._made: dict[int, int] = {}
        self._count = itertools.count(1)

    def run(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[jax.Array],
        args: Sequence[Value],
        wanted: Sequence[late_scatters.Scatter | None] = (),
    ) -> list[Value]:
        """Return the results of a program.

        Args:
            jaxpr: the program.
            consts: its constants.
            args: its inputs.
            wanted: for each result, how it is summed and cut later. A result for which
                that is done here already is marked as such.
        """
        uses = late_scatters.Uses(jaxpr, wanted)

        def follow(eqn: JaxprEqn, given: list[Value]) -> Sequence[Value]:
            found = self._follow(uses, eqn, given)
            when = next(self._count)
            self._made.update((id(x), when) for x in found)
            return found

        return equations.interpret(jaxpr, consts, args, follow, equations.value_of)

    def gather_all(self, values: Sequence[Value]) -> list[jax.Array]:
        """Return the operands of a reader, whole."""
        found: dict[tuple[int, ...], jax.Array] = {}
        for x in values:
            if isinstance(x, Late) and x.key not in found:
                found[x.key] = self._gather(x, values)
        return [found[x.key] if isinstance(x, Late) else x for x in values]

    def _follow(
        self, uses: late_scatters.Uses, eqn: JaxprEqn, given: list[Value]
    ) -> Sequence[Value]:
        """Return the results of an equation."""
        if uses.is_done(eqn):
            return given
        found = self._find_part(eqn, given)
        if found is None and eqn.primitive.name == "scan":
            return self._follow_scan(uses, eqn, given)
        called = _called_program(eqn)
        if called is not None:
            wanted = [uses.scatter_of(v) for v in eqn.outvars]
            if any(wanted) or any(isinstance(x, Late) for x in given):
                return self.run(*called, self._hold_back(eqn, given), wanted)
        if given and isinstance(given[0], Late):
            if len(given) == 1:
                found = given[0].change(uses.jaxpr, eqn)
            elif _cuts_own_part(uses, eqn, given[0]):
                return [given[0].part]
        if found is not None:
            return [found]
        return equations.compute(uses.jaxpr, eqn, self.gather_all(given))

    def _find_part(self, eqn: JaxprEqn, given: list[Value]) -> Late | None:
        """Return the variable that an equation gathers, if it does that."""
        if eqn.primitive.name != "all_gather" or isinstance(given[0], Late):
            return None
        (atom,), params = eqn.invars, eqn.params
        source = None if equations.is_literal(atom) else self._parts.get(atom)
        if source is None or not params["tiled"]:
            return None
        found = params["axis_index_groups"], params["all_gather_dimension"]
        if not _are_groups(found[0], source.split) or found[1] != source.split.axis:
            return None
        return Late(source, given[0], source.split)

    def _hold_back(self, eqn: JaxprEqn, given: list[Value]) -> list[Value]:
        """Return the operands of a `jax.checkpoint`, behind its barrier if it has one.

        XLA would take what a backward pass computes again from the forward pass.
        """
        flags = eqn.params.get("prevent_cse", False)
        if not (eqn.params.get("differentiated") and flags):
            return given
        flags = [flags] * len(given) if flags is True else flags
        pairs = zip(given, flags, strict=True)
        places = [i for i, (x, f) in enumerate(pairs) if f and _can_wait(_array(x))]
        if not places:
            return given
        held = jax.lax.optimization_barrier([_array(given[i]) for i in places])
        found = list(given)
        for i, x in zip(places, held, strict=True):
            old = given[i]
            found[i] = dataclasses.replace(old, part=x) if isinstance(old, Late) else x
        return [
            dataclasses.replace(x, part=self._wait(x.part, given))
            if isinstance(x, Late)
            else x
            for x in found
        ]

    def _wait(self, part: jax.Array, values: Sequence[Value]) -> jax.Array:
        """Return a part that is not there before the array that was made last.

        Args:
            part: the part.
            values: arrays, and those that are not gathered.
        """
        arrays = [x for x in values if not isinstance(x, Late) and _can_wait(x)]
        if self._tie is None or not arrays:
            return part
        made = self._made
        last = max(arrays, key=lambda x: (x.ndim > 0, made.get(id(x), 0), x.size))
        return self._tie(part, last)

    def _gather(self, late: Late, others: Sequence[Value]) -> jax.Array:
        """Return a whole array for a reader.

        Args:
            late: the array.
            others: all operands of the reader.
        """
        for key, whole, _ in self._recent:
            if key == late.key:
                return whole
        whole = late.gather(self._wait(late.part, others))
        # With `late`, so that no other object gets its identity.
        self._recent.append((late.key, whole, late))
        while self._tie and sum(x.nbytes for _, x, _ in self._recent) > SHARED:
            self._recent.pop(0)
        return whole

    def _follow_scan(
        self, uses: late_scatters.Uses, eqn: JaxprEqn, given: list[Value]
    ) -> Sequence[jax.Array]:
        """Return the results of a loop, which gets parts of what it reads in slices."""
        consts, carried = equations.scan_counts(eqn)
        start = consts + carried
        slices = [*[None] * start, *map(self._find_slices, given[start:])]
        wanted = [uses.scatter_of(v) for v in eqn.outvars[carried:]]
        pairs = list(zip(given, slices, strict=True))
        flat = self.gather_all([_array(x) if s else x for x, s in pairs])
        if not any(slices) and not any(wanted):
            return equations.compute(uses.jaxpr, eqn, flat)
        body, params = eqn.params["jaxpr"], eqn.params

        def turn(carry: list[jax.Array], xs: list[jax.Array]) -> Any:
            own = zip([*flat[:consts], *carry, *xs], slices, strict=True)
            args = [dataclasses.replace(s, part=x) if s else x for x, s in own]
            walk = _LateWalk(None, {}, self._told)
            out = walk.gather_all(walk.run(body.jaxpr, body.consts, args))
            ys = zip(out[carried:], wanted, strict=True)
            return out[:carried], [w.scatter_slice(y) if w else y for y, w in ys]

        flat = _with_types(eqn, flat, slices)
        carry, ys = jax.lax.scan(
            turn,
            flat[consts:start],
            flat[start:],
            length=params["length"],
            reverse=params["reverse"],
            unroll=params["unroll"],
        )
        for scatter in wanted:
            if scatter is not None:
                scatter.is_done = True
        return [*carry, *ys]

    def _find_slices(self, x: Value) -> Late | None:
        """Return a slice of what a loop reads along its first axis, still in parts."""
        if not isinstance(x, Late):
            return None
        split = x.find_slices()
        if split is None and x.split.axis == 0 and x.source.name not in self._told:
            self._told.add(x.source.name)
            _tell_of_loop(x.source)
        return None if split is None else dataclasses.replace(x, split=split)


def _called_program(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[jax.Array]] | None:
    """Return the program inside an equation that may stand in its place, if any.

    A function with a rule of its own for gradients stays a call: if somebody
    differentiates this program, the rule must be there.
    """
    name = eqn.primitive.name
    found = equations.called_program(eqn) if name in _PLAIN_CALLS else None
    return found if found and len(found[0].invars) == len(eqn.invars) else None


def _cuts_own_part(uses: late_scatters.Uses, eqn: JaxprEqn, late: Late) -> bool:
    """Whether an equation cuts from a whole array what `Split.cut` does: the part."""
    if eqn.primitive.name != "dynamic_slice" or late.changes:
        return False
    shape, axis = late.part.shape, late.split.axis
    starts = eqn.invars[1:]
    if eqn.params["slice_sizes"] != shape or len(starts) != len(shape):
        return False
    others = [v for i, v in enumerate(starts) if i != axis]
    if not all(equations.is_literal(v) and not v.val for v in others):
        return False
    # The start must be the replica's number, times the size of a part.
    product = uses.find_definition(starts[axis])
    if product is None or product.primitive.name != "mul":
        return False
    number, size = product.invars
    index = uses.find_definition(number)
    if index is not None and late.split.copies > 1:
        # The number within the group.
        count = index.invars[-1]
        is_count = equations.is_literal(count) and count.val == late.split.parts
        if index.primitive.name != "rem" or not is_count:
            return False
        index = uses.find_definition(index.invars[0])
    if index is None or index.primitive.name != "axis_index":
        return False
    is_size = equations.is_literal(size) and size.val == shape[axis]
    return is_size and index.params["axis_name"] == AXIS


def _are_groups(found: Sequence[Sequence[int]] | None, split: partition.Split) -> bool:
    """Whether a collective is within the groups that have all parts."""
    if found is None or split.groups is None:
        return found is split.groups
    return [list(g) for g in found] == split.groups


def _array(x: Value) -> jax.Array:
    """Return an array, or the part of one that is not gathered."""
    return x.part if isinstance(x, Late) else x


def _can_wait(x: object) -> bool:
    """Whether an operand is an array of numbers that another one can be tied to."""
    if not isinstance(x, jax.Array) or not x.size:
        return False
    return not jnp.issubdtype(x.dtype, jax.dtypes.extended)


def _with_types(
    eqn: JaxprEqn, values: Sequence[jax.Array], slices: Sequence[Late | None]
) -> list[jax.Array]:
    """Return the operands of a loop, with constants of the types they have there."""
    found = zip(eqn.invars, values, strict=True)
    return [
        jnp.asarray(x, equations.aval_of(v).dtype) if equations.is_literal(v) else x
        for v, x in found
    ]


def _tell_of_loop(source: SplitInput) -> None:
    """Log that a loop reads a variable along the axis that is cut."""
    parts = source.split.parts
    others = [i for i, n in enumerate(source.shape) if i and n % parts == 0]
    best = max(others, key=lambda i: source.shape[i], default=None)
    advice = (
        f"No other axis can be cut into {parts} parts."
        if best is None
        else f"Pass shard_rules={{{source.name!r}: {best}}} to the strategy."
    )
    _log.warning(
        "The variable %r of shape %s is gathered whole before a loop: the loop goes "
        "over axis 0, which is the one that is cut. %s",
        source.name,
        source.shape,
        advice,
    )


def _tie_by_select(part: jax.Array, other: jax.Array) -> jax.Array:
    """Return `part`, for XLA on CPU a value that depends on `other`.

    XLA drops barriers there, and then merges gathers and does all of them first. It
    cannot see that the condition is never true: no absolute value is above zero and at
    most zero.
    """
    first = jax.lax.slice_in_dim(jnp.real(other).reshape(-1), 0, 1)[0]
    never = jnp.minimum(jnp.abs(first.astype(jnp.int32)), 0) > 0
    changed = ~part if part.dtype == bool else part + jnp.ones((), part.dtype)
    return jnp.where(never, changed, part)


def _tie_by_barrier(part: jax.Array, other: jax.Array) -> jax.Array:
    """Return `part`, which is not there before `other`."""
    found: jax.Array = jax.lax.optimization_barrier((part, other))[0]
    return found


_TIES: dict[str, _Tie] = {"cpu": _tie_by_select}
