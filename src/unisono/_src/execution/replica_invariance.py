"""Finds out which values of a replica program are equal on all replicas.

Copies of a mirrored variable must stay equal (decision 0006). The equations of a
program tell whether a new value is: the result of an all-reduce is equal everywhere, a
value that depends on the replica's number or data is not, and any other value is equal
if its operands are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from unisono._src.execution import equations, value_sources
from unisono._src.foundation import errors

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn


def find_equal(
    jaxpr: Jaxpr, inputs: Sequence[bool], parts: Sequence[int] = ()
) -> list[bool]:
    """Return for each output of a program whether it is equal on all replicas.

    Args:
        jaxpr: the program.
        inputs: for each input, whether it is equal on all replicas.
        parts: for each input, the number of parts if replicas that have the same part
            have equal values; else 0. The default is 0 for all.

    Raises:
        RuntimeError: replicas may meet different numbers of times.
    """
    counts = parts or [0] * len(inputs)
    differences = _Differences({*counts} - {0})
    given = zip(inputs, counts, strict=True)
    sources = [0 if same else differences.source_of(count) for same, count in given]
    found = differences.outputs(jaxpr, sources)
    if differences.decisive:
        # Replicas may take different branches, or different numbers of turns.
        raise RuntimeError(errors.MERGE_COUNT_MISMATCH)
    return [not differs for differs in found]


@final
class _Differences(value_sources.SourceWalk):
    """Follows which values may differ between replicas: their source is 1.

    Another source stands for values that depend only on the part of a variable that the
    replica has, where several groups of replicas have all parts.

    Args:
        counts: the numbers of parts, which are the sizes of the groups.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        super().__init__()
        self._sources = {n: 2 << i for i, n in enumerate(sorted(counts))}

    def source_of(self, count: int) -> int:
        """Return the source of a value that differs between so many parts; 0 is any."""
        return self._sources.get(count, 1)

    def _follow_other(self, eqn: JaxprEqn, given: list[int]) -> list[int]:
        # What has no rule counts as different: a false alarm is possible, a silent
        # divergence is not.
        found = value_sources.union(given)
        groups = eqn.params.get("axis_index_groups")
        if groups and eqn.primitive.name in value_sources.EQUALISING:
            found = self._follow_groups([list(g) for g in groups], found)
        elif may_separate(eqn):
            found |= 1
        return [found] * len(eqn.outvars)

    def _follow_groups(self, groups: list[list[int]], given: int) -> int:
        """Return the source of what a collective within groups makes of a value."""
        for count, source in self._sources.items():
            total = sum(map(len, groups))
            if groups == [list(range(i, total, count)) for i in range(count)]:
                # Those that have the same part get the same.
                return source
            starts = range(0, total, count)
            if groups == [list(range(i, i + count)) for i in starts]:
                # All parts together are the same in all groups.
                return 0 if given in (0, source) else 1
        return 1


# The equalising primitives are among them for the case of groups.
_SEPARATING = {*value_sources.SEPARATING, *value_sources.EQUALISING}


def may_separate(eqn: JaxprEqn) -> bool:
    """Whether an equation may give replicas different results from equal operands."""
    return eqn.primitive.name in _SEPARATING or any(
        may_separate(e) for p in equations.inner(eqn) for e in p.eqns
    )
