"""The methods that all strategies share, and those of strategies with one replica.

Also `update` and `update_non_slot` over the copies of mirrored state.
"""

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
from unisono._src.strategies import extended, function_contexts
from unisono._src.strategies.call_context import Args, Communication, Fn, Kwargs
from unisono._src.values import distributed, ports

if TYPE_CHECKING:
    from unisono._src.input.api.distributed_dataset import DistributedDataset
    from unisono._src.input.distribution.input_options import InputContext, InputOptions
    from unisono._src.strategies.base import Strategy
import functools
from collections.abc import Sequence
from typing import final

from unisono._src.execution import lockstep, merging
from unisono._src.foundation import errors, nest
from unisono._src.state import frames, holding, mirroring
from unisono._src.state.variables import MirroredVariable, SyncOnReadVariable

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
            alone = pipelines.input_options.InputContext()
            made = pipelines.input_options.call_dataset_fn(dataset_fn, alone)
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
        return single_result(result, group)

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


def update(
    topology: Topology,
    var: MirroredVariable | SyncOnReadVariable,
    fn: Fn,
    args: Args,
    kwargs: Kwargs,
    group: bool,
    in_turns: bool,
) -> object:
    """Calls ``fn(copy, *args, **kwargs)`` for every copy of `var`.

    Args:
        topology: the replicas.
        var: the variable.
        fn: the function.
        args: its further arguments.
        kwargs: its keyword arguments.
        group: whether to return one mirrored result, or one for each copy.
        in_turns: whether replicas that run in turn call this together. Then they may
            bring different objects for values that they computed alike.

    Returns:
        The results of `fn`; see `StrategyExtended.update`.
    """
    cell = var.state_cell
    port = ambient.current().port
    if port is not None and port.is_spmd:
        # Any component will do: in an update of such a program it stands for the copy
        # of the replica that runs.
        own = functools.partial(fn, var.values[0])
        return _update_spmd(port, own, args, kwargs, group)
    count = cell.copies
    if frames.frame().is_compiled and not cell.is_stacked:
        return _update_traced(topology, var, fn, args, kwargs, group, in_turns)
    # Eager: each copy is updated in turn, and afterwards all must still be equal
    # (docs/decisions/0006).
    results = []
    with holding.hold([cell], f"an update of the variable '{cell.name}'"):
        before = cell.array, cell.is_suspect
        for i, copy in zip(
            lockstep.replicas_in_turn(cell.topology), var.values, strict=True
        ):
            own_args, own_kwargs = distributed.unwrap((args, kwargs), i, count)
            with _copy_frame(i, cell.topology):
                results.append(fn(copy, *own_args, **own_kwargs))
        # If copies differ, the array from before is put back.
        mirroring.verify(cell, before, among_workers=True)
    return _group_results(results, group, topology)


def update_non_slot(
    topology: Topology, fn: Fn, args: Args, kwargs: Kwargs, group: bool
) -> object:
    """Calls ``fn(*args, **kwargs)`` for every device; see `update`."""
    port = ambient.current().port
    if port is not None and port.is_spmd:
        return _update_spmd(port, fn, args, kwargs, group)
    results = []
    for i in lockstep.replicas_in_turn(topology):
        own_args, own_kwargs = distributed.unwrap((args, kwargs), i, topology.replicas)
        with _copy_frame(i, topology):
            results.append(fn(*own_args, **own_kwargs))
    return _group_results(results, group, topology)


def _copy_frame(index: int, topology: Topology) -> AbstractContextManager[object]:
    """Returns a context manager for code that updates one copy."""
    if frames.frame().is_compiled:
        return ambient.push(mode=ambient.UPDATE, replica=None, copy=index)
    return _UpdateOnDevice(index, topology)


@final
class _UpdateOnDevice:
    """A context manager for an update whose arrays are made on the copy's device.

    A class, because it is entered at every eager update, and a generator is slower.
    """

    def __init__(self, index: int, topology: Topology) -> None:
        self._frame = ambient.push(mode=ambient.UPDATE, replica=None, copy=index)
        self._device = jax.default_device(topology.devices[index])

    def __enter__(self) -> None:
        self._frame.__enter__()
        self._device.__enter__()

    def __exit__(self, *exc: Any) -> None:
        self._device.__exit__(*exc)
        self._frame.__exit__(*exc)


def _update_spmd(
    port: ports.SpmdPort, fn: Fn, args: Args, kwargs: Kwargs, group: bool
) -> object:
    """Calls `fn` for the own copy, in a program that every device runs."""
    args, kwargs = merging.own_parts((args, kwargs))
    with ambient.push(mode=ambient.UPDATE, replica=None):
        result = fn(*args, **kwargs)

    def leaf(x: object) -> object:
        if isinstance(x, distributed.PerReplica):
            x = distributed.Mirrored.of(x.local, port.replicas)
        return x if group else _as_tuple(x)

    return nest.map_structure(leaf, merging.group_replica_values(result, port))


def _update_traced(
    topology: Topology,
    var: MirroredVariable | SyncOnReadVariable,
    fn: Fn,
    args: Args,
    kwargs: Kwargs,
    group: bool,
    in_turns: bool,
) -> object:
    """Calls `fn` for every copy, in a program that holds one value for all of them."""
    count, cell = topology.replicas, var.state_cell
    given = [
        x for x in nest.leaves((args, kwargs)) if isinstance(x, distributed.PerReplica)
    ]
    if given and not in_turns:
        # The copies would differ, and the program has no room for that.
        raise errors.diverging_copies_error(cell.name, cell.origin)
    results = []
    for i in range(count):
        own_args, own_kwargs = distributed.unwrap((args, kwargs), i, count)
        with ambient.push(mode=ambient.UPDATE, replica=None, copy=i, updating=cell):
            results.append(fn(var.values[i], *own_args, **own_kwargs))
    # If every copy was assigned, the program goes on with the new value.
    frames.frame().settle(cell)
    return _group_results(results, group, topology)


def _as_tuple(x: object) -> tuple[object, ...]:
    return tuple(x.values) if isinstance(x, distributed.DistributedValues) else (x,)


def _group_results(
    results: Sequence[object], group: bool, topology: Topology
) -> object:
    """Merges the results of all copies, as `StrategyExtended.update` returns them."""
    wrap = functools.partial(distributed.Mirrored, topology=topology)
    merged = distributed.regroup(results, wrap)

    def leaf(x: object) -> object:
        if not group:
            return _as_tuple(x)
        if isinstance(x, distributed.Mirrored):
            # As TensorFlow's eager `group`, which gives None for what is no tensor.
            tensors = all(isinstance(v, jax.Array) for v in jax.tree.leaves(x.values))
            return x if tensors else None
        return x

    return nest.map_structure(leaf, merged)


def single_result(result: object, group: bool) -> object:
    """Returns the result of an update of one copy, as `update` returns it."""
    if group:
        return distributed.regroup([result])
    return nest.map_structure(lambda x: (x,), distributed.regroup([result]))
