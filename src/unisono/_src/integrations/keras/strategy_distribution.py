"""A `keras.distribution.Distribution` that stands for a strategy.

Keras asks a distribution where a new variable goes, and how a batch is laid out over
devices. A batch is split if the number of replicas divides its size. Any other batch is
placed whole on every device, which gives the same numbers as one device.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, final

import jax
import keras
import numpy as np
from jax.experimental import sparse
from jax.sharding import NamedSharding, PartitionSpec

from unisono._src.foundation import ambient, wide_numbers
from unisono._src.integrations.keras.internals import KerasVariable
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.state import storage

T = TypeVar("T")


@final
class StrategyDistribution(keras.distribution.DataParallel):
    """Gives Keras the variables of a strategy, and splits batches over its replicas.

    Args:
        placement: the placement of the strategy's variables; None for the default
            strategy.
        adopt: a function that is called with each new Keras variable.
        is_training: whether a loop of Keras runs, whose programs take variables whole,
            on all devices.
        outer: the distribution that this one replaces.

    Attributes:
        depth: how many open blocks of this thread use it.
        is_syncing: whether the arrays that are assigned now are results of a step, to
            which no one else refers.
        is_updating: whether an optimizer computes new values of variables.
    """

    def __init__(
        self,
        placement: storage.Placement | None,
        adopt: Callable[[KerasVariable], None],
        is_training: bool = False,
        outer: object = None,
    ) -> None:
        self.placement = placement
        self.is_training = is_training
        self.outer = outer
        self.depth = 1 if is_training else 0
        self.is_syncing = False
        self.is_updating = False
        self._adopt = adopt
        devices = tuple(jax.local_devices()[:1])
        if placement is not None:
            devices = placement.topology.devices
        self._replicas = len(devices)
        super().__init__(device_mesh=_mesh(devices), auto_shard_dataset=False)
        if placement is not None and placement.topology.spans:
            # Each of a replica's logical devices gets the whole batch of the replica.
            # `DataParallel` expects a mesh with one axis, so this one is set after its
            # checks; all layouts come from the methods below.
            self._device_mesh = _logical_mesh(placement.topology)

    def get_variable_layout(self, variable: KerasVariable) -> None:
        """Return no layout: a variable of the strategy has its own placement."""
        self._adopt(variable)

    def get_tensor_layout(self, path: str) -> None:
        """Return no layout: the compiler places intermediate values."""

    def get_data_layout(self, data_shape: Sequence[int]) -> object:
        """Return the layout of a batch: split along its first axis if that is even."""
        axes: list[str | None] = [None] * len(data_shape)
        if self._is_even(data_shape):
            axes[0] = AXIS
        return keras.distribution.TensorLayout(axes, self.device_mesh)

    def _is_even(self, shape: Sequence[int]) -> bool:
        return len(shape) > 0 and shape[0] % self._replicas == 0

    # Batches.

    def batches(self, source: Iterable[Any]) -> Iterator[Any]:
        """Yield each batch of `source` on the devices.

        On accelerators the next batch is copied to them while a step runs.
        """
        mesh = self.device_mesh.backend_mesh
        is_cpu = mesh.devices.flat[0].platform == "cpu"
        if is_cpu and mesh.size == 1:
            # The program reads the batch from the memory of the host.
            yield from map(check_numbers, source)
            return
        ahead: list[Any] = []
        for batch in source:
            ahead.append(self._place(check_numbers(batch)))
            if is_cpu or len(ahead) > 1:
                yield ahead.pop(0)
        yield from ahead

    def _place(self, batch: object) -> object:
        """Put a batch on the devices."""
        shardings = jax.tree.map(self._sharding, batch, is_leaf=_is_sparse)
        if jax.process_count() == 1:
            return jax.device_put(batch, shardings)
        return jax.tree.map(_place_on_workers, batch, shardings)

    def _sharding(self, x: jax.Array) -> jax.sharding.Sharding:
        mesh = self.device_mesh.backend_mesh
        if mesh.size == 1:
            return jax.sharding.SingleDeviceSharding(mesh.devices.flat[0])
        is_even = not _is_sparse(x) and self._is_even(x.shape)
        return NamedSharding(mesh, PartitionSpec(AXIS) if is_even else PartitionSpec())


# One mesh per set of devices, because every scope and every loop asks for it.
@functools.cache
def _mesh(devices: tuple[jax.Device, ...]) -> object:
    return keras.distribution.DeviceMesh((len(devices),), [AXIS], list(devices))


@functools.cache
def _logical_mesh(topology: Topology) -> object:
    mesh = topology.mesh
    return keras.distribution.DeviceMesh(
        mesh.devices.shape, list(mesh.axis_names), list(mesh.devices.flat)
    )


def check_numbers(batch: T) -> T:
    """Return a batch; raise `OverflowError` for a number that JAX has no type for."""
    for x in jax.tree.leaves(batch):
        wide_numbers.check(x, "a batch of Keras")
    return batch


def _is_sparse(x: object) -> bool:
    return isinstance(x, sparse.JAXSparse)


def _place_on_workers(
    x: jax.Array | np.ndarray, sharding: jax.sharding.Sharding
) -> jax.Array:
    """Put a batch that every worker has whole on the devices of all workers."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        return x  # It is on the devices of all workers already.
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def current() -> StrategyDistribution | None:
    """Return the strategy's distribution that Keras uses now, or None."""
    found = keras.distribution.distribution()
    return found if isinstance(found, StrategyDistribution) else None


def check_alone() -> None:
    """Raise if the program has given Keras a distribution of its own.

    Raises:
        RuntimeError: it has, and a strategy cannot place the same variables.
    """
    found = keras.distribution.distribution()
    if found is None or isinstance(found, StrategyDistribution):
        return
    kind = type(found).__name__
    raise RuntimeError(
        f"Keras has the distribution {kind}, and {ambient.current().strategy!r} cannot "
        "place the same variables. Write keras.distribution.set_distribution(None) "
        "before `with strategy.scope():`, and none inside it: the strategy splits the "
        "batches. To split large weights as ModelParallel does, make the strategy with "
        'state="sharded".'
    )


def is_training() -> bool:
    """Return whether the running code is a loop of Keras, which takes variables whole.

    A callback that calls `run` or a compiled function is not part of the loop then.
    """
    found, frame = current(), ambient.current()
    if found is None or not found.is_training:
        return False
    return frame.state is None and frame.mode == ambient.CROSS


def is_syncing() -> bool:
    """Return whether the results of a step are being stored."""
    found = current()
    return found is not None and found.is_syncing


def gathers_late() -> bool:
    """Return whether steps of Keras gather split weights where they read them."""
    found = current()
    plan = None if found is None or found.placement is None else found.placement.plan
    return plan is not None and plan.gather == "use"


def is_updating() -> bool:
    """Return whether an optimizer computes new values of variables."""
    found = current()
    return found is not None and found.is_updating


@contextlib.contextmanager
def updating() -> Iterator[None]:
    """Run a block in which an optimizer computes new values of variables."""
    found = current()
    if found is None:
        yield
        return
    before, found.is_updating = found.is_updating, True
    try:
        yield
    finally:
        found.is_updating = before
