"""The parts of a program's values that belong to each of several workers.

All workers trace the same program. What differs between them must come in as an input:
XLA takes everything else for equal on all devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import collectives

_T = TypeVar("_T")


def own_rows(stacked: _T, topology: Topology) -> tuple[_T, ...]:
    """Returns the rows of this worker's replicas.

    Args:
        stacked: traced arrays with a row for every replica.
        topology: the replicas.
    """

    def body(x: _T) -> tuple[_T, ...]:
        return own_values(jax.tree.map(lambda a: a[0], x), topology)

    spec = PartitionSpec(AXIS)
    rows: tuple[_T, ...]
    rows = collectives.apply_on_replicas(stacked, body, topology, spec)
    return rows


def own_values(local: _T, topology: Topology) -> tuple[_T, ...]:
    """Returns the values of this worker's replicas, in an SPMD program.

    Args:
        local: the value of the replica that calls it.
        topology: the replicas.
    """
    firsts, most = _first_replicas(topology), _most_rows(topology)
    # One replica on each worker: its own value is all there is.
    if most == 1:
        return (local,)
    start = jnp.asarray(firsts)[jax.lax.axis_index(AXIS)]

    def pick(x: jax.Array, k: int) -> jax.Array:
        every = jax.lax.all_gather(x, AXIS)
        # Beyond the rows of a worker that has fewer replicas than others, any row.
        row = jnp.minimum(start + k, topology.replicas - 1)
        found: jax.Array = jax.lax.dynamic_index_in_dim(every, row, keepdims=False)
        return found

    # As many on each worker, so that all of them make the same program.
    rows = [
        jax.tree.map(lambda x, k=k: _apply_by_bits(pick, x, k), local)
        for k in range(most)
    ]
    return tuple(rows[: topology.copies])


def _apply_by_bits(
    fn: Callable[[jax.Array, int], jax.Array], x: jax.Array, k: int
) -> jax.Array:
    """Returns `fn(x, k)`, applied to the data of random keys where `x` has them."""
    if not collectives.is_key(x):
        return fn(x, k)
    bits = fn(jax.random.key_data(x), k)
    keys: jax.Array = jax.random.wrap_key_data(bits, impl=jax.random.key_impl(x))
    return keys


def _first_replicas(topology: Topology) -> list[int]:
    """Returns for each replica the first one of its worker."""
    owners = [device.process_index for device in topology.devices]
    return [owners.index(owner) for owner in owners]


def _most_rows(topology: Topology) -> int:
    """Returns the largest number of replicas that a worker has."""
    return max(i - first for i, first in enumerate(_first_replicas(topology))) + 1
