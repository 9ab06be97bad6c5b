"""Which values of a replica program are equal on all replicas.

Copies of a mirrored variable must stay equal. Whether a new value is equal everywhere
can be read off the equations: what comes out of an all-reduce is, what depends on the
replica's number or data is not, and everything else is if its operands are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax

from unisono._src.foundation import errors


@final
class Invariance:
    """Which values of a program are equal on all replicas, seen from its equations."""

    def outputs(self, jaxpr: Any, inputs: Sequence[bool]) -> list[bool]:
        """Whether each output is, given whether each input is."""
        known = dict(zip(jaxpr.invars, inputs, strict=True))
        known.update((v, True) for v in jaxpr.constvars)
        for eqn in jaxpr.eqns:
            self._equation(eqn, known)
        return [self._of(v, known) for v in jaxpr.outvars]

    def _of(self, var: Any, known: dict[Any, bool]) -> bool:
        return True if is_literal(var) else known.get(var, False)

    def _equation(self, eqn: Any, known: dict[Any, bool]) -> None:
        name = eqn.primitive.name
        same = [self._of(v, known) for v in eqn.invars]
        if name in _EQUALISING and eqn.params.get("axis_index_groups") is None:
            out = [True] * len(eqn.outvars)
        elif name in _SEPARATING:
            out = [False] * len(eqn.outvars)
        elif all(same) and not separates(eqn):
            out = [True] * len(eqn.outvars)
        else:
            out = self._nested(eqn, same)
        known.update(zip(eqn.outvars, out, strict=True))

    def _nested(self, eqn: Any, same: list[bool]) -> list[bool]:
        """Look into equations that hold programs; assume the worst of others."""
        name = eqn.primitive.name
        if name == "cond":
            return self._cond(eqn, same)
        if name == "scan":
            return self._scan(eqn, same)
        if name == "while":
            return self._while(eqn, same)
        inner = _jaxpr_of(eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr"))
        if name not in _CALLS or len(inner.invars) != len(same):
            return [False] * len(eqn.outvars)
        return self.outputs(inner, same)

    def _cond(self, eqn: Any, same: list[bool]) -> list[bool]:
        branches = [_jaxpr_of(b) for b in eqn.params["branches"]]
        if not same[0]:
            if any(map(communicates, branches)):
                raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
            return [False] * len(eqn.outvars)
        found = [self.outputs(b, same[1:]) for b in branches]
        return [all(column) for column in zip(*found, strict=True)]

    def _while(self, eqn: Any, same: list[bool]) -> list[bool]:
        test, body = (_jaxpr_of(eqn.params[k]) for k in ("cond_jaxpr", "body_jaxpr"))
        split = eqn.params["cond_nconsts"]
        start = split + eqn.params["body_nconsts"]
        carry = same[start:]
        while True:
            after = self.outputs(body, [*same[split:start], *carry])
            after = [a and b for a, b in zip(carry, after, strict=True)]
            if after == carry:
                break
            carry = after
        if self.outputs(test, [*same[:split], *carry]) == [True]:
            return carry
        if communicates(body) or communicates(test):
            raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
        return [False] * len(eqn.outvars)

    def _scan(self, eqn: Any, same: list[bool]) -> list[bool]:
        consts, carry = _scan_counts(eqn.params)
        inner = _jaxpr_of(eqn.params["jaxpr"])
        while True:
            out = self.outputs(inner, same)
            after = [
                a and b
                for a, b in zip(same[consts : consts + carry], out, strict=False)
            ]
            if after == same[consts : consts + carry]:
                return out
            same = [*same[:consts], *after, *same[consts + carry :]]


_EQUALISING = {"psum", "pmax", "pmin", "all_gather", "psum_invariant"}
_SEPARATING = {"axis_index", "ppermute", "all_to_all", "reduce_scatter",
               "pure_callback", "io_callback", *_EQUALISING}  # fmt: skip
_COLLECTIVES = {*_EQUALISING, "ppermute", "all_to_all", "reduce_scatter"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call",
          "custom_vjp_call", "remat", "checkpoint"}  # fmt: skip


def is_literal(atom: Any) -> bool:
    """Whether an operand of a program is a constant.

    Its class is in `jax.extend`, which takes long to load.
    """
    return hasattr(atom, "val")


def _scan_counts(params: Any) -> tuple[int, int]:
    """How many operands of a scan are constants of its body, how many are carried."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()  # Since JAX 0.12.
    return len(consts), len(carry)


def separates(eqn: Any) -> bool:
    """Whether an equation with equal operands may differ between replicas."""
    inner = [p for p in map(_jaxpr_of, _params(eqn)) if p]
    return eqn.primitive.name in _SEPARATING or any(
        separates(e) for p in inner for e in p.eqns
    )


def communicates(jaxpr: Any) -> bool:
    """Whether replicas meet somewhere in a program."""
    return any(
        e.primitive.name in _COLLECTIVES
        or any(communicates(p) for p in map(_jaxpr_of, _params(e)) if p)
        for e in jaxpr.eqns
    )


def _params(eqn: Any) -> list[Any]:
    return jax.tree.leaves(list(eqn.params.values()))


def _jaxpr_of(x: Any) -> Any:
    x = getattr(x, "jaxpr", x)
    return x if hasattr(x, "eqns") else None
