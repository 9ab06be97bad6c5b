"""Puts programs in the place of the equations that call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from unisono._src.execution import replica_invariance

# Primitives that call a program.
CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call"}


def inline(closed: Any, with_branches: bool = False) -> Any:
    """Return a program with the programs that it calls put in place of the calls.

    Args:
        closed: the program.
        with_branches: whether branches are put in place, too: all are computed, and the
            results of one are selected. It holds for those without side effects.
    """

    def run(*args: Any) -> list[Any]:
        return _evaluate(closed.jaxpr, closed.consts, args, with_branches)

    return jax.make_jaxpr(run)(*closed.in_avals)


def compute(program: Any, eqn: Any, values: Sequence[Any]) -> list[Any]:
    """Return the results of one equation of a program."""
    # JAX evaluates programs, so make one of this equation alone.
    given = zip(eqn.invars, values, strict=True)
    by_var = {v: x for v, x in given if not replica_invariance.is_literal(v)}
    alone = program.replace(
        constvars=[], invars=list(by_var), outvars=list(eqn.outvars), eqns=[eqn]
    )
    found: list[Any] = jax.core.eval_jaxpr(alone, [], *by_var.values())
    return found


def inner(equation: Any) -> list[Any]:
    """Return the programs inside an equation."""
    found = jax.tree.leaves(list(equation.params.values()))
    found = [getattr(p, "jaxpr", p) for p in found]
    return [p for p in found if hasattr(p, "eqns")]


def find_equation(jaxpr: Any, primitive: Any) -> Any:
    """Return the first equation of a primitive in a program, at any depth, or None."""
    for equation in jaxpr.eqns:
        below = (find_equation(p, primitive) for p in inner(equation))
        found = (
            equation
            if equation.primitive is primitive
            else next((e for e in below if e is not None), None)
        )
        if found is not None:
            return found
    return None


def _evaluate(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], with_branches: bool
) -> list[Any]:
    """Return the results of a program, equation by equation."""
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(v: Any) -> Any:
        return v.val if replica_invariance.is_literal(v) else env[v]

    for eqn in jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        called = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        if eqn.primitive.name in CALLS and hasattr(called, "consts"):
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
