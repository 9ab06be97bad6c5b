"""Products that are gradients of weights: when they are computed, and how summed.

In a backward pass they come after the weight has been read for the last time.

Where XLA partitions a program, the examples of all replicas are summed in the product.
XLA gives each device its share of the product, sums all of it on every device, and cuts
the sum. Here such a product is written as a share for each device, and a sum of which
each keeps its part. See docs/decisions/0038.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from unisono._src.execution import (
    equations,
    late_scatters,
    late_ties,
    partitioned_weights,
)
from unisono._src.machines import partition

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn

    from unisono._src.execution.late_values import SplitInput

# Primitives by name that may stand between the product and the mark that cuts it.
_BETWEEN = {
    "add_any", "convert_element_type", "copy", "copy_p", "div", "mul", "neg",
    "stop_gradient",
    "transpose",
}  # fmt: skip
# An array, and its axis that lies on devices where XLA decides that.
Placed: TypeAlias = tuple[jax.Array, int]

# How many equations there may be between a gradient and the reader of its weight.
_NEAR = 8


def order(uses: late_scatters.Uses) -> list[JaxprEqn]:
    """Return the equations of a program, with gradients of weights later.

    A backward pass reads a weight, to go on to the layer before, and computes its
    gradient. It has the gradient first. The other way round the weight is forgotten
    by then, and has been read for the last time when it is updated, so that XLA need
    not copy its part.
    """
    eqns = list(uses.jaxpr.eqns)
    done: list[JaxprEqn] = []
    waiting: list[JaxprEqn] = []
    for i, eqn in enumerate(eqns):
        made = {v for e in waiting for v in e.outvars}
        reads = any(v in made for v in equations.variables_of(eqn.invars))
        if reads or (not waiting and _finds_reader(uses, eqns, i)):
            waiting.append(eqn)
            continue
        done.append(eqn)
        if waiting and _is_sibling(waiting[0], eqn):
            done += waiting
            waiting = []
    return done + waiting


def _finds_reader(
    uses: late_scatters.Uses, eqns: Sequence[JaxprEqn], place: int
) -> bool:
    """Whether a gradient is computed just before the reader of its weight."""
    eqn = eqns[place]
    if not is_gradient(uses, eqn):
        return False
    return any(_is_sibling(eqn, e) for e in eqns[place + 1 : place + 1 + _NEAR])


def _is_sibling(gradient: JaxprEqn, eqn: JaxprEqn) -> bool:
    """Whether an equation computes the other product of the same cotangent."""
    if eqn.primitive.name != "dot_general":
        return False
    return any(v in gradient.invars for v in equations.variables_of(eqn.invars))


def is_gradient(uses: late_scatters.Uses, eqn: JaxprEqn) -> bool:
    """Whether an equation is a product that is summed over replicas and cut."""
    return _find_last(uses, eqn) is not None


def _find_last(uses: late_scatters.Uses, eqn: JaxprEqn) -> list[JaxprEqn] | None:
    """Return who reads a product up to where it is cut; None if it is no gradient."""
    if eqn.primitive.name != "dot_general":
        return None
    readers = uses.follow_readers(eqn.outvars[0], _BETWEEN)
    if not readers:
        return None
    last = readers[-1].primitive
    is_cut = last is partitioned_weights.cut_p or last.name == "reduce_scatter"
    return readers if is_cut else None


def compute(
    uses: late_scatters.Uses,
    eqn: JaxprEqn,
    given: Sequence[jax.Array],
    hold: late_ties.Hold | None,
    before: Placed | None,
) -> Placed | None:
    """Return the gradient of a weight; None if an equation does not compute one.

    In a program that XLA partitions it is in parts already, if the rows of its operands
    can be shared among the devices. With it comes the axis that lies on devices.

    Args:
        uses: who reads the values of the program.
        eqn: an equation of it.
        given: the operands.
        hold: how arrays are tied; None for not at all.
        before: an array that comes before, and the axis that lies on devices, if any.
    """
    readers = _find_last(uses, eqn)
    if readers is None:
        return None
    if readers[-1].primitive is partitioned_weights.cut_p:
        return _sum_by_parts(uses, eqn, readers, given, hold, before)
    x, y = given
    if hold is not None and before is not None:
        x = hold(x, before[0])
    (found,) = equations.compute(uses.jaxpr, eqn, [x, y])
    return found, 0


def _sum_by_parts(
    uses: late_scatters.Uses,
    eqn: JaxprEqn,
    readers: Sequence[JaxprEqn],
    given: Sequence[jax.Array],
    hold: late_ties.Hold | None,
    before: Placed | None,
) -> Placed | None:
    """Return a product of which each device has computed a share, and keeps a part."""
    source: SplitInput = readers[-1].params["source"]
    assert source.topology is not None
    split, turned = source.split, _find_permutation(eqn, readers)
    axis = turned[split.axis]
    mesh = partition.find_mesh(source.topology, split)
    (left, right), batched = eqn.params["dimension_numbers"]
    # Examples are along the first axis.
    places = [i for i, d in enumerate(left) if d == 0]
    is_even = bool(places) and given[0].shape[0] % mesh.size == 0
    shape = equations.aval_of(eqn.outvars[0]).shape
    if not is_even or any(batched) or shape[axis] % split.parts:
        return None
    every = tuple(mesh.axis_names)
    others = tuple(a for a in every if a not in split.over)
    rows = [] if hold is None or before is None else [late_ties.take_row(*before, mesh)]

    def sum_share(x: jax.Array, y: jax.Array, *row: jax.Array) -> jax.Array:
        if hold is not None and row:
            x = hold(x, *row)
        (share,) = equations.compute(uses.jaxpr, eqn, [x, y])
        # As the weight lies in memory, so that XLA need not turn the sum.
        share = jnp.transpose(share, turned)
        part: jax.Array = jax.lax.psum_scatter(
            share, split.over, scatter_dimension=split.axis, tiled=True
        )
        part = jax.lax.psum(part, others) if others else part
        return jnp.transpose(part, [turned.index(i) for i in range(len(turned))])

    specs = [PartitionSpec(every), PartitionSpec(*[None] * right[places[0]], every)]
    mapped = jax.shard_map(
        sum_share,
        mesh=mesh,
        in_specs=(*specs, *(spec for _, spec in rows)),
        out_specs=PartitionSpec(*[None] * axis, split.over),
        check_vma=False,
    )
    return mapped(*given, *(row for row, _ in rows)), axis


def _find_permutation(eqn: JaxprEqn, readers: Sequence[JaxprEqn]) -> list[int]:
    """Return how the axes of a product are turned before it is cut."""
    found = list(range(len(equations.aval_of(eqn.outvars[0]).shape)))
    for reader in readers[:-1]:
        if reader.primitive.name == "transpose":
            found = [found[i] for i in reader.params["permutation"]]
    return found
