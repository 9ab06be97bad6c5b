"""Reads, computes and inlines the equations of JAX's programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import numpy as np

from unisono._src.foundation.jax_internals import ClosedProgram

if TYPE_CHECKING:
    # It takes long to load.
    from jax.extend.core import Jaxpr, JaxprEqn, Literal, Primitive, Var
    from typing_extensions import TypeIs

    Atom: TypeAlias = Var | Literal


class HasShape(Protocol):
    """An array, a variable, or what describes one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes."""

    @property
    def dtype(self) -> np.dtype:
        """The element type."""


# Primitives that call a program whose equations may stand in place of the call.
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call"}
# These have rules of their own for gradients.
_ALL_CALLS = {*CALLS, "custom_vjp_call", "remat", "checkpoint"}


def is_literal(atom: Atom) -> TypeIs[Literal]:
    """Whether an operand of a program is a constant."""
    # Not by `isinstance`: the class is in `jax.extend`, which takes long to load.
    return hasattr(atom, "val")


def aval_of(atom: Atom) -> jax.core.ShapedArray:
    """Return the shape and type of an operand or result."""
    found: jax.core.ShapedArray = atom.aval  # type: ignore[assignment]
    return found


def variables_of(atoms: Sequence[Atom]) -> list[Var]:
    """Return the operands that are no constants."""
    return [v for v in atoms if not hasattr(v, "val")]


def scan_counts(eqn: JaxprEqn) -> tuple[int, int]:
    """Return how many operands of a scan are constants, and how many are carried."""
    if "num_consts" in eqn.params:
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()  # Since JAX 0.12.
    return len(consts), len(carry)


def called_program(eqn: JaxprEqn) -> tuple[Jaxpr, Sequence[jax.Array]] | None:
    """Return the program that an equation calls once, with its constants, if any."""
    if eqn.primitive.name not in _ALL_CALLS:
        return None
    called = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    found = jaxpr_of(called)
    return None if found is None else (found, getattr(called, "consts", ()))


def inlinable_program(eqn: JaxprEqn) -> ClosedProgram | None:
    """Return the program that may stand in place of an equation, if there is one."""
    called = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    is_closed = eqn.primitive.name in CALLS and hasattr(called, "consts")
    return called if is_closed else None


def jaxpr_of(parameter: object) -> Jaxpr | None:
    """Return the program that a parameter of an equation is or wraps, if any."""
    found: Any = getattr(parameter, "jaxpr", parameter)
    return found if hasattr(found, "eqns") else None


def inner(eqn: JaxprEqn) -> list[Jaxpr]:
    """Return the programs inside an equation."""
    found = map(jaxpr_of, jax.tree.leaves(list(eqn.params.values())))
    return [p for p in found if p is not None]


def walk(jaxpr: Jaxpr, into_replicas: bool = True) -> Iterator[JaxprEqn]:
    """Yield all equations of a program, each before those of the programs inside it.

    Args:
        jaxpr: the program.
        into_replicas: whether to look into the programs of replicas too.
    """
    for eqn in jaxpr.eqns:
        yield eqn
        if into_replicas or eqn.primitive.name != "shard_map":
            for program in inner(eqn):
                yield from walk(program, into_replicas)


def inline(closed: ClosedProgram, with_branches: bool = False) -> ClosedProgram:
    """Return a program with the programs that it calls put in place of the calls.

    Args:
        closed: the program.
        with_branches: whether branches are put in place, too: all are computed, and the
            results of one are selected. It holds for those without side effects.
    """

    def run(*args: jax.Array) -> list[jax.Array]:
        return _evaluate(closed.jaxpr, closed.consts, args, with_branches)

    return jax.make_jaxpr(run)(*closed.in_avals)


def compute(
    program: Jaxpr, eqn: JaxprEqn, values: Sequence[jax.Array]
) -> list[jax.Array]:
    """Return the results of one equation of a program."""
    # JAX evaluates programs, so make one of this equation alone.
    given = zip(eqn.invars, values, strict=True)
    by_var = {v: x for v, x in given if not is_literal(v)}
    alone = program.replace(
        constvars=[], invars=list(by_var), outvars=list(eqn.outvars), eqns=[eqn]
    )
    return jax.core.eval_jaxpr(alone, [], *by_var.values())


def _evaluate(
    jaxpr: Jaxpr,
    consts: Sequence[jax.Array],
    args: Sequence[jax.Array],
    with_branches: bool,
) -> list[jax.Array]:
    """Return the results of a program, equation by equation."""
    env: dict[Atom, jax.Array] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Atom) -> jax.Array:
        return v.val if is_literal(v) else env[v]

    for eqn in jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        called = inlinable_program(eqn)
        if called is not None:
            out = _evaluate(called.jaxpr, called.consts, given, with_branches)
        elif with_branches and eqn.primitive.name == "cond" and not eqn.effects:
            # Evaluate every branch and select: a branch cannot be cut, a selection can.
            which, *rest = given
            branches = [
                _evaluate(b.jaxpr, b.consts, rest, True) for b in eqn.params["branches"]
            ]
            out = [jax.lax.select_n(which, *xs) for xs in zip(*branches, strict=True)]
        else:
            out = compute(jaxpr, eqn, given)
        env.update(zip(eqn.outvars, out, strict=True))
    return [read(v) for v in jaxpr.outvars]


def find_equation(jaxpr: Jaxpr, primitive: Primitive) -> JaxprEqn | None:
    """Return the first equation of a primitive in a program, at any depth, or None."""
    for equation in jaxpr.eqns:
        if equation.primitive is primitive:
            return equation
        below = (find_equation(p, primitive) for p in inner(equation))
        found = next((e for e in below if e is not None), None)
        if found is not None:
            return found
    return None
