"""`MirroredStrategy`: replicas on the devices of one machine, variables on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono._src import devices, state
from unisono._src.strategies import base, cross_device_ops, replicated
from unisono._src.topology import Topology


class MirroredStrategy(base.Strategy):
    """Synchronous training on several devices of one machine.

    Every device holds a copy of each variable, kept equal.

    Args:
        devices: device names such as ``["GPU:0", "GPU:1"]``; default all
            accelerators, else all CPU devices. Naming ``"CPU:7"`` first makes that
            many virtual CPU devices.
        cross_device_ops: accepted; XLA chooses how to communicate.

    >>> strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    >>> strategy.num_replicas_in_sync
    2
    """

    def __init__(
        self,
        devices: Sequence[Any] | None = None,
        cross_device_ops: Any = None,
    ) -> None:
        _check_ops(cross_device_ops)
        topology = Topology.of(devices or _all_devices())
        placement = state.Placement(
            self,
            topology,
            state.Policy.MIRRORED,
            topology.devices[0],
            topology.names[0],
        )
        super().__init__(replicated.ReplicatedExtended(self, placement))


_all_devices = devices.default_names
_check_ops = cross_device_ops.check
