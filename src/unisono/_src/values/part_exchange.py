"""Puts together an array that is cut over the devices of several workers.

A worker has some parts of such an array. The whole is a matter of all workers: each
gives its parts and gets those of the others. Where every worker has all parts, nobody
is asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.machines import partition
from unisono._src.machines.partition import Split
from unisono._src.machines.topology import Topology
from unisono._src.workers import eager_exchange


@functools.cache
def find_holders(topology: Topology, split: Split) -> tuple[tuple[int, ...], ...]:
    """Returns for each worker the parts that it has, in order.

    Args:
        topology: the replicas.
        split: a cut over them, or over the logical devices of each.
    """
    every = tuple(range(split.parts))
    if not split.is_over_replicas:
        return (every,) * topology.workers
    found: dict[int, set[int]] = {}
    for replica, device in enumerate(topology.devices):
        found.setdefault(device.process_index, set()).add(replica % split.parts)
    return tuple(tuple(sorted(parts)) for parts in found.values())


def is_apart(topology: Topology | None, split: Split | None) -> bool:
    """Whether the parts of an array are on several workers, of which one lacks some."""
    if split is None or topology is None or not topology.is_spread:
        return False
    return any(len(own) < split.parts for own in find_holders(topology, split))


def own_parts(array: jax.Array, split: Split) -> dict[int, jax.Array]:
    """Returns the parts that this process has, by their number."""
    size = array.shape[split.axis] // split.parts
    # By where a part begins: JAX lists shards in the order of devices.
    return {
        (s.index[split.axis].start or 0) // size: s.data
        for s in array.addressable_shards
    }


def gather(
    array: jax.Array, split: Split, topology: Topology, name: str
) -> Sequence[jax.Array | np.ndarray]:
    """Returns all parts of an array, in order; a meeting of all workers.

    Args:
        array: the array; some worker lacks parts of it.
        split: how it was cut.
        topology: the replicas of all workers.
        name: the variable that has the array.

    Raises:
        WorkerError: a worker does something else, or is gone.
    """
    holders = find_holders(topology, split)
    own = own_parts(array, split)
    count = max(map(len, holders))
    mine = [own[i] for i in holders[topology.worker]]
    # Workers with fewer parts send one twice: all send as many.
    rows = jax.device_put([*mine, *mine[:1] * (count - len(mine))], topology.home)
    point = f"reading of the whole variable '{name}', which needs all workers,"
    found = eager_exchange.gather_rows(topology, point, jnp.stack(rows))
    every = {
        part: found[worker, place]
        for worker, parts in reversed([*enumerate(holders)])
        for place, part in enumerate(parts)
    }
    return [every[i] for i in range(split.parts)]


def put_first(
    value: jax.Array | np.ndarray,
    split: Split,
    topology: Topology,
    name: str,
) -> jax.Array:
    """Returns a first value, cut over the devices of all workers.

    Workers may have computed different ones; all of them take that of worker 0. Only
    then is it sent, part after part, so that no other worker has it whole.

    Args:
        value: the value of this worker, whole.
        split: how to cut it.
        topology: the replicas of all workers.
        name: the name of its variable.
    """
    point = (
        f"creation of variable '{name}' of shape {value.shape} and type {value.dtype}"
    )
    target = partition.sharding(topology, split)
    if eager_exchange.is_same(topology, point, value):
        return cut(value, target)
    size = value.shape[split.axis] // split.parts
    wanted = set(find_holders(topology, split)[topology.worker])
    kept: dict[int, np.ndarray] = {}
    for i in range(split.parts):
        where = [slice(None)] * split.axis + [slice(i * size, (i + 1) * size)]
        part = np.ascontiguousarray(np.asarray(value[tuple(where)]))
        sent = eager_exchange.broadcast_first(
            topology, f"part {i} at the {point}", part
        )
        if i in wanted:
            kept[i] = np.asarray(sent)
    return assemble(value.shape, target, split, lambda i: kept[i])


def cut(value: jax.Array | np.ndarray, target: jax.sharding.Sharding) -> jax.Array:
    """Returns the parts of a whole value that this process's devices have.

    Args:
        value: the value, which must be the same in all processes.
        target: where the parts go.
    """
    held = target.addressable_devices_indices_map(value.shape)
    # Copies: JAX may keep memory of NumPy's, which its owner may change.
    own = [value[i] if isinstance(value, jax.Array) else np.array(value[i])
           for i in held.values()]  # fmt: skip
    pieces = jax.device_put(own, list(held))
    return jax.make_array_from_single_device_arrays(value.shape, target, pieces)


def assemble(
    shape: tuple[int, ...],
    target: jax.sharding.Sharding,
    split: Split,
    find: Callable[[int], jax.Array | np.ndarray],
) -> jax.Array:
    """Returns an array whose parts on this process's devices are known by number.

    Args:
        shape: the shape of the array.
        target: where the parts go.
        split: how it is cut.
        find: returns a part; asked once for each device.
    """
    size = shape[split.axis] // split.parts
    held: Mapping[jax.Device, tuple[slice, ...]]
    held = target.addressable_devices_indices_map(shape)  # type: ignore[assignment]
    numbers = [(i[split.axis].start or 0) // size for i in held.values()]
    pieces = jax.device_put([find(i) for i in numbers], list(held))
    return jax.make_array_from_single_device_arrays(shape, target, pieces)
