"""The `destinations` of a reduction: the devices that get its result."""

from __future__ import annotations

import dataclasses
from typing import Any, final

import jax

from unisono._src.machines import devices
from unisono._src.machines.topology import Topology
from unisono._src.values import collectives, distributed, jax_tapes


@final
@dataclasses.dataclass(frozen=True)
class Target:
    """A device, or all devices of a topology.

    Attributes:
        device: the device; None leaves the result where it is.
        topology: the replicas whose devices all get a copy; None for one device.
    """

    device: jax.Device | None
    topology: Topology | None = None

    def deliver(self, value: Any) -> Any:
        """Puts `value` there; returns an array, or a `Mirrored` on several devices."""
        traced = jax_tapes.has_tracer(value)
        if self.topology is None or self.topology.replicas == 1:
            device = self.device
            if self.topology is not None:
                device = self.topology.devices[0]
            return collectives.place(value, device)
        # A program places its values itself.
        if not traced:
            value = jax.tree.map(self.topology.spread, value)
        return distributed.Mirrored.of(value, self.topology.replicas)


def device_target(device: jax.Device) -> Target:
    """Returns the target that is one device."""
    return Target(device)


def parse(where: Any, topology: Topology, is_central: bool) -> Target:
    """Returns the target that a `destinations` argument names.

    Args:
        where: a device name, a value or a variable.
        topology: the replicas of the strategy.
        is_central: whether the strategy keeps its variables on one device.

    Raises:
        AssertionError: `where` is a list or tuple.
        AttributeError: `where` has no device.
        ValueError: `where` is an empty device name.
    """
    if isinstance(where, (list, tuple)):
        raise AssertionError(
            "destinations must be one device name, value or variable, received the "
            f"{type(where).__name__} {where!r}."
        )
    if isinstance(where, str):
        if not where:
            raise ValueError("destinations can not be empty")
        return Target(devices.resolve([where])[1][0])
    if isinstance(where, distributed.DistributedValues):
        return Target(None, topology)
    cell = getattr(where, "state_cell", None)
    if cell is not None:
        # A plain variable is where its strategy has put it, or else where its array is.
        return Target(cell.parameter_device or _device_of(cell.array))
    if isinstance(where, jax.Array):
        return Target(_device_of(where))
    raise AttributeError(
        f"'{type(where).__name__}' object has no attribute 'device': destinations must "
        "be a device name, a value or a variable."
    )


def _device_of(array: Any) -> jax.Device | None:
    """Returns the first device of an array; None for one of a program."""
    if jax_tapes.is_traced(array):
        return None
    return min(array.sharding.device_set, key=lambda d: d.id)
