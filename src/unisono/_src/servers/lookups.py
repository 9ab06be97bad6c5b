"""Cuts a program where it asks parameter servers for rows of variables.

The positions of the rows are computed by the program itself. So it runs in stages: each
but the last computes positions, the rows are fetched, and the next stage has them as
inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
from jax.interpreters import partial_eval

from unisono._src.execution import equations
from unisono._src.foundation import jax_internals
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.servers import update_parts
from unisono._src.state import remote_state, rows
from unisono._src.state.storage import Cell

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Literal, Var


@final
@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
    """A part of a program that runs without asking anyone.

    Attributes:
        program: its inputs are those of the whole program, then the rows that earlier
            stages asked for. It gives positions; the last stage gives the results.
        cells: the variable of each position; none for the last stage.
    """

    program: ClosedProgram
    cells: tuple[Cell, ...]


def split(closed: ClosedProgram, name: str) -> list[Stage]:
    """Return the stages of a program; one if it asks for nothing.

    Args:
        closed: the program.
        name: the name of the function, for messages.

    Raises:
        ValueError: rows are asked for in a loop or branch.
    """
    if equations.find_equation(closed.jaxpr, rows.lookup_p) is None:
        return [Stage(closed, ())]
    closed = equations.inline(closed)
    jaxpr = closed.jaxpr
    # The level of a value: how many times rows must be fetched before it can be
    # computed. Lookups of one level are asked for together.
    levels: dict[Var, int] = {}
    asked: dict[int, list[JaxprEqn]] = {}
    rest = []
    for eqn in jaxpr.eqns:
        inputs = equations.variables_of(eqn.invars)
        level = max([levels.get(v, 0) for v in inputs], default=0)
        if eqn.primitive is rows.lookup_p:
            asked.setdefault(level, []).append(eqn)
            level += 1
        else:
            _check(eqn, name)
            rest.append(eqn)
        levels.update(dict.fromkeys(eqn.outvars, level))
    # Every stage gets all equations, of which dead code elimination keeps those that
    # its own outputs need. So a value may be computed in several stages.
    stages, inputs = [], list(jaxpr.invars)
    for level in sorted(asked):
        found = asked[level]
        wanted = [e.invars[0] for e in found]
        cells = tuple(e.params["cell"] for e in found)
        stages.append(Stage(_program(closed, inputs, wanted, rest), cells))
        inputs += [e.outvars[0] for e in found]
    stages.append(Stage(_program(closed, inputs, jaxpr.outvars, rest), ()))
    return stages


def _check(eqn: JaxprEqn, name: str) -> None:
    """Raise if a program inside an equation asks for rows of variables."""
    below = equations.inner(eqn)
    if any(equations.find_equation(p, rows.lookup_p) is not None for p in below):
        raise ValueError(
            f"The function '{name}' looks rows of a variable up inside "
            f"`{eqn.primitive.name}`, such as jax.lax.scan or cond. The rows are "
            "fetched between two compiled parts of the function. Look them up before, "
            "and pass them in."
        )


def _program(
    closed: ClosedProgram,
    inputs: Sequence[Var],
    outputs: Sequence[Var | Literal],
    equations: Sequence[JaxprEqn],
) -> ClosedProgram:
    jaxpr = update_parts.select_equations(closed, inputs, outputs, equations).jaxpr
    every = [True] * len(jaxpr.outvars)
    jaxpr, _ = partial_eval.dce_jaxpr(jaxpr, every, instantiate=True)
    return jax_internals.ClosedJaxpr(jaxpr, closed.consts)


@final
class StagedProgram:
    """A program that asks for rows, to be run in this process.

    Args:
        closed: the program.
        name: the name of the function, for messages.
    """

    def __init__(self, closed: ClosedProgram, name: str) -> None:
        stages = split(closed, name)
        self._stages = [
            (jax.jit(jax_internals.jaxpr_as_fun(s.program)), s) for s in stages
        ]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the results; the rows are fetched from servers."""
        given, found = list(inputs), list[Any]()
        for compiled, stage in self._stages:
            found = compiled(*given)
            pairs = zip(stage.cells, found, strict=False)
            given += [
                remote_state.home_of(cell).group.read_rows(cell, x) for cell, x in pairs
            ]
        return found
