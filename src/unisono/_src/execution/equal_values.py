"""Finds out which values of a program are certainly equal.

A program outside replicas has one value for all copies of a mirrored variable. Where it
computes a value for each copy, these must be the same (decision 0006). Two values are
if the same operations made them of the same operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
import numpy as np
from jax.interpreters import partial_eval
from jax.typing import ArrayLike

from unisono._src.execution import equations, jaxpr_equality
from unisono._src.foundation import errors
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.state.storage import Cell

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

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
            if jaxpr_equality.is_same_value(value, other):
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
            if jaxpr_equality.has_same_params(eqn, other):
                return numbers
        bucket.append((eqn, self._new_numbers(len(eqn.outvars))))
        return bucket[-1][1]


def flatten(alike: Sequence[tuple[Cell, Any, Any]]) -> list[jax.Array]:
    """Returns the values of pairs that must be equal, as `check` wants them."""
    return [x for _, first, other in alike for x in (first, other)]
