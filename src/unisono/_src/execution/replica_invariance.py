"""Finds out which values of a replica program are equal on all replicas.

Copies of a mirrored variable must stay equal (decision 0006). The equations of a
program tell whether a new value is: the result of an all-reduce is equal everywhere, a
value that depends on the replica's number or data is not, and any other value is equal
if its operands are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from unisono._src.execution import equations
from unisono._src.foundation import errors

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn


@final
class Invariance:
    """Follows a program's equations and notes which values all replicas share."""

    def outputs(self, jaxpr: Jaxpr, inputs: Sequence[bool]) -> list[bool]:
        """Return for each output of a program whether it is equal on all replicas.

        Args:
            jaxpr: the program.
            inputs: for each input, whether it is equal on all replicas.

        Raises:
            RuntimeError: replicas may meet different numbers of times.
        """
        known: dict[equations.Atom, bool] = dict(zip(jaxpr.invars, inputs, strict=True))
        # A constant is part of the one program that all replicas run.
        known.update((v, True) for v in jaxpr.constvars)
        for eqn in jaxpr.eqns:
            self._follow_equation(eqn, known)
        return [self._is_equal(v, known) for v in jaxpr.outvars]

    def _is_equal(self, var: equations.Atom, known: dict[equations.Atom, bool]) -> bool:
        # Unknown counts as unequal: a false alarm is possible, a silent divergence is
        # not.
        return True if equations.is_literal(var) else known.get(var, False)

    def _follow_equation(
        self, eqn: JaxprEqn, known: dict[equations.Atom, bool]
    ) -> None:
        """Note in `known` whether the results of an equation are equal."""
        name = eqn.primitive.name
        same = [self._is_equal(v, known) for v in eqn.invars]
        # With groups, replicas of one group only get the same result.
        if name in EQUALISING and eqn.params.get("axis_index_groups") is None:
            out = [True] * len(eqn.outvars)
        elif name in _SEPARATING:
            out = [False] * len(eqn.outvars)
        elif all(same) and not may_separate(eqn):
            out = [True] * len(eqn.outvars)
        else:
            out = self._follow_nested(eqn, same)
        known.update(zip(eqn.outvars, out, strict=True))

    def _follow_nested(self, eqn: JaxprEqn, same: list[bool]) -> list[bool]:
        """Look into an equation that holds programs; take any other as unequal."""
        name = eqn.primitive.name
        if name == "cond":
            return self._follow_cond(eqn, same)
        if name == "scan":
            return self._follow_scan(eqn, same)
        if name == "while":
            return self._follow_while(eqn, same)
        called = equations.called_program(eqn)
        if called is None or len(called[0].invars) != len(same):
            return [False] * len(eqn.outvars)
        return self.outputs(called[0], same)

    def _follow_cond(self, eqn: JaxprEqn, same: list[bool]) -> list[bool]:
        """Return which results of a `cond` are equal: those equal in all branches."""
        branches = [b.jaxpr for b in eqn.params["branches"]]
        if not same[0]:
            # Replicas may take different branches. Those that reach a collective would
            # wait for ever for the others.
            if any(map(communicates, branches)):
                raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
            return [False] * len(eqn.outvars)
        found = [self.outputs(b, same[1:]) for b in branches]
        return [all(column) for column in zip(*found, strict=True)]

    def _follow_while(self, eqn: JaxprEqn, same: list[bool]) -> list[bool]:
        """Return which results of a `while` are equal."""
        test, body = (eqn.params[k].jaxpr for k in ("cond_jaxpr", "body_jaxpr"))
        split = eqn.params["cond_nconsts"]
        start = split + eqn.params["body_nconsts"]
        carry = same[start:]
        # A carried value is equal only if it is so before and after every turn. Values
        # can only change from equal to unequal, so this ends.
        while True:
            after = self.outputs(body, [*same[split:start], *carry])
            after = [a and b for a, b in zip(carry, after, strict=True)]
            if after == carry:
                break
            carry = after
        if self.outputs(test, [*same[:split], *carry]) == [True]:
            return carry
        # Replicas may take different numbers of turns, as in a `cond`.
        if communicates(body) or communicates(test):
            raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
        return [False] * len(eqn.outvars)

    def _follow_scan(self, eqn: JaxprEqn, same: list[bool]) -> list[bool]:
        """Return which results of a `scan` are equal."""
        consts, carry = equations.scan_counts(eqn)
        inner = eqn.params["jaxpr"].jaxpr
        # As in `_follow_while`, until no carried value changes any more.
        while True:
            out = self.outputs(inner, same)
            after = [
                a and b
                for a, b in zip(same[consts : consts + carry], out, strict=False)
            ]
            if after == same[consts : consts + carry]:
                return out
            same = [*same[:consts], *after, *same[consts + carry :]]


# Primitives by name. Equalising ones give all replicas the same result; separating ones
# may give each another one, even from equal operands. The equalising ones are among
# them for the case of groups, which is decided first.
EQUALISING = {"psum", "pmax", "pmin", "all_gather", "psum_invariant"}
_SEPARATING = {"axis_index", "ppermute", "all_to_all", "reduce_scatter",
               "pure_callback", "io_callback", *EQUALISING}  # fmt: skip
COLLECTIVES = {*EQUALISING, "ppermute", "all_to_all", "reduce_scatter"}


def may_separate(eqn: JaxprEqn) -> bool:
    """Whether an equation may give replicas different results from equal operands."""
    return eqn.primitive.name in _SEPARATING or any(
        may_separate(e) for p in equations.inner(eqn) for e in p.eqns
    )


def communicates(jaxpr: Jaxpr) -> bool:
    """Whether replicas meet in a collective somewhere in a program."""
    return any(e.primitive.name in COLLECTIVES for e in equations.walk(jaxpr))
