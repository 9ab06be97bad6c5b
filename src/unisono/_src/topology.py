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


class Throttle:
    """Bounds the steps in flight on virtual CPU devices.

    XLA's CPU collectives block a pool thread per participant. Steps dispatched
    without end would take every thread for participants whose partners find none,
    and XLA aborts the process 40 s later. So after each group of steps we wait for a
    result of the group before, which is there as a rule; the pool that
    `devices.start` makes is larger than what two groups can take.

    Attributes:
        count: steps dispatched in the present group. Whoever dispatches one counts it
            and calls `wait` when the group is full.
        group: how many steps make a group.
    """

    count = 0
    group = 4
    _mark: jax.Array | None = None

    def wait(self, results: Sequence[jax.Array], stored: Sequence[jax.Array]) -> None:
        """Begin another group.

        Args:
            results: arrays that the last step gives to its caller.
            stored: arrays that the next step may take over.
        """
        self.count = 0
        self.group = 16 if devices.pool_is_large() else 4
        oldest, self._mark = self._mark, None
        if results and results[-1].nbytes <= _LARGEST_MARK:
            self._mark = results[-1]
        if oldest is None and self._mark is None:
            oldest = next(iter((*results, *stored)), None)
        if oldest is not None and not oldest.is_deleted():
            # If another thread donates the array meanwhile, its step is done as well.
            with contextlib.suppress(RuntimeError):
                oldest.block_until_ready()


THROTTLE = Throttle()
# Larger results are not kept only to be waited for.
_LARGEST_MARK = 1 << 16
