"""Finds out which values of a replica program are equal on all replicas.

Copies of a mirrored variable must stay equal (decision 0006). The equations of a
program tell whether a new value is: the result of an all-reduce is equal everywhere, a
value that depends on the replica's number or data is not, and any other value is equal
if its operands are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from unisono._src.execution import equations, value_sources
from unisono._src.foundation import errors

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn


def find_equal(jaxpr: Jaxpr, inputs: Sequence[bool]) -> list[bool]:
    """Return for each output of a program whether it is equal on all replicas.

    Args:
        jaxpr: the program.
        inputs: for each input, whether it is equal on all replicas.

    Raises:
        RuntimeError: replicas may meet different numbers of times.
    """
    differences = _Differences()
    found = differences.outputs(jaxpr, [int(not is_equal) for is_equal in inputs])
    if differences.decisive:
        # Replicas may take different branches, or different numbers of turns.
        raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
    return [not differs for differs in found]


@final
class _Differences(value_sources.SourceWalk):
    """Follows which values may differ between replicas: their source is 1."""

    def _follow_other(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        # What has no rule counts as different: a false alarm is possible, a silent
        # divergence is not.
        return [int(any(given) or may_separate(eqn))] * len(eqn.outvars)


# The equalising primitives are among them for the case of groups.
_SEPARATING = {*value_sources.SEPARATING, *value_sources.EQUALISING}


def may_separate(eqn: JaxprEqn) -> bool:
    """Whether an equation may give replicas different results from equal operands."""
    return eqn.primitive.name in _SEPARATING or any(
        may_separate(e) for p in equations.inner(eqn) for e in p.eqns
    )
