"""Cuts programs at parameter servers: updates by server, lookups by stages.

An update is a function of all variables, slots and gradients. A server has some of the
variables, and the worker has all gradients. For each server the part of the program is
taken that computes its own variables. What that part needs of gradients of other
servers' variables, such as the norm of all gradients, the worker computes and sends
along. An update that needs the variables or slots of another server cannot be cut.

A program that asks servers for rows computes the positions of the rows itself. So it
runs in stages: each but the last computes positions, the rows are fetched, and the next
stage has them as inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, final

import jax
from jax.interpreters import partial_eval

from unisono._src.execution import equations
from unisono._src.foundation import ambient, jax_internals
from unisono._src.foundation.jax_internals import ClosedProgram
from unisono._src.state import remote_state, rows
from unisono._src.state.storage import Cell

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Literal, Var

    from unisono._src.state.remote_state import UpdateFunction


class CannotBeCutError(NotImplementedError):
    """An update needs variables of several servers at once."""


@final
@dataclasses.dataclass(frozen=True, eq=False)
class UpdatePart:
    """One server's part of an update.

    Attributes:
        server: the server.
        written: which of the cells it computes, by position.
        reads: which cells it needs besides.
        program: computes the new values from those of `written`, `reads` and operands.
        operands: computes the operands from all gradients.
        sent: for each operand the gradient that it is; -1 if it is computed from some.
    """

    server: int
    written: tuple[int, ...]
    reads: tuple[int, ...]
    program: ClosedProgram
    operands: ClosedProgram
    sent: tuple[int, ...]


def cut(
    change: UpdateFunction,
    cells: Sequence[jax.ShapeDtypeStruct],
    gradients: Sequence[jax.ShapeDtypeStruct],
    homes: Sequence[tuple[int, ...]],
    owners: Sequence[int],
    kept: frozenset[int],
) -> list[UpdatePart]:
    """Return the parts of an update, one for each server with cells that change.

    Args:
        change: a function from the values of cells and the gradients to new values.
        cells: the shape and type of each cell.
        gradients: the shape and type of each gradient's arrays.
        homes: the servers that have each cell.
        owners: for each of `gradients`, the cell that it is for.
        kept: positions of cells that stay as they are.

    Raises:
        CannotBeCutError: a server would need the variables of another one.
    """
    servers = sorted({s for home in homes for s in home})
    # A branch that is for all variables, as of an update that is left out if gradients
    # are not finite, is for the variables of each server alone.
    # In no frame and no tape: the programs are for any later call. Outside of the
    # strategy, where Keras would sum the gradients once more.
    with ambient.push(state=None, tape=None, strategy=None):
        traced = jax.make_jaxpr(change)(list(cells), list(gradients))
        closed = equations.inline(traced, len(servers) > 1)
    ends = zip(closed.jaxpr.invars, closed.jaxpr.outvars, strict=False)
    kept |= {i for i, (old, new) in enumerate(ends) if old is new}
    parts = (
        _UpdatePartFinder(closed, len(cells), homes, owners, s).cut(kept)
        for s in servers
    )
    return [part for part in parts if part.written]


@final
class _UpdatePartFinder:
    """Finds one server's part of an update.

    Args:
        closed: the whole update. Its inputs are cells, then gradients.
        count: how many cells there are.
        homes: the servers that have each cell.
        owners: for each gradient, its cell.
        server: the server.
    """

    def __init__(
        self,
        closed: ClosedProgram,
        count: int,
        homes: Sequence[tuple[int, ...]],
        owners: Sequence[int],
        server: int,
    ) -> None:
        self._closed, self._server, self._homes = closed, server, homes
        jaxpr = closed.jaxpr
        self._cells, self._gradients = jaxpr.invars[:count], jaxpr.invars[count:]
        pairs = zip(self._gradients, owners, strict=True)
        self._own = [g for g, owner in pairs if server in homes[owner]]
        # What the worker can compute: whatever needs gradients only.
        self._known = {*self._gradients, *jaxpr.constvars}
        for eqn in jaxpr.eqns:
            if all(v in self._known for v in equations.variables_of(eqn.invars)):
                self._known.update(eqn.outvars)
        here = [v for v, h in zip(self._cells, homes, strict=True) if server in h]
        # What the server has, or can compute.
        self._here = {*here, *self._own, *jaxpr.constvars}
        self._sent: dict[Var, None] = dict.fromkeys(self._own)

    def cut(self, kept: frozenset[int]) -> UpdatePart:
        """Return the part, without the cells in `kept`."""
        # First what the server's new values need; of that, what the server computes
        # itself; the rest are operands, which the worker computes from gradients and
        # sends.
        jaxpr, server = self._closed.jaxpr, self._server
        written = tuple(
            i for i, h in enumerate(self._homes) if server in h and i not in kept
        )
        wanted = [i in written for i in range(len(jaxpr.outvars))]
        needed, _ = partial_eval.dce_jaxpr(jaxpr, wanted, instantiate=True)
        equations = [e for e in needed.eqns if self._is_for_server(e)]
        for v in needed.outvars:
            self._require([v], "its result")
        sent = list(self._sent)
        reads = [i for i, h in enumerate(self._homes) if server in h]
        reads = [i for i in reads if i not in written]
        inputs = [self._cells[i] for i in (*written, *reads)]
        program = select_equations(
            self._closed, [*inputs, *sent], needed.outvars, equations
        )
        # Operands that the part does not need are not sent, nor cells read.
        program, used = _drop_unused(program, len(written))
        n = len(inputs)
        reads = [i for i, u in zip(reads, used[len(written) :], strict=False) if u]
        sent = [v for v, u in zip(sent, used[n:], strict=True) if u]
        operands = select_equations(self._closed, self._gradients, sent, jaxpr.eqns)
        operands, _ = _drop_unused(operands, len(self._gradients))
        number = {v: i for i, v in enumerate(self._gradients)}
        which = tuple(number.get(v, -1) for v in sent)
        return UpdatePart(server, written, tuple(reads), program, operands, which)

    def _is_for_server(self, eqn: JaxprEqn) -> bool:
        """Whether the server computes an equation; else the worker does."""
        missing = [v for v in equations.variables_of(eqn.invars) if v not in self._here]
        can_leave = bool(missing) and all(v in self._known for v in eqn.outvars)
        is_small = all(equations.aval_of(v).size <= 1 for v in missing)
        # Numbers travel, such as a norm; arrays stay where they are if they can.
        if can_leave and (
            all(equations.aval_of(v).size <= 1 for v in eqn.outvars) or not is_small
        ):
            return False
        self._require(missing, f"`{eqn.primitive.name}`")
        self._here.update(eqn.outvars)
        return True

    def _require(self, values: Sequence[Var | Literal], what: str) -> None:
        """Let the worker send the values that the server does not have."""
        for v in values:
            if equations.is_literal(v) or v in self._here:
                continue
            if v not in self._known:
                raise CannotBeCutError(
                    f"The update of the optimizer needs variables, or slots, of other "
                    f"parameter servers to compute {what} on server {self._server}. A "
                    "transformation may combine gradients of all variables, such as "
                    "optax.clip_by_global_norm, but not the variables themselves. Put "
                    "the variables on one server, or use another transformation."
                )
            self._here.add(v)
            self._sent[v] = None


def select_equations(
    closed: ClosedProgram,
    inputs: Sequence[Var],
    outputs: Sequence[Var | Literal],
    equations: Sequence[JaxprEqn],
) -> ClosedProgram:
    """Return a program of some of the equations of another one."""
    jaxpr = closed.jaxpr.replace(
        invars=list(inputs), outvars=list(outputs), eqns=list(equations)
    )
    return jax_internals.ClosedJaxpr(jaxpr, closed.consts)


def _drop_unused(closed: ClosedProgram, fixed: int) -> tuple[ClosedProgram, list[bool]]:
    """Return a program without its unused inputs; the first `fixed` ones stay."""
    keep = [i < fixed for i in range(len(closed.jaxpr.invars))]
    wanted = [True] * len(closed.jaxpr.outvars)
    jaxpr, used = partial_eval.dce_jaxpr(closed.jaxpr, wanted, instantiate=keep)
    return jax_internals.ClosedJaxpr(jaxpr, closed.consts), used


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
    jaxpr = select_equations(closed, inputs, outputs, equations).jaxpr
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
