"""Gradients of weights: when they are computed, and how they are summed.

They are products, convolutions, and sums of the rows that a lookup has read.

In a backward pass they come after the weight has been read for the last time.

Where XLA partitions a program, the examples of all replicas are summed in the gradient.
XLA gives each device its share of it, sums all of it on every device, and cuts the sum.
Here it is written as a share for each device, and a sum of which each keeps its part.
See docs/decisions/0038.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from unisono._src.execution import (
    equations,
    late_scatters,
    late_ties,
    partitioned_weights,
)
from unisono._src.machines import partition

if TYPE_CHECKING:
    from jax.extend.core import JaxprEqn, Var

    from unisono._src.execution.late_values import SplitInput

# Primitives by name that may stand between the gradient and the mark that cuts it.
_BETWEEN = {
    "add_any", "convert_element_type", "copy", "copy_p", "div", "mul", "neg", "rev",
    "stop_gradient", "transpose",
}  # fmt: skip
# Primitives by name that make gradients, and those that read a weight beside them.
_GRADIENTS = {"dot_general", "conv_general_dilated", "scatter-add"}
_READERS = {"dot_general", "conv_general_dilated"}
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
    if eqn.primitive.name not in _READERS:
        return False
    return any(v in gradient.invars for v in equations.variables_of(eqn.invars))


def is_gradient(uses: late_scatters.Uses, eqn: JaxprEqn) -> bool:
    """Whether an equation gives a gradient that is summed over replicas and cut."""
    return _find_last(uses, eqn) is not None


def _find_last(uses: late_scatters.Uses, eqn: JaxprEqn) -> list[JaxprEqn] | None:
    """Return who reads a result up to where it is cut; None if it is no gradient."""
    if eqn.primitive.name not in _GRADIENTS:
        return None
    if found := find_cut(uses, eqn.outvars[0]):
        return found
    readers = uses.follow_readers(eqn.outvars[0], _BETWEEN)
    is_summed = bool(readers) and readers[-1].primitive.name == "reduce_scatter"
    return readers if is_summed and eqn.primitive.name == "dot_general" else None


def find_cut(uses: late_scatters.Uses, var: Var) -> list[JaxprEqn]:
    """Return who reads a value up to the mark that cuts it; nobody if it is not cut."""
    readers = uses.follow_readers(var, _BETWEEN)
    is_cut = bool(readers) and readers[-1].primitive is partitioned_weights.cut_p
    return readers if is_cut else []


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
    """Return a gradient of which each device has computed a share, and keeps a part."""
    source: SplitInput = readers[-1].params["source"]
    assert source.topology is not None
    split, turned = source.split, _find_permutation(eqn, readers)
    axis = turned[split.axis]
    mesh = partition.find_mesh(source.topology, split)
    axes = _find_examples(uses, eqn)
    shape = equations.aval_of(eqn.outvars[0]).shape
    if axes is None or shape[axis] % split.parts:
        return None
    if any(given[i].shape[at] % mesh.size for i, at in axes.items()):
        return None
    every = tuple(mesh.axis_names)
    others = tuple(a for a in every if a not in split.over)
    rows = [] if hold is None or before is None else [late_ties.take_row(*before, mesh)]

    def sum_share(own: list[jax.Array], row: list[jax.Array]) -> jax.Array:
        if hold is not None and row:
            own = [hold(own[0], *row), *own[1:]]
        # What has no examples are the zeros that rows are added to.
        blank = [jnp.zeros(shape, given[0].dtype)] * (len(given) - len(own))
        (share,) = equations.compute(uses.jaxpr, eqn, [*blank, *own])
        # As the weight lies in memory, so that XLA need not turn the sum.
        share = jnp.transpose(share, turned)
        part: jax.Array = jax.lax.psum_scatter(
            share, split.over, scatter_dimension=split.axis, tiled=True
        )
        part = jax.lax.psum(part, others) if others else part
        return jnp.transpose(part, [turned.index(i) for i in range(len(turned))])

    specs = [PartitionSpec(*[None] * at, every) for at in axes.values()]
    mapped = jax.shard_map(
        sum_share,
        mesh=mesh,
        in_specs=(specs, [spec for _, spec in rows]),
        out_specs=PartitionSpec(*[None] * axis, split.over),
        check_vma=False,
    )
    return mapped([given[i] for i in axes], [row for row, _ in rows]), axis


def _find_examples(uses: late_scatters.Uses, eqn: JaxprEqn) -> dict[int, int] | None:
    """Return the axis of the examples of each operand; None if they cannot be shared.

    They are along the first axis of images, rows and cotangents. A sum over all of them
    is the sum of those over the shares of the devices.
    """
    numbers = eqn.params["dimension_numbers"]
    if eqn.primitive.name == "dot_general":
        (left, right), batched = numbers
        pairs = [(a, b) for a, b in zip(left, right, strict=True) if a == 0]
        return None if any(batched) or not pairs else {0: 0, 1: pairs[0][1]}
    if eqn.primitive.name == "conv_general_dilated":
        # What a convolution sums over, besides the window.
        axes = {0: numbers.lhs_spec[1], 1: numbers.rhs_spec[1]}
        counts = eqn.params["feature_group_count"], eqn.params["batch_group_count"]
        return axes if counts == (1, 1) and not any(axes.values()) else None
    # Fewer rows than the table has XLA sends to the devices that have their parts.
    table, rows = (equations.aval_of(eqn.invars[i]) for i in (0, 2))
    if rows.size < table.size:
        return None
    # The first axis of positions counts as that of rows does.
    is_first = 0 not in numbers.update_window_dims and not numbers.operand_batching_dims
    is_first = is_first and equations.aval_of(eqn.invars[1]).ndim > 1
    return {1: 0, 2: 0} if is_first and _is_zero(uses, eqn.invars[0]) else None


def _is_zero(uses: late_scatters.Uses, atom: equations.Atom) -> bool:
    """Whether an array is known to have zeros only."""
    made = uses.find_definition(atom)
    if made is None or made.primitive.name != "broadcast_in_dim":
        return False
    first = made.invars[0]
    return equations.is_literal(first) and not np.any(first.val)


def _find_permutation(eqn: JaxprEqn, readers: Sequence[JaxprEqn]) -> list[int]:
    """Return how the axes of a gradient are turned before it is cut."""
    found = list(range(len(equations.aval_of(eqn.outvars[0]).shape)))
    for reader in readers[:-1]:
        if reader.primitive.name == "transpose":
            found = [found[i] for i in reader.params["permutation"]]
    return found
