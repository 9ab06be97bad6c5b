"""Replicas and their devices as one mesh, and the safety of CPU collectives."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from unisono._src import devices

AXIS = "replica"


@dataclasses.dataclass(frozen=True)
class Topology:
    """The devices of a strategy: one per replica, in replica order.

    Everything downstream asks the topology, never `jax.devices()`.
    """

    names: tuple[str, ...]
    devices: tuple[jax.Device, ...]

    @classmethod
    def of(cls, names: Sequence[object]) -> Topology:
        """The topology over the named devices."""
        return cls(*devices.resolve(names))

    @property
    def replicas(self) -> int:
        """How many replicas there are."""
        return len(self.devices)

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The mesh whose axis is the replicas."""
        return Mesh(np.array(self.devices, dtype=object), (AXIS,))

    @functools.cached_property
    def replicated(self) -> Any:
        """Sharding of a value that every replica holds whole."""
        if self.replicas == 1:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec())

    @functools.cached_property
    def stacked(self) -> Any:
        """Sharding of an array whose first axis is the replicas."""
        if self.replicas == 1:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @functools.cached_property
    def needs_throttle(self) -> bool:
        """Whether un-awaited steps could starve XLA's CPU collectives."""
        return self.replicas > 1 and self.devices[0].platform == "cpu"


class _Throttle:
    """Counts the steps dispatched to virtual CPU devices since the last wait.

    XLA's CPU collectives block a pool thread per participant. Steps dispatched
    without end would take every thread for participants whose partners find none,
    and XLA aborts the process 40 s later. Draining the queue every few steps bounds
    the threads that can be taken; the pool `devices.start` makes is larger than that.
    """

    in_flight = 0
    limit = 8


_throttle = _Throttle()


def admit(results: Sequence[jax.Array]) -> None:
    """Say that a step over several CPU devices was dispatched; waits now and then."""
    _throttle.in_flight += 1
    if _throttle.in_flight >= _throttle.limit and results:
        _throttle.limit = 32 if devices.pool_is_large() else 8
        _throttle.in_flight = 0
        # Another thread may have donated the array: then its step is done as well.
        if not results[-1].is_deleted():
            with contextlib.suppress(RuntimeError):
                results[-1].block_until_ready()
