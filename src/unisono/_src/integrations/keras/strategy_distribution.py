"""A strategy as a `keras.distribution.Distribution`.

Keras asks a distribution where a new variable goes, and how a batch is laid out over
devices. A batch that the number of replicas divides is split; any other is placed whole
on every device, which gives the same numbers as one device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import jax
import keras
from jax.experimental import sparse
from jax.sharding import NamedSharding, PartitionSpec

from unisono._src.foundation import ambient
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.state import frames


@final
class StrategyDistribution(keras.distribution.DataParallel):
    """Variables made by a strategy, batches split over its replicas.

    Args:
        placement: where the strategy puts variables.
        adopt: called with each new Keras variable.
        is_training: whether programs of Keras take variables whole, on all devices.
        outer: the distribution that it takes the place of.

    Attributes:
        depth: how many blocks that are open here need it.
        is_syncing: whether what is assigned comes out of a step; nobody else has it.
    """

    def __init__(
        self,
        placement: frames.Placement | None,
        adopt: Callable[[Any], None],
        is_training: bool = False,
        outer: Any = None,
    ) -> None:
        self.placement = placement
        self.is_training = is_training
        self.outer = outer
        self.depth = 1 if is_training else 0
        self.is_syncing = False
        self._adopt = adopt
        devices = tuple(jax.local_devices()[:1])
        if placement is not None:
            devices = placement.topology.devices
        self._replicas = len(devices)
        super().__init__(device_mesh=_mesh(devices), auto_shard_dataset=False)
        if placement is not None and placement.topology.spans:
            # A batch is whole on the logical devices of a replica. Keras' class knows
            # of one axis only, but asks for nothing else than what is answered here.
            self._device_mesh = _logical_mesh(placement.topology)

    def get_variable_layout(self, variable: Any) -> None:
        """No layout: a variable of the strategy knows where it lives."""
        self._adopt(variable)

    def get_tensor_layout(self, path: str) -> None:
        """No layout: the compiler chooses where intermediate values are."""

    def get_data_layout(self, data_shape: Any) -> Any:
        """Split along the first axis if it divides, else whole on every device."""
        axes: list[str | None] = [None] * len(data_shape)
        if self._is_even(data_shape):
            axes[0] = AXIS
        return keras.distribution.TensorLayout(axes, self.device_mesh)

    def _is_even(self, shape: Any) -> bool:
        return len(shape) > 0 and shape[0] % self._replicas == 0

    # Batches.

    def batches(self, source: Iterable[Any]) -> Iterator[Any]:
        """Each batch of `source` on the devices, on accelerators one step ahead."""
        mesh = self.device_mesh.backend_mesh
        is_cpu = mesh.devices.flat[0].platform == "cpu"
        if is_cpu and mesh.size == 1:
            # The program takes it from the host, which is the same memory.
            yield from source
            return
        ahead: list[Any] = []
        for batch in source:
            ahead.append(self._placed(batch))
            if is_cpu or len(ahead) > 1:
                yield ahead.pop(0)
        yield from ahead

    def _placed(self, batch: Any) -> Any:
        shardings = jax.tree.map(self._sharding, batch, is_leaf=_is_sparse)
        if jax.process_count() == 1:
            return jax.device_put(batch, shardings)
        return jax.tree.map(_on_workers, batch, shardings)

    def _sharding(self, x: Any) -> Any:
        mesh = self.device_mesh.backend_mesh
        if mesh.size == 1:
            return jax.sharding.SingleDeviceSharding(mesh.devices.flat[0])
        is_even = not _is_sparse(x) and self._is_even(x.shape)
        return NamedSharding(mesh, PartitionSpec(AXIS) if is_even else PartitionSpec())


@functools.cache
def _mesh(devices: tuple[jax.Device, ...]) -> Any:
    return keras.distribution.DeviceMesh((len(devices),), [AXIS], list(devices))


@functools.cache
def _logical_mesh(topology: Topology) -> Any:
    mesh = topology.mesh
    return keras.distribution.DeviceMesh(
        mesh.devices.shape, list(mesh.axis_names), list(mesh.devices.flat)
    )


def _is_sparse(x: Any) -> bool:
    return isinstance(x, sparse.JAXSparse)


def _on_workers(x: Any, sharding: Any) -> Any:
    """A batch that every worker has whole, each part on its device."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return x  # It was made of parts that are there.
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def current() -> StrategyDistribution | None:
    """The distribution of a strategy that Keras uses now."""
    found = keras.distribution.distribution()
    return found if isinstance(found, StrategyDistribution) else None


def is_training() -> bool:
    """Whether the running code is a loop of Keras itself, which takes variables whole.

    What a callback does by `run` or by a compiled function is not part of the loop.
    """
    found, frame = current(), ambient.current()
    if found is None or not found.is_training:
        return False
    return frame.state is None and frame.mode == ambient.CROSS


def is_syncing() -> bool:
    """Whether the results of a step are being stored."""
    found = current()
    return found is not None and found.is_syncing
