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
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import collectives

# The size of the largest pack. A larger array is reduced by a call of its own.
_PACK_BYTES = 8 << 20
# The types in which the sum of marks is exact (`execution/step_marks`). Narrower floats
# round it.
CARRIERS = collectives.EXACT


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
            collectives.check_reducible(parts[0].dtype, op.value)
            room = count_lanes(replicas) if parts[0].dtype in CARRIERS else 0
            flat = _pack(parts, room)
            flat = _sum_with_room(flat) if room else jax.lax.psum(flat, AXIS)
            reduced = _unpack(flat / replicas if op is ReduceOp.MEAN else flat, parts)
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


def lane_bits(replicas: int) -> int:
    """Returns how many bits of a mark one number carries, so that sums are exact.

    >>> lane_bits(2), lane_bits(256), lane_bits(4096)
    (16, 16, 12)
    """
    # A float of 32 bits has 24 digits.
    return max(1, min(16, 24 - (replicas - 1).bit_length()))


def count_lanes(replicas: int) -> int:
    """Returns how many numbers carry the two marks of a step.

    >>> count_lanes(2), count_lanes(4096)
    (4, 6)
    """
    return 2 * -(-32 // lane_bits(replicas))


@jax.jit
def _sum_with_room(flat: jax.Array) -> jax.Array:
    """Sums a pack whose last elements are free; `has_room` finds it by its name."""
    total: jax.Array = jax.lax.psum(flat, AXIS)
    return total


def has_room(equation: Any) -> bool:
    """Whether an equation sums a pack that has room for the marks of a step."""
    is_call = equation.primitive.name in ("jit", "pjit")
    return is_call and equation.params["name"] == "_sum_with_room"


def _pack(parts: Sequence[jax.Array], room: int) -> jax.Array:
    # Written piece by piece: XLA computes a concatenation on several threads element
    # by element, which takes longer than the collective.
    flat = jnp.zeros(sum(p.size for p in parts) + room, parts[0].dtype)
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
