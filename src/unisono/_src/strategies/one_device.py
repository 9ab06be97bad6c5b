"""`OneDeviceStrategy`: one replica on one device, whose values are not wrapped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeVar, final

import jax

from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, storage
from unisono._src.state.variables import Variable
from unisono._src.strategies import base, local
from unisono._src.values import collectives

_Tree = TypeVar("_Tree")


@final
class _OneDeviceExtended(local.SingleExtended):
    """The methods of one replica on a given device; aggregation has no effect."""

    @contextlib.contextmanager
    def _enter(self, **changes: object) -> Iterator[None]:
        device = self._topology.devices[0]
        with ambient.push(copy=0, **changes), contexts.use_device(device):
            yield

    def _place(self, tree: _Tree) -> _Tree:
        if frames.frame().is_compiled:
            return tree
        return collectives.move_all(tree, self._topology.devices[0])

    @property
    def worker_devices(self) -> Sequence[str]:
        """The name of the device that computes."""
        return self._topology.names

    @property
    def parameter_devices(self) -> Sequence[str]:
        """The name of the device that holds variables."""
        return self._topology.names

    def non_slot_devices(self, var_list: Sequence[Variable]) -> Sequence[str]:
        """Returns the name of the device, for any variables."""
        return self._topology.names


class OneDeviceStrategy(base.Strategy):
    """Runs one replica on one device.

    It lets a program that is written for many devices run on a single one. Results of
    `run` are plain arrays.

    Args:
        device: a device name such as ``"GPU:0"``, or a JAX device.

    >>> strategy = OneDeviceStrategy("CPU:1")
    >>> strategy.num_replicas_in_sync
    1
    >>> total = strategy.run(jax.numpy.sum, args=(jax.numpy.arange(4),))
    >>> int(total), total.devices() == {jax.devices("cpu")[1]}
    (6, True)
    """

    def __init__(self, device: str | jax.Device) -> None:
        topology = Topology.of([device])
        placement = storage.Placement(
            self, topology, storage.Policy.PLAIN, topology.home, topology.names[0]
        )
        super().__init__(_OneDeviceExtended(self, placement))
