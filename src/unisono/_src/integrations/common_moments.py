"""Mean and variance of the parts of a batch that all replicas have."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from unisono._src.execution.contexts import ReplicaContext


def moments(
    context: ReplicaContext,
    x: jax.Array,
    axes: int | Sequence[int],
    mask: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return mean and variance over some axes, which stay with the size 1.

    Args:
        context: that of the replica.
        x: the replica's part. The parts may have different numbers of rows, or none.
        axes: the axes over which to take them.
        mask: which elements count; by default all.
    """

    def mean_of(values: jax.Array) -> jax.Array:
        total = jnp.sum(values, axes, keepdims=True, where=mask)
        count = jnp.sum(jnp.ones_like(values), axes, keepdims=True, where=mask)
        sums: tuple[jax.Array, jax.Array] = context.all_reduce("SUM", (total, count))
        return sums[0] / sums[1]

    # Half precision is too narrow for sums.
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = mean_of(wide)
    return mean, mean_of(jnp.square(wide - mean))
