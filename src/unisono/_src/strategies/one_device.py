"""`OneDeviceStrategy`: one replica on one device, plain values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, final

import jax

from unisono._src.foundation import ambient, nest
from unisono._src.foundation.public_names import publish
from unisono._src.machines.topology import Topology
from unisono._src.state import frames
from unisono._src.strategies import base, local
from unisono._src.values import collectives


@final
class _OneDeviceExtended(local.SingleExtended):
    """One replica on a device; aggregation has no effect."""

    @contextlib.contextmanager
    def _entered(self, **changes: Any) -> Iterator[None]:
        with ambient.pushed(copy=0, **changes):
            if frames.frame().is_compiled:
                yield
            else:
                with jax.default_device(self._topology.devices[0]):
                    yield

    def _placed(self, tree: Any) -> Any:
        if frames.frame().is_compiled:
            return tree
        device = self._topology.devices[0]
        return nest.map_structure(lambda x: collectives.follow(x, device), tree)

    @property
    def worker_devices(self) -> Sequence[str]:
        """The one device."""
        return self._topology.names

    @property
    def parameter_devices(self) -> Sequence[str]:
        """The one device."""
        return self._topology.names

    def non_slot_devices(self, var_list: Sequence[Any]) -> Any:
        """The one device."""
        return self._topology.names


class OneDeviceStrategy(base.Strategy):
    """One replica on one device: the same program, without distribution.

    Args:
        device: a device name such as ``"GPU:0"``.

    >>> OneDeviceStrategy("CPU:0").num_replicas_in_sync
    1
    """

    def __init__(self, device: str | jax.Device) -> None:
        topology = Topology.of([device])
        placement = frames.Placement(
            self, topology, frames.Policy.PLAIN, topology.home, topology.names[0]
        )
        super().__init__(_OneDeviceExtended(self, placement))


publish("unisono.distribute", OneDeviceStrategy)
