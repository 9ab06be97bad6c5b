"""Host arrays to the devices of this process's replicas, one call per array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from unisono._src.machines.topology import Topology

try:
    # What JAX's public functions come to, after questions that take longer than the
    # transfer of a small batch. All answers were found with the first array of a shape.
    from jax._src.config import guard_lib as _guards  # type: ignore[attr-defined]
    from jax._src.interpreters.pxla import batched_device_put as _put
except ImportError:
    _put = None  # type: ignore[assignment]

# So many shapes are remembered.
_SHAPES = 256


class Transfers:
    """Puts arrays on devices, and remembers what JAX made of arrays like them.

    Args:
        topology: the replicas and their devices.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        spans = topology.spans or [(device,) for device in topology.devices]
        own = spans[topology.first : topology.first + topology.copies]
        self._places = [place for place, span in enumerate(own) for _ in span]
        self._devices = [device for span in own for device in span]
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
        pieces = [rows[place] for place in self._places]
        return self._put(known, self._topology.stacked, pieces)

    def whole(self, x: np.ndarray) -> jax.Array:
        """An array that every replica of this process has; there are no others."""
        key = (False, x.shape, x.dtype)
        known = self._types.get(key)
        where = self._topology.replicated
        if known is None:
            return self._remembered(key, jax.device_put(x, where))
        return self._put(known, where, [x] * len(self._devices))

    def _put(self, known: Any, where: Any, pieces: Sequence[np.ndarray]) -> jax.Array:
        state = _guards.thread_local_state()
        before = state.explicit_device_put
        # As in `jax.device_put`: a guard against transfers that no one asked for
        # (`jax_transfer_guard`) lets it pass.
        state.explicit_device_put = True
        try:
            array: jax.Array = _put(known, where, pieces, self._devices)
            return array
        finally:
            state.explicit_device_put = before

    def _remembered(self, key: Any, made: jax.Array) -> jax.Array:
        if _put is not None:
            if len(self._types) >= _SHAPES:
                self._types.clear()
            self._types[key] = made.aval
        return made
