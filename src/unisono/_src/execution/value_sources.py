"""Follows from which sources the values of a program come.

The sources of a value are a set of numbers, written as bits. What depends on a value
has all sources of it, but what a collective makes of the values of all replicas has
none: it is the same everywhere.
"""

from __future__ import annotations

import abc
import functools
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from unisono._src.execution import equations

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

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
