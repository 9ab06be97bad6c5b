"""Cuts a large variable into parts over devices, instead of copying it to all.

See docs/decisions/0017.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from unisono._src.machines.topology import AXIS, Topology


@final
@dataclasses.dataclass(frozen=True)
class Split:
    """Says how an array is cut into equal parts along one of its axes.

    Attributes:
        axis: the axis of the array that is cut.
        parts: the number of parts.
        over: the axes of the mesh along which the parts lie.
    """

    axis: int
    parts: int
    over: tuple[str, ...]

    @property
    def spec(self) -> PartitionSpec:
        """The layout as JAX writes it."""
        return PartitionSpec(*[None] * self.axis, self.over)

    @property
    def is_over_replicas(self) -> bool:
        """Whether each replica has one part, not all parts on its logical devices."""
        return AXIS in self.over

    # The next three run inside an SPMD program, for parts that lie over replicas.

    def gather(self, part: jax.Array) -> jax.Array:
        """Returns the whole array, given each replica's part."""
        whole: jax.Array = jax.lax.all_gather(part, AXIS, axis=self.axis, tiled=True)
        return whole

    def scatter(self, whole: jax.Array) -> jax.Array:
        """Returns this replica's part of the sum over replicas."""
        part: jax.Array = jax.lax.psum_scatter(
            whole, AXIS, scatter_dimension=self.axis, tiled=True
        )
        return part

    def cut(self, whole: jax.Array) -> jax.Array:
        """Returns this replica's part of an array that all replicas have."""
        size = whole.shape[self.axis] // self.parts
        start = jax.lax.axis_index(AXIS) * size
        # In this plain form `late_gathers` knows it, and takes the part that is there.
        return jax.lax.dynamic_slice_in_dim(
            whole, start, size, self.axis, allow_negative_indices=False
        )


def sharding(topology: Topology, split: Split) -> NamedSharding:
    """Returns the sharding of an array that is cut in this way."""
    return NamedSharding(topology.mesh, split.spec)


def put(value: np.ndarray | jax.Array, target: NamedSharding) -> jax.Array:
    """Returns a copy of the value with each part on its device."""
    if isinstance(value, jax.Array):
        # A step may donate the result, which must not destroy the caller's array.
        own: jax.Array = jax.device_put(value, target, may_alias=False)
        return own
    host = np.asarray(value)
    return jax.make_array_from_callback(host.shape, target, lambda i: host[i])


def gather_parts(
    array: jax.Array, split: Split, devices: Sequence[jax.Device], target: jax.Device
) -> jax.Array:
    """Returns the whole of a split array on one device.

    Args:
        array: the array, with its parts on several devices.
        split: how it was cut.
        devices: the devices to read from; together they have all parts.
        target: the device to put the whole array on.
    """
    # By where a part begins: JAX lists shards in the order of devices.
    parts = {
        s.index[split.axis].start or 0: s.data
        for s in array.addressable_shards
        if s.device in devices
    }
    placed = jax.device_put([parts[start] for start in sorted(parts)], target)
    return jnp.concatenate(placed, split.axis)
