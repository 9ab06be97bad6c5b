"""Puts arrays on several devices with one call of JAX's fastest function.

JAX's public functions call `batched_device_put` in the end. Before that they work out
the devices, the sharding and the abstract value of the result, which takes longer than
the transfer of a small array. This module remembers all three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.machines.topology import Topology

# Both names are private to JAX. Where a version lacks one, `put` uses public functions,
# which give the same array more slowly.
try:
    from jax._src.config import guard_lib as _guards  # type: ignore[attr-defined]
    from jax._src.interpreters.pxla import batched_device_put as _put
except ImportError:
    _put = None  # type: ignore[assignment]

# The most shapes to remember, so that a program of many shapes does not fill memory.
_SHAPES = 256


def put(
    aval: Any, sharding: Any, pieces: Sequence[Any], devices: Sequence[jax.Device]
) -> jax.Array:
    """Returns one array that is made of a piece on each device.

    Args:
        aval: the abstract value that an array with this sharding has.
        sharding: how the pieces make up the array.
        pieces: an array for each device, on the host or on any device.
        devices: the devices of this process, in the order of the sharding.
    """
    if _put is None:
        placed = jax.device_put(list(pieces), list(devices))
        return jax.make_array_from_single_device_arrays(aval.shape, sharding, placed)
    state = _guards.thread_local_state()
    before = state.explicit_device_put
    # `jax.device_put` sets this too: `jax_transfer_guard` refuses implicit transfers
    # only, and the caller has asked for this one.
    state.explicit_device_put = True
    try:
        made: jax.Array = _put(aval, sharding, pieces, devices)
        return made
    finally:
        state.explicit_device_put = before


@final
class Transfers:
    """Puts arrays on devices, and remembers the abstract values that JAX gave them.

    Args:
        topology: the replicas and their devices.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._devices = list(topology.own_devices)
        self._types: dict[Any, Any] = {}

    def stack(self, rows: Sequence[np.ndarray]) -> jax.Array:
        """Returns an array with a leading replica axis.

        Args:
            rows: one array per replica of this process, each with a first axis of
                size 1.
        """
        first = rows[0]
        key = (True, first.shape, first.dtype)
        known = self._types.get(key)
        if known is None:
            return self._remember(key, self._topology.stack(rows))
        each = self._topology.logical
        pieces = [row for row in rows for _ in range(each)] if each > 1 else rows
        return put(known, self._topology.stacked, pieces, self._devices)

    def replicate(self, x: np.ndarray) -> jax.Array:
        """Returns an array that every replica has; all are in this process."""
        key = (False, x.shape, x.dtype)
        known = self._types.get(key)
        where = self._topology.replicated
        if known is None:
            return self._remember(key, jax.device_put(x, where))
        return put(known, where, [x] * len(self._devices), self._devices)

    def _remember(self, key: Any, made: jax.Array) -> jax.Array:
        if len(self._types) >= _SHAPES:
            self._types.clear()
        self._types[key] = made.aval
        return made
