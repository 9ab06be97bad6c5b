"""What a scheduled function prints and checks while it runs.

A worker runs a compiled program in another process, which cannot call Python. So the
program gives the values of each `print` and check as further results. The worker looks
whether a check has failed, and makes no change then. The coordinator, which has the
Python functions, prints the values and raises the error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, final

import numpy as np

from unisono._src.execution import equations, program_checks
from unisono._src.execution.traced_function import TracedFunction

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Literal, Var

_CALL = "debug_callback"


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Told:
    """One `print` or check of a program.

    Attributes:
        call: the Python function that prints, or notes the failure.
        count: how many values it takes.
        branch: for a check, the branch in which it has failed; a value more, before
            the others, tells the branch that was taken.
    """

    call: Callable[..., object]
    count: int
    branch: int | None = None

    @property
    def outputs(self) -> int:
        """How many values the program gives for it."""
        return self.count + (self.branch is not None)


def take_out(found: TracedFunction) -> tuple[TracedFunction, tuple[Told, ...]]:
    """Returns a trace that gives values in place of its prints and checks.

    Those in loops and branches stay.

    Args:
        found: the trace.

    Returns:
        The trace, whose last results are the values; and what to do with them.
    """
    jaxpr, told, kept = found.jaxpr, list[Told](), list["JaxprEqn"]()
    values: list[Var | Literal] = []
    for eqn in jaxpr.eqns:
        part = _read_print(eqn) or _read_check(eqn)
        if part is None:
            kept.append(eqn)
        else:
            told.append(part[0])
            values += part[1]
    if not told:
        return found, ()
    outvars = [*jaxpr.outvars, *values]
    changed = jaxpr.replace(eqns=kept, outvars=outvars)
    return dataclasses.replace(found, jaxpr=changed), tuple(told)


def _read_print(eqn: JaxprEqn) -> tuple[Told, list[Var | Literal]] | None:
    """Returns a call of Python and its operands, or None for another operation."""
    if eqn.primitive.name != _CALL:
        return None
    return Told(eqn.params["callback"], len(eqn.invars)), list(eqn.invars)


def _read_check(eqn: JaxprEqn) -> tuple[Told, list[Var | Literal]] | None:
    """Returns a check, which calls Python in one of its branches and does no more."""
    if eqn.primitive.name != "cond" or eqn.outvars:
        return None
    branches = [branch.jaxpr for branch in eqn.params["branches"]]
    busy = [i for i, branch in enumerate(branches) if branch.eqns]
    if len(busy) != 1 or len(branches[busy[0]].eqns) != 1:
        return None
    branch = branches[busy[0]]
    inner = _read_print(branch.eqns[0])
    if inner is None:
        return None
    outer = dict(zip(branch.invars, eqn.invars[1:], strict=True))
    operands = [v if equations.is_literal(v) else outer.get(v) for v in inner[1]]
    if any(v is None for v in operands):
        return None
    told = dataclasses.replace(inner[0], branch=busy[0])
    return told, [eqn.invars[0], *(v for v in operands if v is not None)]


def list_checks(told: Sequence[Told]) -> tuple[tuple[int, int], ...]:
    """Returns the place of each check's branch, from the end, and where it fails."""
    place = -sum(one.outputs for one in told)
    found = []
    for one in told:
        if one.branch is not None:
            found.append((place, one.branch))
        place += one.outputs
    return tuple(found)


def tell(told: Sequence[Told], arrays: Sequence[np.ndarray]) -> None:
    """Prints what a program has printed; raises the error of a check that failed.

    Args:
        told: the prints and checks, in the order of the program.
        arrays: the results of the program; the last ones are the values.
    """
    place = len(arrays) - sum(one.outputs for one in told)
    for one in told:
        values = arrays[place : place + one.outputs]
        place += one.outputs
        if one.branch is None:
            one.call(*values)
        elif int(values[0]) == one.branch:
            with program_checks.raising():
                one.call(*values[1:])


def raise_failure(told: Sequence[Told], arrays: Sequence[np.ndarray]) -> NoReturn:
    """Prints what came before the check that failed, and raises its error."""
    tell(told, arrays)
    raise AssertionError("A check of a scheduled function has failed without an error.")
