"""`OneDeviceStrategy`: one replica on one device, plain values."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from unisono._src import (
    ambient,
    collectives,
    contexts,
    nest,
    options,
    state,
    values,
)
from unisono._src.input import distributed
from unisono._src.strategies import base, extended
from unisono._src.topology import Topology


class _OneDeviceExtended(extended.StrategyExtended):
    """One replica; nothing is wrapped and aggregation has no effect."""

    def __init__(self, container_strategy: Any, topology: Topology) -> None:
        super().__init__(container_strategy)
        self._topology = topology
        self.__placement = state.Placement(
            container_strategy,
            topology,
            state.Policy.PLAIN,
            topology.devices[0],
            topology.names[0],
        )

    def _rebind(self, container: Any) -> None:
        type(self).__init__(self, container, self._topology)

    @property
    def _placement(self) -> state.Placement:
        return self.__placement

    @property
    def _num_replicas_in_sync(self) -> int:
        return 1

    @contextlib.contextmanager
    def _frame(self, **changes: Any) -> Iterator[None]:
        with ambient.pushed(copy=0, **changes):
            if state.frame().is_compiled:
                yield
            else:
                with jax.default_device(self._topology.devices[0]):
                    yield

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        port = collectives.Solo()
        context = contexts.ReplicaContext(
            self._container_strategy(), contexts.replica_id(0), port
        )
        args, kwargs = values.unwrap((args, kwargs), 0, 1)
        if not state.frame().is_compiled:
            device = self._topology.devices[0]
            args, kwargs = nest.map_structure(
                lambda x: collectives.follow(x, device), (args, kwargs)
            )
        with self._frame(mode=ambient.REPLICA, replica=context, port=port):
            return fn(*args, **kwargs)

    def _reduce_to(self, op: Any, value: Any, destinations: Any, options: Any) -> Any:
        return value

    def _reduce(self, op: options.ReduceOp, value: Any) -> Any:
        return value

    def _gather(self, value: Any, axis: int) -> Any:
        return value

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        return tensor

    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(
        self, colocate_with: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        with self._frame(mode=ambient.UPDATE, replica=None, port=None):
            result = fn(*args, **kwargs)
        return extended.single_result(result, group)

    def _distribute_dataset(self, dataset: Any) -> Any:
        return distributed.DistributedDataset(dataset, self._topology)

    def _values_from_function(self, value_fn: Any) -> Any:
        return value_fn(base.ValueContext())

    @property
    def experimental_between_graph(self) -> bool:
        """False: one process, one program."""
        return False

    @property
    def experimental_should_init(self) -> bool:
        """True: this process initialises variables."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """True: this process writes checkpoints."""
        return True

    @property
    def should_save_summary(self) -> bool:
        """True: this process writes summaries."""
        return True

    @property
    def worker_devices(self) -> Sequence[str]:
        """The one device."""
        return self._topology.names

    @property
    def parameter_devices(self) -> Sequence[str]:
        """The one device."""
        return self._topology.names

    def value_container(self, value: Any) -> Any:
        """Values are their own containers here."""
        return value

    def read_var(self, v: Any) -> Any:
        """The value of a variable."""
        return v.read_value()

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

    def __init__(self, device: Any) -> None:
        super().__init__(_OneDeviceExtended(self, Topology.of([device])))
