"""The methods that all strategies share, and those of strategies with one replica."""

from __future__ import annotations

import abc
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import jax

from unisono._src import input as pipelines
from unisono._src.execution import contexts
from unisono._src.foundation import ambient
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.shard_plan import ShardPlan
from unisono._src.machines.topology import Topology
from unisono._src.state import storage
from unisono._src.state.variables import Variable
from unisono._src.strategies import extended, function_contexts, updates
from unisono._src.strategies.call_context import Args, Communication, Fn, Kwargs
from unisono._src.values import distributed, ports

if TYPE_CHECKING:
    from unisono._src.input.api.distributed_dataset import DistributedDataset
    from unisono._src.input.distribution.dataset_functions import InputContext
    from unisono._src.input.distribution.input_options import InputOptions
    from unisono._src.strategies.base import Strategy

_Tree = TypeVar("_Tree")


def home_placement(
    strategy: Strategy,
    topology: Topology,
    kind: storage.Policy,
    plan: ShardPlan | None = None,
) -> storage.Placement:
    """Returns a placement whose parameter device is this process's first device.

    Args:
        strategy: the strategy that places the variables.
        topology: its replicas.
        kind: how it places them.
        plan: which variables are split; None splits none.
    """
    home = topology.home, topology.local_names[0]
    return storage.Placement(strategy, topology, kind, *home, plan)


class LocalExtended(extended.StrategyExtended, abc.ABC):
    """The methods that need to know only the placement; abstract.

    Args:
        container_strategy: the `Strategy` that this object belongs to.
        placement: its replicas, and where variables made in scope go; None for the
            strategy that has no devices of its own.

    Attributes:
        _is_chief: whether this process does the work that one worker does for all.
    """

    _topology: Topology

    def __init__(
        self, container_strategy: Strategy, placement: storage.Placement | None = None
    ) -> None:
        super().__init__(container_strategy)
        self._placement = placement
        if placement is not None:
            self._topology = placement.topology
        self._is_chief = placement is None or placement.topology.worker == 0

    def _distribute_dataset(
        self, dataset: object, options: InputOptions | None
    ) -> DistributedDataset:
        if self._placement is None:
            # As it is: there is nobody to share it with.
            return cast("DistributedDataset", dataset)
        owner = self._container_strategy()
        return pipelines.distributed_dataset.DistributedBatches(
            dataset, self._topology, options, owner
        )

    def _distribute_from_function(
        self,
        dataset_fn: Callable[[InputContext], object],
        options: InputOptions | None,
    ) -> DistributedDataset:
        if self._placement is None:
            alone = pipelines.dataset_functions.InputContext()
            made = pipelines.dataset_functions.call_dataset_fn(dataset_fn, alone)
            return cast("DistributedDataset", made)
        owner = self._container_strategy()
        made = pipelines.distributed_dataset.DistributedDatasetsFromFunction(
            dataset_fn, self._topology, options, owner
        )
        if self.experimental_enable_get_next_as_optional:
            return made
        return made.with_whole_steps()

    @property
    def experimental_should_init(self) -> bool:
        """Whether this process initialises variables; it always does."""
        return True

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints; only the chief does."""
        return self._is_chief

    @property
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries; only the chief does."""
        return self._is_chief


class SingleExtended(LocalExtended, abc.ABC):
    """The methods of one replica, which wraps and combines nothing; abstract."""

    # Any value will do: with one replica a reduction leaves its argument as it is.
    _reduced_at = "the replica"

    @abc.abstractmethod
    def _enter(self, **changes: object) -> AbstractContextManager[object]:
        """Returns a context manager for code that runs for this strategy.

        Args:
            **changes: fields of the ambient frame inside.
        """

    @property
    def _num_replicas_in_sync(self) -> int:
        return 1

    def _call_for_each_replica(self, fn: Fn, args: Args, kwargs: Kwargs) -> object:
        port = ports.SingleReplicaPort()
        strategy = self._container_strategy()
        context = contexts.context_of_replica(strategy, 0, port)
        args, kwargs = distributed.unwrap((args, kwargs), 0, 1)
        args, kwargs = self._place((args, kwargs))
        with self._enter(mode=ambient.REPLICA, replica=context, port=port):
            return fn(*args, **kwargs)

    @abc.abstractmethod
    def _place(self, tree: _Tree) -> _Tree:
        """Puts arguments on the device of the replica."""

    def _reduce_to(
        self, op: ReduceOp, value: object, destinations: object, options: Communication
    ) -> Any:
        return value

    def _gather(self, value: object, axis: int) -> object:
        return value

    def _broadcast_to(self, tensor: object, destinations: object) -> object:
        return tensor

    def _update(
        self, var: Variable, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        # One copy: the variable itself is the first argument.
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(
        self, colocate_with: object, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        with self._enter(mode=ambient.UPDATE, replica=None, port=None):
            result = fn(*args, **kwargs)
        return updates.single_result(result, group)

    def _values_from_function(
        self, value_fn: Callable[[function_contexts.ValueContext], object]
    ) -> object:
        return value_fn(function_contexts.ValueContext())

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds a program of its own; False here."""
        return False

    def value_container(self, value: object) -> Any:
        """Returns `value`: variables of one replica have no copies."""
        return value

    def read_var(self, v: Variable) -> jax.Array:
        """Returns the value of a variable."""
        return v.read_value()
