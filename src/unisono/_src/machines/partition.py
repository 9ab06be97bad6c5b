"""How a large variable is cut over devices, instead of being copied to all of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from unisono._src.machines.topology import AXIS, Topology

# Smaller variables are not worth a collective of their own.
ABOVE = 1 << 16


@final
@dataclasses.dataclass(frozen=True)
class Split:
    """One axis of an array, cut into equal parts.

    Attributes:
        axis: which one.
        parts: into how many.
        over: the axes of the mesh along which the parts lie.
    """

    axis: int
    parts: int
    over: tuple[str, ...]

    @property
    def spec(self) -> PartitionSpec:
        """The layout as JAX has it."""
        return PartitionSpec(*[None] * self.axis, self.over)

    @property
    def is_over_replicas(self) -> bool:
        """Whether each replica has one part, not the whole on its logical devices."""
        return AXIS in self.over

    # Inside an SPMD program; for parts over replicas.

    def gather(self, part: Any) -> jax.Array:
        """The whole, from each replica's part."""
        whole: jax.Array = jax.lax.all_gather(part, AXIS, axis=self.axis, tiled=True)
        return whole

    def scatter(self, whole: Any) -> jax.Array:
        """The own part of the sum over replicas."""
        part: jax.Array = jax.lax.psum_scatter(
            whole, AXIS, scatter_dimension=self.axis, tiled=True
        )
        return part

    def cut(self, whole: Any) -> jax.Array:
        """The own part of what all replicas have."""
        size = whole.shape[self.axis] // self.parts
        start = jax.lax.axis_index(AXIS) * size
        return jax.lax.dynamic_slice_in_dim(whole, start, size, self.axis)


def above(state: str, size: int | None) -> int | None:
    """From how many elements on variables are cut, as a strategy was told; None: never.

    Args:
        state: ``"mirrored"`` or ``"sharded"``.
        size: the number, if it was given.

    Raises:
        ValueError: neither of them, or a number that says nothing.

    >>> above("sharded", None), above("mirrored", None)
    (65536, None)
    """
    if state not in ("mirrored", "sharded"):
        raise ValueError(f'Expected state "mirrored" or "sharded", received {state!r}.')
    if size is None:
        return ABOVE if state == "sharded" else None
    if state == "mirrored":
        raise ValueError(
            f"shard_above={size} says which variables to split, but with "
            'state="mirrored" none is. Pass state="sharded" too, or neither.'
        )
    if size < 1:
        raise ValueError(f"Expected shard_above >= 1, received {size}.")
    return size


def choose(topology: Topology, above: int | None, shape: Any) -> Split | None:
    """How an array of a shape is cut; None if it is not.

    The first axis that can be cut is: its parts lie one after the other in memory.

    Args:
        topology: the devices. Logical devices share what their replica has; where
            there are none, replicas share.
        above: how many elements an array has that is cut; None cuts none.
        shape: of the array.

    >>> pair = Topology.of(["CPU:0", "CPU:1"])
    >>> choose(pair, 6, (3, 4))
    Split(axis=1, parts=2, over=('replica',))
    >>> choose(pair, 6, (3, 3)), choose(pair, 6, (2,))
    (None, None)
    """
    if above is None or math.prod(shape) < max(above, 1):
        return None
    over, parts = tuple(topology.logical_axes), topology.logical
    if parts == 1:
        over, parts = (AXIS,), topology.replicas
    fitting = (i for i, size in enumerate(shape) if parts > 1 and size % parts == 0)
    axis = next(fitting, None)
    return None if axis is None else Split(axis, parts, over)


def sharding(topology: Topology, split: Split) -> NamedSharding:
    """Where the parts of an array lie."""
    return NamedSharding(topology.mesh, split.spec)


def put(value: Any, target: NamedSharding) -> jax.Array:
    """An array of its own, part by part where it belongs."""
    if isinstance(value, jax.Array):
        own: jax.Array = jax.device_put(value, target, may_alias=False)
        return own
    host = np.asarray(value)
    return jax.make_array_from_callback(host.shape, target, lambda i: host[i])


def gathered(array: jax.Array, split: Split, devices: Any, target: Any) -> jax.Array:
    """A whole array on one device.

    Args:
        array: its parts on several.
        split: how it was cut.
        devices: which of them to ask; together they have all parts.
        target: where to put it.
    """
    parts = {
        s.index[split.axis].start or 0: s.data
        for s in array.addressable_shards
        if s.device in devices
    }
    placed = jax.device_put([parts[start] for start in sorted(parts)], target)
    return jnp.concatenate(placed, split.axis)
