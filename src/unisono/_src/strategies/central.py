"""`CentralStorageStrategy`: one copy of each variable, replicas compute elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from unisono._src.foundation.public_names import publish
from unisono._src.machines import devices
from unisono._src.machines.topology import Topology
from unisono._src.state import storage
from unisono._src.strategies import base, replicated


class CentralStorageStrategy(base.Strategy):
    """Keeps variables on one device and computes on several.

    Args:
        compute_devices: the devices of the replicas; default all accelerators, else
            one CPU.
        parameter_device: the device of the variables; default the only compute device,
            else ``CPU:0``.

    >>> import unisono
    >>> strategy = CentralStorageStrategy(["CPU:0", "CPU:1"], "CPU:2")
    >>> with strategy.scope():
    ...     weight = unisono.Variable(3.0)
    >>> weight.device[-5:], strategy.num_replicas_in_sync
    ('CPU:2', 2)
    >>> float(strategy.reduce("SUM", strategy.run(lambda: weight * 2.0), axis=None))
    12.0
    """

    def __init__(
        self,
        compute_devices: Sequence[str | jax.Device] | None = None,
        parameter_device: str | jax.Device | None = None,
    ) -> None:
        topology = Topology.of(compute_devices or _default_devices())
        if parameter_device is None:
            # TensorFlow's rule: several accelerators share the host's memory.
            parameter_device = topology.names[0] if topology.replicas == 1 else "CPU:0"
        names, found = devices.resolve([parameter_device])
        placement = storage.Placement(
            self, topology, storage.Policy.CENTRAL, found[0], names[0]
        )
        super().__init__(replicated.ReplicatedExtended(self, placement))


def _default_devices() -> Sequence[str]:
    """Returns all accelerators, or the first CPU device if there are none."""
    names = devices.default_names()
    return names if jax.local_devices()[0].platform != "cpu" else names[:1]


publish("unisono.distribute", CentralStorageStrategy)
