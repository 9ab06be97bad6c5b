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

from unisono._src.execution import (
    equations,
    late_scatters,
    late_sums,
    late_ties,
    partitioned_weights,
)
from unisono._src.execution.late_values import Late, SplitInput
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.machines import partition
from unisono._src.machines.topology import AXIS

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

    Value: TypeAlias = "jax.Array | Late"

_log = logging.getLogger("unisono")

# In bytes: so much of what was gathered last is kept for readers that follow.
SHARED = 1 << 22

# Calls of functions with a rule of their own for gradients, by name.
_OWN_RULES = {"custom_jvp_call", "custom_vjp_call"}
# Primitives by name that compute each element of a result from one of each operand.
_BY_ELEMENT = {
    "abs", "add", "add_any", "and", "ceil", "clamp", "div", "eq", "exp", "floor", "ge",
    "gt", "integer_pow", "is_finite", "le", "log", "logistic", "lt", "max", "min",
    "mul", "ne", "neg", "not", "or", "pow", "round", "rsqrt", "select_n", "sign",
    "sqrt", "square", "sub", "tanh",
}  # fmt: skip


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


def delay_partitioned(
    closed: ClosedProgram, args: Sequence[jax.Array], platform: str
) -> list[jax.Array]:
    """Return the results of a program, which gathers weights where it reads them.

    Args:
        closed: a program that XLA partitions, with marks of `partitioned_weights`.
        args: its inputs.
        platform: the platform of the devices, such as ``"cpu"``.
    """
    walk = _LateWalk(late_ties.find(platform), {}, set())
    return walk.gather_all(walk.run(closed.jaxpr, closed.consts, args))


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
        walk = _LateWalk(late_ties.find(platform), parts, set())
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
        hold: makes an array that is not there before another one. None for a turn of a
            loop, which gathers each weight once and has forgotten it at its end.
        parts: the inputs that are parts, with their variables.
        told: the names of variables that the log tells of already.
    """

    def __init__(
        self,
        hold: late_ties.Hold | None,
        parts: Mapping[Any, SplitInput],
        told: set[str],
    ) -> None:
        self._hold = hold
        self._told = told
        self._parts = parts
        self._recent: list[tuple[tuple[int, ...], jax.Array, Late]] = []
        # When each value was made: an operand that came last is the best one to tie to.
        self._made: dict[int, int] = {}
        self._count = itertools.count(1)
        # What was computed last from a gathered weight, and its axis on devices.
        self._read: late_sums.Placed | None = None
        # The gradient that was cut last by a program that XLA partitions, and its axis.
        self._cut: tuple[jax.Array, int] | None = None

    def run(
        self,
        jaxpr: Jaxpr,
        consts: Sequence[jax.Array],
        args: Sequence[Value],
        wanted: Sequence[late_scatters.Scatter | None] = (),
        after: Sequence[list[JaxprEqn]] = (),
    ) -> list[Value]:
        """Return the results of a program.

        Args:
            jaxpr: the program.
            consts: its constants.
            args: its inputs.
            wanted: for each result, how it is summed and cut later. A result for which
                that is done here already is marked as such.
            after: for each result, who reads it in the program around this one.
        """
        uses = late_scatters.Uses(jaxpr, wanted, after)
        ordered = jaxpr.replace(eqns=late_sums.order(uses))

        def follow(eqn: JaxprEqn, given: list[Value]) -> Sequence[Value]:
            found = self._follow(uses, eqn, given)
            when = next(self._count)
            self._made.update((id(x), when) for x in found)
            return found

        return equations.interpret(ordered, consts, args, follow, equations.value_of)

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
        part = self._find_part(eqn, given)
        if part is not None:
            return [part]
        if eqn.primitive.name == "scan":
            return self._follow_scan(uses, eqn, given)
        results = self._follow_call(uses, eqn, given)
        if results is not None:
            return results
        late = _keep_late(uses, eqn, given)
        if late is not None:
            return [late]
        found = self._compute(uses, eqn, self.gather_all(given))
        if self._hold is not None and any(isinstance(x, Late) for x in given):
            self._read = found[0], 0
        return found

    def _compute(
        self, uses: late_scatters.Uses, eqn: JaxprEqn, given: list[jax.Array]
    ) -> Sequence[jax.Array]:
        """Return the results of an equation, given whole operands."""
        gradient = late_sums.compute(uses, eqn, given, self._hold, self._read)
        if gradient is not None:
            if not self._parts:
                # The next one comes after it, too, in a program that XLA partitions.
                self._read = gradient
            return [gradient[0]]
        found = equations.compute(uses.jaxpr, eqn, given)
        if eqn.primitive is partitioned_weights.cut_p:
            self._cut = found[0], eqn.params["source"].split.axis
        return found

    def _follow_call(
        self, uses: late_scatters.Uses, eqn: JaxprEqn, given: list[Value]
    ) -> Sequence[Value] | None:
        """Return the results of a call whose program gathers by itself; else None."""
        called = equations.called_program(eqn)
        if called is None or len(called[0].invars) != len(eqn.invars):
            return None
        is_late = any(isinstance(x, Late) for x in given)
        is_late = is_late or partitioned_weights.has_marks(called[0])
        if eqn.primitive.name in _OWN_RULES:
            return self._keep_rule(uses.jaxpr, eqn, given) if is_late else None
        wanted = [uses.scatter_of(v) for v in eqn.outvars]
        after = [late_sums.find_cut(uses, v) for v in eqn.outvars]
        if not is_late and not any(wanted) and not any(after):
            return None
        return self.run(*called, self._hold_back(eqn, given), wanted, after)

    def _keep_rule(
        self, jaxpr: Jaxpr, eqn: JaxprEqn, given: list[Value]
    ) -> Sequence[jax.Array]:
        """Return the results of a function with a rule of its own for gradients.

        It gathers inside. If somebody differentiates this program, the rule is used,
        on whole arrays.
        """
        called = equations.called_program(eqn)
        assert called is not None

        def fill(args: Sequence[jax.Array]) -> list[Value]:
            pairs = zip(given, args, strict=True)
            return [
                dataclasses.replace(x, part=a) if isinstance(x, Late) else a
                for x, a in pairs
            ]

        def gather_inside(*args: jax.Array) -> list[jax.Array]:
            walk = _LateWalk(self._hold, {}, self._told)
            return walk.gather_all(walk.run(*called, fill(args)))

        def gather_before(*args: jax.Array) -> list[jax.Array]:
            whole = [x.gather() if isinstance(x, Late) else x for x in fill(args)]
            return equations.compute(jaxpr, eqn, whole)

        arrays = [self._wait(x, given) if isinstance(x, Late) else x for x in given]
        return _with_rule(eqn, gather_inside, gather_before)(*map(_array, arrays))

    def _find_part(self, eqn: JaxprEqn, given: list[Value]) -> Late | None:
        """Return the variable that an equation gathers, if it does that."""
        if eqn.primitive is partitioned_weights.gather_p:
            source = eqn.params["source"]
            return Late(source, _array(given[0]), source.split)
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
        places = [
            i for i, (x, f) in enumerate(pairs) if f and late_ties.can_wait(_array(x))
        ]
        if not places:
            return given
        held = jax.lax.optimization_barrier([_array(given[i]) for i in places])
        found = list(given)
        for i, x in zip(places, held, strict=True):
            old = given[i]
            found[i] = dataclasses.replace(old, part=x) if isinstance(old, Late) else x
        return [self._wait(x, given) if isinstance(x, Late) else x for x in found]

    def _wait(self, late: Late, values: Sequence[Value]) -> Late:
        """Return an array whose part is not there before the array that was made last.

        Args:
            late: the array.
            values: arrays, and those that are not gathered.
        """
        if self._hold is None:
            return late
        arrays = [
            x for x in values if not isinstance(x, Late) and late_ties.can_wait(x)
        ]
        if arrays:
            made = self._made
            last = max(arrays, key=lambda x: (x.ndim > 0, made.get(id(x), 0), x.size))
            late = late_ties.tie(late, last, 0, self._hold)
        if self._cut is not None:
            # So that XLA sums and cuts one gradient after the other, not all together.
            late = late_ties.tie(late, *self._cut, self._hold)
        return late

    def _gather(self, late: Late, others: Sequence[Value]) -> jax.Array:
        """Return a whole array for a reader.

        Args:
            late: the array.
            others: all operands of the reader.
        """
        for key, whole, _ in self._recent:
            if key == late.key:
                return whole
        whole = self._wait(late, others).gather()
        # With `late`, so that no other object gets its identity.
        self._recent.append((late.key, whole, late))
        while self._hold and sum(x.nbytes for _, x, _ in self._recent) > SHARED:
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


def _compute_parts(jaxpr: Jaxpr, eqn: JaxprEqn, given: Sequence[Value]) -> Late | None:
    """Return what an equation computes of each element by itself, still in parts.

    It is for programs that XLA partitions, where parts have the shape of the whole.
    """
    late = next((x for x in given if isinstance(x, Late)), None)
    if late is None or late.source.topology is None:
        return None
    if eqn.primitive.name not in _BY_ELEMENT:
        return None
    shape = equations.aval_of(eqn.outvars[0]).shape
    every = [x for x in given if isinstance(x, Late)]
    if any(x.changes or x.part.shape != shape for x in every):
        return None
    (part,) = equations.compute(jaxpr, eqn, [_array(x) for x in given])
    return dataclasses.replace(late, part=part)


def _keep_late(
    uses: late_scatters.Uses, eqn: JaxprEqn, given: list[Value]
) -> Value | None:
    """Return the result of an equation that needs no whole operand; else None."""
    first = given[0] if given else None
    if isinstance(first, Late):
        if len(given) > 1 and _cuts_own_part(uses, eqn, first):
            return first.part
        found = first.change(uses.jaxpr, eqn) if len(given) == 1 else None
        if found is not None:
            return found
    return _compute_parts(uses.jaxpr, eqn, given)


def _with_rule(
    eqn: JaxprEqn,
    fn: Callable[..., list[jax.Array]],
    original: Callable[..., list[jax.Array]],
) -> Callable[..., list[jax.Array]]:
    """Return a function that is differentiated as another one is."""
    if eqn.primitive.name == "custom_jvp_call":
        forward = jax.custom_jvp(fn)
        forward.defjvp(lambda primals, tangents: jax.jvp(original, primals, tangents))
        return forward
    found = jax.custom_vjp(fn)
    found.defvjp(
        lambda *args: jax.vjp(original, *args), lambda pull, given: pull(given)
    )
    return found


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
