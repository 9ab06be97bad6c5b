"""Whole arrays that are not gathered yet: what a walk over a program has for weights.

A replica's program has the part of a weight, and gathers by a collective. A program
that XLA partitions has the whole array, whose parts lie on the devices, and gathers by
asking for another layout. See docs/decisions/0036 and 0038.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, final

import jax

from unisono._src.execution import equations
from unisono._src.machines import partition
from unisono._src.machines.topology import Topology

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn

# Primitives by name. The first keep all elements of one operand, in another shape or
# type; the second do so element by element, so that they can be done to a slice.
_CHEAP = {
    "broadcast_in_dim", "convert_element_type", "copy", "copy_p", "reshape", "squeeze",
    "stop_gradient", "transpose",
}  # fmt: skip
_ELEMENTWISE = {"convert_element_type", "copy", "copy_p", "stop_gradient"}


@final
@dataclasses.dataclass(frozen=True)
class SplitInput:
    """A variable whose parts are inputs of a program.

    Attributes:
        name: its name, for messages.
        split: how it is cut over the replicas.
        shape: its whole shape.
        topology: in a program that XLA partitions, the replicas; None in a replica's.
    """

    name: str
    split: partition.Split
    shape: tuple[int, ...]
    topology: Topology | None = None


@final
@dataclasses.dataclass(frozen=True)
class Late:
    """A whole array that is not gathered yet.

    Attributes:
        source: the variable.
        part: this replica's part of it, or of a slice of it; in a program that XLA
            partitions an array of the whole shape, whose parts lie on the devices.
        split: how the whole of `part` is cut.
        changes: cheap operations on the whole, each with the program that it is of.
    """

    source: SplitInput
    part: jax.Array
    split: partition.Split
    changes: tuple[tuple[Jaxpr, JaxprEqn], ...] = ()

    @property
    def key(self) -> tuple[int, ...]:
        """What is equal for equal wholes, as long as both are in use."""
        return id(self.part), *(id(eqn) for _, eqn in self.changes)

    def gather(self) -> jax.Array:
        """Return the whole array."""
        topology = self.source.topology
        if topology is None:
            whole = self.split.gather(self.part)
        else:
            target = topology.replicated_sharding
            whole = jax.lax.with_sharding_constraint(self.part, target)
        for jaxpr, eqn in self.changes:
            (whole,) = equations.compute(jaxpr, eqn, [whole])
        return whole

    def change(self, jaxpr: Jaxpr, eqn: JaxprEqn) -> Late | None:
        """Return the result of an equation, not gathered either; None if it must be."""
        name = eqn.primitive.name
        if not self.changes and name == "slice":
            return self._slice(eqn)
        before, after = (equations.aval_of(v) for v in (eqn.invars[0], eqn.outvars[0]))
        if name not in _CHEAP or before.size != after.size:
            return None
        if name == "squeeze" and not self.changes:
            return self._squeeze(eqn)
        # What is smaller is gathered faster, so a larger type comes afterwards.
        is_larger = after.dtype.itemsize > before.dtype.itemsize
        if name in _ELEMENTWISE and not self.changes and not is_larger:
            (part,) = equations.compute(jaxpr, eqn, [self.part])
            return dataclasses.replace(self, part=part)
        return dataclasses.replace(self, changes=(*self.changes, (jaxpr, eqn)))

    def _slice(self, eqn: JaxprEqn) -> Late | None:
        """Return a slice of the whole, if the cut axis is not sliced."""
        axis, whole = self.split.axis, equations.aval_of(eqn.invars[0]).shape
        start, limit = eqn.params["start_indices"], list(eqn.params["limit_indices"])
        strides = eqn.params["strides"] or (1,) * len(whole)
        if (start[axis], limit[axis], strides[axis]) != (0, whole[axis], 1):
            return None
        limit[axis] = self.part.shape[axis]
        part = jax.lax.slice(self.part, start, limit, strides)
        return dataclasses.replace(self, part=part)

    def _squeeze(self, eqn: JaxprEqn) -> Late:
        """Return the whole without axes of one element; the cut one is longer."""
        gone = eqn.params["dimensions"]
        axis = self.split.axis - sum(i < self.split.axis for i in gone)
        split = dataclasses.replace(self.split, axis=axis)
        return dataclasses.replace(
            self, part=jax.lax.squeeze(self.part, gone), split=split
        )

    def find_slices(self) -> partition.Split | None:
        """Return how slices along the first axis are cut; None if they are not."""
        is_plain = all(eqn.primitive.name in _ELEMENTWISE for _, eqn in self.changes)
        if self.split.axis == 0 or not is_plain:
            return None
        return dataclasses.replace(self.split, axis=self.split.axis - 1)
