"""Cuts a large variable into parts over devices, instead of copying it to all.

See docs/decisions/0017.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from unisono._src.machines.topology import AXIS, Topology

# The axis of groups of replicas, in the mesh of an array that has copies.
_GROUP = "group"


@final
@dataclasses.dataclass(frozen=True)
class Split:
    """Says how an array is cut into equal parts along one of its axes.

    Attributes:
        axis: the axis of the array that is cut.
        parts: the number of parts.
        over: the axes of the mesh along which the parts lie.
        copies: how many groups of replicas have all parts. The parts of a group are on
            replicas that follow each other.
    """

    axis: int
    parts: int
    over: tuple[str, ...]
    copies: int = 1

    @property
    def spec(self) -> PartitionSpec:
        """The layout as JAX writes it, on the mesh of `find_mesh`."""
        return PartitionSpec(*[None] * self.axis, self.over)

    @property
    def groups(self) -> list[list[int]] | None:
        """The replicas that have all parts together; None for all of them."""
        if self.copies == 1:
            return None
        starts = range(0, self.parts * self.copies, self.parts)
        return [list(range(i, i + self.parts)) for i in starts]

    @property
    def holders(self) -> list[list[int]]:
        """The replicas that have the same part, for each part."""
        count = self.parts * self.copies
        return [list(range(i, count, self.parts)) for i in range(self.parts)]

    @property
    def is_over_replicas(self) -> bool:
        """Whether each replica has one part, not all parts on its logical devices."""
        return AXIS in self.over

    # A program of all replicas has an array that JAX sees as parts with copies. Inside
    # `shard_map` over replicas each has a row of its own, which is its part.

    def spread_copies(self, whole: jax.Array, topology: Topology) -> jax.Array:
        """Returns an array with a row for each replica, which is its part."""
        rows = PartitionSpec((_GROUP, *self.over))
        return self._map_parts(whole, topology, lambda x: x[None], self.spec, rows)

    def join_copies(self, rows: jax.Array, topology: Topology) -> jax.Array:
        """Returns the array that has these parts, which are alike in all groups."""
        given = PartitionSpec((_GROUP, *self.over))
        return self._map_parts(rows, topology, lambda x: x[0], given, self.spec)

    def _map_parts(
        self,
        x: jax.Array,
        topology: Topology,
        fn: Callable[[jax.Array], jax.Array],
        before: PartitionSpec,
        after: PartitionSpec,
    ) -> jax.Array:
        """Returns `fn` of what each device has. Nothing is sent."""
        mapped = jax.shard_map(
            fn,
            mesh=find_mesh(topology, self),
            in_specs=before,
            out_specs=after,
            check_vma=False,
        )
        return mapped(x)

    # The next three run inside an SPMD program, for parts that lie over replicas.

    def gather(self, part: jax.Array) -> jax.Array:
        """Returns the whole array, given each replica's part."""
        whole: jax.Array = jax.lax.all_gather(
            part, AXIS, axis=self.axis, axis_index_groups=self.groups, tiled=True
        )
        return whole

    def scatter(self, whole: jax.Array) -> jax.Array:
        """Returns this replica's part of the sum over replicas."""
        part: jax.Array = jax.lax.psum_scatter(
            whole,
            AXIS,
            scatter_dimension=self.axis,
            axis_index_groups=self.groups,
            tiled=True,
        )
        if self.copies > 1:
            part = jax.lax.psum(part, AXIS, axis_index_groups=self.holders)
        return part

    def cut(self, whole: jax.Array) -> jax.Array:
        """Returns this replica's part of an array that all replicas have."""
        size = whole.shape[self.axis] // self.parts
        number = jax.lax.axis_index(AXIS)
        if self.copies > 1:
            number = jax.lax.rem(number, self.parts)
        start = number * size
        # In this plain form `late_gathers` knows it, and takes the part that is there.
        return jax.lax.dynamic_slice_in_dim(
            whole, start, size, self.axis, allow_negative_indices=False
        )


def find_mesh(topology: Topology, split: Split) -> Mesh:
    """Returns the mesh of an array: with copies, that of groups and their replicas."""
    if split.copies == 1:
        return topology.mesh
    devices = topology.mesh.devices.reshape(split.copies, split.parts)
    return Mesh(devices, (_GROUP, *split.over))


def sharding(topology: Topology, split: Split) -> NamedSharding:
    """Returns the sharding of an array that is cut in this way."""
    return NamedSharding(find_mesh(topology, split), split.spec)


def put(value: np.ndarray | jax.Array, target: NamedSharding) -> jax.Array:
    """Returns a copy of the value with each part on its device."""
    if isinstance(value, jax.Array):
        # A step may donate the result, which must not destroy the caller's array.
        own: jax.Array = jax.device_put(value, target, may_alias=False)
        return own
    host = np.asarray(value)
    # JAX may keep memory of NumPy's, which its owner may change.
    return jax.make_array_from_callback(host.shape, target, lambda i: host[i].copy())


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
    # Now, also in a loop or branch that JAX traces: the parts are no values of it.
    with jax.ensure_compile_time_eval():
        placed = jax.device_put([parts[start] for start in sorted(parts)], target)
        return jnp.concatenate(placed, split.axis)
