"""`BatchNorm(axis_name="replica")`: statistics of the parts of all replicas.

Flax takes the mean over an axis of a mesh. A compiled step of several replicas has that
axis. One replica, parts of different sizes and eager code have none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.integrations import common_moments
from unisono._src.machines.topology import AXIS
from unisono._src.strategies import current


def wrap_compute_stats(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `_compute_stats` that finds all replicas without an axis, too."""

    @functools.wraps(original)
    def compute_stats(
        x: jax.Array, axes: Sequence[int], *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return original(x, axes, *args, **kwargs)
        except NameError:
            context = current.get_replica_context()
            # Groups of replicas need the axis; `RMSNorm` leaves the mean out.
            if (
                context is None
                or kwargs.get("axis_name") != AXIS
                or kwargs.get("axis_index_groups") is not None
                or not kwargs.get("use_mean", True)
            ):
                raise
        x = jnp.asarray(x, jnp.promote_types(kwargs["dtype"] or x.dtype, jnp.float32))
        found = common_moments.moments(context, x, axes, kwargs["mask"])
        return tuple(jnp.squeeze(value, axes) for value in found)

    return compute_stats
