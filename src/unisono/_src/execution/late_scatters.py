"""Finds sums of gradients that can be cut in the loop that computes the gradients.

A backward loop over layers stacks their gradients. If nothing but a `reduce_scatter`
reads the stack, each turn can scatter its own slice, so that no replica ever has the
whole stack (decision 0036).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, final

import jax

from unisono._src.execution import equations

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

# Primitives by name that may stand between the loop and the sum.
_BETWEEN = {"convert_element_type", "copy", "copy_p", "stop_gradient"}


@final
@dataclasses.dataclass(eq=False)
class Scatter:
    """The sum of a stack over the replicas, of which each keeps its part.

    Attributes:
        jaxpr: the program that has it.
        before: operations on single elements that come first.
        eqn: the equation that sums and cuts.
        is_done: whether a loop has done all this already, slice by slice.
    """

    jaxpr: Jaxpr
    before: Sequence[JaxprEqn]
    eqn: JaxprEqn
    is_done: bool = False

    def scatter_slice(self, x: jax.Array) -> jax.Array:
        """Return this replica's part of the sum of a slice along the first axis."""
        for eqn in self.before:
            (x,) = equations.compute(self.jaxpr, eqn, [x])
        params = self.eqn.params
        part: jax.Array = jax.lax.psum_scatter(
            x,
            params["axis_name"],
            scatter_dimension=params["scatter_dimension"] - 1,
            axis_index_groups=params["axis_index_groups"],
            tiled=True,
        )
        return part


@final
class Uses:
    """Tells who reads the values of a program.

    Args:
        jaxpr: the program.
        wanted: for each result, the sum that reads it, if nothing else does.
        after: for each result, who reads it in the program around this one; see
            `follow_readers`.
    """

    def __init__(
        self,
        jaxpr: Jaxpr,
        wanted: Sequence[Scatter | None] = (),
        after: Sequence[list[JaxprEqn]] = (),
    ) -> None:
        self.jaxpr = jaxpr
        self._readers: dict[Var, list[JaxprEqn]] = {}
        self._made: dict[Var, JaxprEqn] = {}
        for eqn in jaxpr.eqns:
            self._made.update(dict.fromkeys(eqn.outvars, eqn))
            for v in equations.variables_of(eqn.invars):
                self._readers.setdefault(v, []).append(eqn)
        self._results: dict[Var, list[Scatter | None]] = {}
        asked = wanted or [None] * len(jaxpr.outvars)
        for atom, scatter in zip(jaxpr.outvars, asked, strict=True):
            if not equations.is_literal(atom):
                self._results.setdefault(atom, []).append(scatter)
        self._found: dict[Var, Scatter] = {}
        pairs = zip(jaxpr.outvars, after, strict=False)
        self._after = {v: e for v, e in pairs if not equations.is_literal(v)}

    def find_definition(self, atom: equations.Atom) -> JaxprEqn | None:
        """Return the equation that makes a value, if this program has it."""
        return None if equations.is_literal(atom) else self._made.get(atom)

    def follow_readers(self, var: Var, between: Collection[str]) -> list[JaxprEqn]:
        """Return the only reader of a value, the only one of its result, and so on.

        Args:
            var: the value.
            between: the primitives after which to go on, by name.
        """
        found: list[JaxprEqn] = []
        while len(self._readers.get(var, ())) == 1 and var not in self._results:
            (eqn,) = self._readers[var]
            found.append(eqn)
            if eqn.primitive.name not in between:
                break
            var = eqn.outvars[0]
        if var not in self._readers and len(self._results.get(var, ())) == 1:
            found += self._after.get(var, [])
        return found

    def is_done(self, eqn: JaxprEqn) -> bool:
        """Whether an equation belongs to a sum that a loop has done already."""
        found = self._found.get(eqn.outvars[0]) if eqn.outvars else None
        return found is not None and found.is_done

    def scatter_of(self, var: Var) -> Scatter | None:
        """Return the sum by parts that is the only reader of a value, if any."""
        before: list[JaxprEqn] = []
        while True:
            readers, results = self._readers.get(var, []), self._results.get(var, [])
            if len(readers) + len(results) != 1:
                return None
            if results:
                return None if before else results[0]
            (eqn,) = readers
            if _is_sum_of_slices(eqn):
                found = Scatter(self.jaxpr, before, eqn)
                every = [e.outvars[0] for e in (*before, eqn)]
                self._found.update(dict.fromkeys(every, found))
                return found
            if eqn.primitive.name not in _BETWEEN:
                return None
            before.append(eqn)
            var = eqn.outvars[0]


def _is_sum_of_slices(eqn: JaxprEqn) -> bool:
    """Whether an equation sums over replicas, and cuts another axis than the first."""
    params = eqn.params
    return (
        eqn.primitive.name == "reduce_scatter"
        and bool(params["tiled"])
        and params["scatter_dimension"] > 0
    )
