"""Arrays to several devices in one call, without asking JAX again what it has answered.

JAX's public functions come to `batched_device_put` in the end, after questions that
take longer than the transfer of a small array. Their answers are known here: which
devices, which sharding, and what type an array of that shape has there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.machines.topology import Topology

try:
    from jax._src.config import guard_lib as _guards  # type: ignore[attr-defined]
    from jax._src.interpreters.pxla import batched_device_put as _put
except ImportError:
    _put = None  # type: ignore[assignment]

# So many shapes are remembered.
_SHAPES = 256


def put(
    aval: Any, sharding: Any, pieces: Sequence[Any], devices: Sequence[jax.Device]
) -> jax.Array:
    """Return one array that is made of a piece on each device.

    Args:
        aval: the abstract value that an array with this sharding has.
        sharding: how the pieces make up the array.
        pieces: arrays of the host or of any device, one for each device.
        devices: of this process, in the order of the sharding.
    """
    if _put is None:
        placed = jax.device_put(list(pieces), list(devices))
        return jax.make_array_from_single_device_arrays(aval.shape, sharding, placed)
    state = _guards.thread_local_state()
    before = state.explicit_device_put
    # As in `jax.device_put`: a guard against transfers that no one asked for
    # (`jax_transfer_guard`) lets it pass.
    state.explicit_device_put = True
    try:
        made: jax.Array = _put(aval, sharding, pieces, devices)
        return made
    finally:
        state.explicit_device_put = before


@final
class Transfers:
    """Puts arrays on devices, and remembers what JAX made of arrays like them.

    Args:
        topology: the replicas and their devices.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._devices = list(topology.own_devices)
        self._types: dict[Any, Any] = {}

    def stacked(self, rows: Sequence[np.ndarray]) -> jax.Array:
        """An array with a leading replica axis.

        Args:
            rows: one per replica of this process, each with a first axis of size 1.
        """
        first = rows[0]
        key = (True, first.shape, first.dtype)
        known = self._types.get(key)
        if known is None:
            return self._remembered(key, self._topology.stack(rows))
        each = self._topology.logical
        pieces = [row for row in rows for _ in range(each)] if each > 1 else rows
        return put(known, self._topology.stacked, pieces, self._devices)

    def whole(self, x: np.ndarray) -> jax.Array:
        """An array that every replica of this process has; there are no others."""
        key = (False, x.shape, x.dtype)
        known = self._types.get(key)
        where = self._topology.replicated
        if known is None:
            return self._remembered(key, jax.device_put(x, where))
        return put(known, where, [x] * len(self._devices), self._devices)

    def _remembered(self, key: Any, made: jax.Array) -> jax.Array:
        if len(self._types) >= _SHAPES:
            self._types.clear()
        self._types[key] = made.aval
        return made
