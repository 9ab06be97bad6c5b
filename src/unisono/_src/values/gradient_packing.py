"""Reduces several arrays in one all-reduce, where each call has a high fixed cost.

Between processes on CPUs XLA turns an all-reduce of many arrays into as many calls of
Gloo, one after the other. One call for all of them takes less than half the time. On
accelerators the compiler and the network's library combine calls themselves. See
docs/decisions/0019.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.topology import Topology
from unisono._src.values import collectives

# The size of the largest pack. A larger array is reduced by a call of its own.
_PACK_BYTES = 8 << 20


def is_worthwhile(topology: Topology) -> bool:
    """Whether it is faster to reduce arrays together than one by one."""
    return topology.is_spread and topology.home.platform == "cpu"


def reduce_together(
    op: ReduceOp, arrays: Sequence[Any], replicas: int, bytes_per_pack: int = 0
) -> list[jax.Array]:
    """Reduces each array as `collectives.reduce_local` does, with fewer collectives.

    Args:
        op: how the values of the replicas are combined.
        arrays: the replica's own values.
        replicas: how many replicas there are.
        bytes_per_pack: the size of the largest pack; 0 for the default of 8 MiB.

    Returns:
        One total per array, in the order of `arrays`.
    """
    made = [jnp.asarray(x) for x in arrays]
    totals: list[Any] = [None] * len(made)
    for pack in _packs(made, bytes_per_pack or _PACK_BYTES):
        parts = [made[i] for i in pack]
        if len(parts) == 1:
            reduced = [collectives.reduce_local(op, parts[0], replicas)]
        else:
            flat = collectives.reduce_local(op, _pack(parts), replicas)
            reduced = _unpack(flat, parts)
        for i, total in zip(pack, reduced, strict=True):
            totals[i] = total
    return totals


def _packs(arrays: Sequence[jax.Array], most: int) -> list[list[int]]:
    """Returns the positions of arrays that share a pack: of one type, up to a size.

    >>> _packs([jnp.zeros(4), jnp.zeros(2, int), jnp.zeros(8), jnp.zeros(1)], 32)
    [[0], [1], [2], [3]]
    >>> _packs([jnp.zeros(4), jnp.zeros(2, int), jnp.zeros(8), jnp.zeros(1)], 64)
    [[0, 2, 3], [1]]
    """
    done: list[list[int]] = []
    # One open pack for each type: a buffer has one type.
    open_packs: dict[np.dtype, tuple[list[int], int]] = {}
    for i, x in enumerate(arrays):
        pack, size = open_packs.get(x.dtype, ([], 0))
        if not pack or size + x.nbytes > most:
            pack, size = [], 0
            done.append(pack)
        pack.append(i)
        open_packs[x.dtype] = pack, size + x.nbytes
    return done


def _pack(parts: Sequence[jax.Array]) -> jax.Array:
    # Written piece by piece: XLA computes a concatenation on several threads element
    # by element, which takes longer than the collective.
    flat = jnp.zeros(sum(p.size for p in parts), parts[0].dtype)
    at = 0
    for part in parts:
        flat = jax.lax.dynamic_update_slice(flat, part.ravel(), (at,))
        at += part.size
    return flat


def _unpack(flat: jax.Array, parts: Sequence[jax.Array]) -> list[jax.Array]:
    ends = np.cumsum([p.size for p in parts])
    return [
        flat[end - p.size : end].reshape(p.shape)
        for p, end in zip(parts, ends, strict=True)
    ]
