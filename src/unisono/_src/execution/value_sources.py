"""Follows from which sources the values of a program come.

The sources of a value are a set of numbers, written as bits. What depends on a value
has all sources of it, but what a collective makes of the values of all replicas has
none: it is the same everywhere.

So it is found out which values of a replica program are equal on all replicas: copies
of a mirrored variable must stay equal (decision 0006). Outside replicas, where a
program computes a value for each copy, two are equal if the same operations made them
of the same operands. And it is found out by what the
new value of a variable could differ between workers. They run the same program, but
each passes its own arguments, captures its own arrays, and has its own copy of
variables that belong to no strategy. If one of these reaches a variable that all
workers share, the workers compare it (`step_marks`, docs/decisions/0013).
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
from jax.interpreters import partial_eval
from jax.typing import ArrayLike

from unisono._src.execution import equations
from unisono._src.foundation import errors
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.machines import topology
from unisono._src.state.storage import Cell

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var


# Primitives by name. Equalising ones give all replicas the same result; separating ones
# may give each another one, even from equal operands.
EQUALISING = {"psum", "pmax", "pmin", "all_gather", "psum_invariant"}
_EXCHANGING = {"ppermute", "all_to_all", "reduce_scatter"}
SEPARATING = {*_EXCHANGING, "axis_index", "pure_callback", "io_callback"}
COLLECTIVES = {*EQUALISING, *_EXCHANGING}


def communicates(jaxpr: Jaxpr) -> bool:
    """Whether replicas meet in a collective somewhere in a program."""
    return any(e.primitive.name in COLLECTIVES for e in equations.walk(jaxpr))


def union(sources: Iterable[int]) -> int:
    """Return the sources of a value that depends on several."""
    return functools.reduce(operator.or_, sources, 0)


class SourceWalk(abc.ABC):
    """Follows the equations of a program from its inputs to its outputs.

    Attributes:
        decisive: the sources that decide whether replicas communicate.
    """

    def __init__(self) -> None:
        self.decisive = 0

    def outputs(
        self, jaxpr: Jaxpr, inputs: Sequence[int], constants: Sequence[int] = ()
    ) -> list[int]:
        """Return for each output of a program the sources that it comes from.

        Args:
            jaxpr: the program.
            inputs: the sources of each input.
            constants: the sources of each constant; none by default, because a constant
                is part of the one program that all run.
        """
        consts = constants or [0] * len(jaxpr.constvars)
        return equations.interpret(jaxpr, consts, inputs, self._follow, lambda _: 0)

    @abc.abstractmethod
    def _follow_other(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        """Return the sources of the results of an equation without a rule here."""

    def _follow(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        """Return the sources of the results of an equation."""
        name = eqn.primitive.name
        # With groups, replicas of one group only get the same result.
        if name in EQUALISING and eqn.params.get("axis_index_groups") is None:
            return [0] * len(eqn.outvars)
        if name == "cond":
            return self._follow_cond(eqn, given)
        if name == "scan":
            consts, carried = equations.scan_counts(eqn)
            body = eqn.params["jaxpr"].jaxpr
            carry, out = self._follow_turns(body, given, consts, carried)
            # Without any turn, the results are what the loop was given.
            return out if eqn.params["length"] else [*carry, *out[carried:]]
        if name == "while":
            return self._follow_while(eqn, given)
        called = equations.called_program(eqn)
        if called is not None and len(called[0].invars) == len(given):
            return self.outputs(called[0], given)
        return self._follow_other(eqn, given)

    def _follow_cond(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        """Return the sources of the results of all branches, and of what chooses."""
        which, *rest = given
        branches = [b.jaxpr for b in eqn.params["branches"]]
        found = [self.outputs(b, rest) for b in branches]
        results = [union(column) for column in zip(*found, strict=True)]
        return self._add_decision(which, branches, results)

    def _follow_while(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        """Return the sources of what a loop carries, and of what ends it."""
        test, body = eqn.params["cond_jaxpr"].jaxpr, eqn.params["body_jaxpr"].jaxpr
        split, consts = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
        # Without any turn, the results are what the loop was given.
        carry, _ = self._follow_turns(body, given[split:], consts, len(eqn.outvars))
        (end,) = self.outputs(test, [*given[:split], *carry])
        return self._add_decision(end, [test, body], carry)

    def _follow_turns(
        self, body: Jaxpr, given: list[int], consts: int, carried: int
    ) -> tuple[list[int], list[int]]:
        """Return the sources of what a loop carries into turns, and of their results.

        Args:
            body: the program of a turn; it returns first what it carries to the next.
            given: the sources of the inputs of the first turn.
            consts: how many inputs stand before those that are carried.
            carried: how many are carried.
        """
        stop = consts + carried
        # A turn may pass on what the turn before it got. Sources are only ever added,
        # so this ends.
        while True:
            carry, out = given[consts:stop], self.outputs(body, given)
            after = [a | b for a, b in zip(carry, out[:carried], strict=True)]
            if after == carry:
                return carry, out
            given = [*given[:consts], *after, *given[stop:]]

    def _add_decision(
        self, decision: int, programs: Sequence[Jaxpr], results: list[int]
    ) -> list[int]:
        """Return the sources of results of programs that a decision has run or not."""
        # Those who reach a collective would wait for ever for those who do not.
        if any(map(communicates, programs)):
            self.decisive |= decision
        return [sources | decision for sources in results]


# The first source stands for a value that workers have each computed for themselves.
OWN = 1


@final
class Constants:
    """The constants of a program; in one of several workers, arrays become its inputs.

    Workers may capture different arrays. XLA takes a constant to be the same on all
    devices and computes, for example, its sum over them without asking the others. And
    JAX compiles no arrays of other processes into a program.

    Args:
        values: all constants, in order.
        mesh: the devices of the program; None for a single device.

    Attributes:
        is_input: for each constant, whether it becomes an input.
        captured: the arrays that become inputs.
        spread: the same arrays, on the devices of all workers.
    """

    def __init__(self, values: Sequence[Any], mesh: topology.Topology | None) -> None:
        self._values = values
        self.is_input = [mesh is not None and _is_input(x, mesh) for x in values]
        pairs = zip(values, self.is_input, strict=True)
        self.captured = [x for x, is_input in pairs if is_input]
        # Once for each trace: every call passes the same arrays.
        self.spread = [mesh.spread(x) for x in self.captured if mesh is not None]

    def fill_in(self, spread: Sequence[Any]) -> list[Any]:
        """Return all constants, with the program's inputs for those of `spread`."""
        given = iter(spread)
        pairs = zip(self._values, self.is_input, strict=True)
        return [next(given) if is_input else x for x, is_input in pairs]


def _is_input(x: object, mesh: topology.Topology) -> bool:
    """Whether a constant of a program on `mesh` becomes an input of it."""
    is_array = isinstance(x, (jax.Array, np.ndarray))
    return mesh.is_spread and is_array


@final
@dataclasses.dataclass(frozen=True)
class Unproved:
    """What the workers must compare, because nothing proves that it is equal.

    Attributes:
        inputs: the positions of inputs of the program.
        captured: the positions of arrays that the function captures.
        written: the positions of new values of variables.
    """

    inputs: tuple[int, ...] = ()
    captured: tuple[int, ...] = ()
    written: tuple[int, ...] = ()


def is_shared(cell: Cell) -> bool:
    """Whether a variable has one value for all workers."""
    return cell.is_spread and not cell.is_stacked


def find_unproved(
    jaxpr: Jaxpr,
    constants: Constants,
    own: Sequence[bool],
    written: Sequence[Cell],
    differs: Sequence[bool] = (),
) -> Unproved:
    """Return what could make variables that workers share differ between them.

    Args:
        jaxpr: the program.
        constants: its constants.
        own: for each input, whether each worker passes its own.
        written: the cells that the first outputs of the program are for.
        differs: for each input, whether each worker takes another part of it; for none
            by default.
    """
    passed = [i for i, is_own in enumerate(own) if is_own]
    bits = {i: 2 << n for n, i in enumerate(passed)}
    start = 2 << len(passed)
    captured, count = [], 0
    for is_input in constants.is_input:
        captured.append(start << count if is_input else 0)
        count += is_input
    differing = [*differs, *[False] * (len(own) - len(differs))]
    inputs = [bits.get(i, 0) | (OWN if d else 0) for i, d in enumerate(differing)]
    follows = Dependence()
    found = follows.outputs(jaxpr, inputs, captured)
    shared = [(i, found[i]) for i, c in enumerate(written) if is_shared(c)]
    reached = union(m for _, m in shared) | follows.decisive
    return Unproved(
        tuple(i for i in passed if bits[i] & reached),
        tuple(n for n in range(count) if (start << n) & reached),
        tuple(i for i, mask in shared if mask & OWN),
    )


@final
class Dependence(SourceWalk):
    """Follows by which sources the values of a program may differ between workers."""

    def _follow_other(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        name = eqn.primitive.name
        if name == "shard_map":
            return self._follow_replicas(eqn, given)
        own = OWN if name in SEPARATING else 0
        return [union(given) | own] * len(eqn.outvars)

    def _follow_replicas(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        """Return the sources of what replicas return."""
        ins, outs = eqn.params["in_specs"], eqn.params["out_specs"]
        # Each replica has its own row of an array that is split. The array itself is
        # one value that all workers share.
        own = [m | (OWN if len(s) else 0) for m, s in zip(given, ins, strict=True)]
        found = self.outputs(eqn.params["jaxpr"], own)
        return [m & ~OWN if len(s) else m for m, s in zip(found, outs, strict=True)]


def find_equal(
    jaxpr: Jaxpr, inputs: Sequence[bool], parts: Sequence[int] = ()
) -> list[bool]:
    """Return for each output of a program whether it is equal on all replicas.

    Args:
        jaxpr: the program.
        inputs: for each input, whether it is equal on all replicas.
        parts: for each input, the number of parts if replicas that have the same part
            have equal values; else 0. The default is 0 for all.

    Raises:
        RuntimeError: replicas may meet different numbers of times.
    """
    counts = parts or [0] * len(inputs)
    differences = _Differences({*counts} - {0})
    given = zip(inputs, counts, strict=True)
    sources = [0 if same else differences.source_of(count) for same, count in given]
    found = differences.outputs(jaxpr, sources)
    if differences.decisive:
        # Replicas may take different branches, or different numbers of turns.
        raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
    return [not differs for differs in found]


@final
class _Differences(SourceWalk):
    """Follows which values may differ between replicas: their source is 1.

    Another source stands for values that depend only on the part of a variable that the
    replica has, where several groups of replicas have all parts.

    Args:
        counts: the numbers of parts, which are the sizes of the groups.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        super().__init__()
        self._sources = {n: 2 << i for i, n in enumerate(sorted(counts))}

    def source_of(self, count: int) -> int:
        """Return the source of a value that differs between so many parts; 0 is any."""
        return self._sources.get(count, 1)

    def _follow_other(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        # What has no rule counts as different: a false alarm is possible, a silent
        # divergence is not.
        found = union(given)
        groups = eqn.params.get("axis_index_groups")
        if groups and eqn.primitive.name in EQUALISING:
            found = self._follow_groups([list(g) for g in groups], found)
        elif may_separate(eqn):
            found |= 1
        return [found] * len(eqn.outvars)

    def _follow_groups(self, groups: list[list[int]], given: int) -> int:
        """Return the source of what a collective within groups makes of a value."""
        for count, source in self._sources.items():
            total = sum(map(len, groups))
            if groups == [list(range(i, total, count)) for i in range(count)]:
                # Those that have the same part get the same.
                return source
            starts = range(0, total, count)
            if groups == [list(range(i, i + count)) for i in starts]:
                # All parts together are the same in all groups.
                return 0 if given in (0, source) else 1
        return 1


# The equalising primitives are among them for the case of groups.
_SEPARATING = {*SEPARATING, *EQUALISING}


def may_separate(eqn: JaxprEqn) -> bool:
    """Whether an equation may give replicas different results from equal operands."""
    return eqn.primitive.name in _SEPARATING or any(
        may_separate(e) for p in equations.inner(eqn) for e in p.eqns
    )


# Primitives by name. The first give back their operands; the second may give another
# result each time.
_COPYING = {"copy", "copy_p", "stop_gradient", "optimization_barrier"}
_CHANGING = {"pure_callback", "io_callback", "rng_uniform"}


def check(closed: ClosedProgram, cells: Sequence[Cell]) -> None:
    """Raises if copies of a cell would get different values.

    Args:
        closed: a program whose last outputs are a pair of values for each of `cells`.
        cells: the cells.

    Raises:
        ValueError: nothing proves that the two values of a pair are equal.
    """
    if not cells:
        return
    numbers = _Numbering().outputs(closed.jaxpr, closed.consts, None)
    pairs = iter(numbers[-2 * len(cells) :])
    for cell, first, other in zip(cells, pairs, pairs, strict=True):
        if first != other:
            raise errors.diverging_copies_error(cell.name, cell.origin)


@final
class _Numbering:
    """Gives each value of a program a number, and equal values the same one."""

    def __init__(self) -> None:
        self._count = 0
        # By operation and numbers of the operands: the equations seen so far, with the
        # numbers of their results.
        self._seen: dict[Any, list[tuple[Any, list[int]]]] = {}
        self._constants: dict[Any, list[tuple[Any, int]]] = {}

    def outputs(
        self, jaxpr: Jaxpr, consts: Sequence[Any], inputs: Sequence[int] | None
    ) -> list[int]:
        """Returns the number of each output of a program.

        Args:
            jaxpr: the program.
            consts: its constants.
            inputs: the number of each input; None gives each another one.
        """
        return equations.interpret(
            jaxpr,
            [self._number_of_constant(x) for x in consts],
            self._new_numbers(len(jaxpr.invars)) if inputs is None else inputs,
            lambda eqn, operands: self._number_results(jaxpr, eqn, operands),
            lambda literal: self._number_of_constant(literal.val),
        )

    def _new_numbers(self, count: int) -> list[int]:
        """Returns numbers that no value has yet."""
        self._count += count
        return list(range(self._count - count, self._count))

    def _number_of_constant(self, value: ArrayLike) -> int:
        """Returns the number of a constant, which equal constants share."""
        kind = (np.shape(value), getattr(value, "dtype", type(value)))
        bucket = self._constants.setdefault(kind, [])
        for other, number in bucket:
            if equations.is_same_value(value, other):
                return number
        bucket.append((value, self._new_numbers(1)[0]))
        return bucket[-1][1]

    def _number_results(
        self, jaxpr: Jaxpr, eqn: JaxprEqn, operands: list[int]
    ) -> list[int]:
        """Returns the numbers of an equation's results.

        Args:
            jaxpr: the program of the equation.
            eqn: the equation.
            operands: the numbers of its operands.
        """
        name, count = eqn.primitive.name, len(eqn.outvars)
        if name in _COPYING:
            return operands
        # Look into calls: the two values may be computed partly inside and partly
        # outside.
        inner = equations.called_program(eqn)
        if inner is not None and len(inner[0].invars) == len(operands):
            return self.outputs(*inner, operands)
        if name in _CHANGING or eqn.effects:
            return self._new_numbers(count)
        if count > 1 and eqn.primitive in partial_eval.dce_rules:
            # A loop or branch: each result by itself, made by those parts of the body
            # and of the operands that it needs.
            return [self._number_result(jaxpr, eqn, operands, v) for v in eqn.outvars]
        return self._find_equation(eqn, operands)

    def _number_result(
        self, jaxpr: Jaxpr, eqn: JaxprEqn, operands: list[int], result: Var
    ) -> int:
        """Returns the number of one result of an equation with programs inside."""
        every = zip(eqn.invars, operands, strict=True)
        known = {v: number for v, number in every if not equations.is_literal(v)}
        alone = jaxpr.replace(
            constvars=[], invars=list(known), outvars=[result], eqns=[eqn]
        )
        part, _ = partial_eval.dce_jaxpr(alone, [True])
        places = [
            (e, i) for e in part.eqns for i, v in enumerate(e.outvars) if v is result
        ]
        if not places:
            # Nobody uses the result.
            return self._new_numbers(1)[0]
        (needed, place), *_ = places
        given = [
            self._number_of_constant(x.val) if equations.is_literal(x) else known[x]
            for x in needed.invars
        ]
        return self._find_equation(needed, given)[place]

    def _find_equation(self, eqn: JaxprEqn, operands: list[int]) -> list[int]:
        """Returns the results of an equal equation, or new ones if there is none."""
        bucket = self._seen.setdefault((eqn.primitive, tuple(operands)), [])
        for other, numbers in bucket:
            if equations.has_same_params(eqn, other):
                return numbers
        bucket.append((eqn, self._new_numbers(len(eqn.outvars))))
        return bucket[-1][1]


def flatten(alike: Sequence[tuple[Cell, Any, Any]]) -> list[jax.Array]:
    """Returns the values of pairs that must be equal, as `check` wants them."""
    return [x for _, first, other in alike for x in (first, other)]
