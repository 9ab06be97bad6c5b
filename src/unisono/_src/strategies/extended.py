"""`StrategyExtended`: the lower-level methods of a strategy, checked and documented.

A strategy is made by subclassing this class and implementing the methods whose names
start with an underscore; the container class only builds it.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import jax

from unisono._src import input as pipelines
from unisono._src.execution import contexts, function
from unisono._src.foundation import ambient, nest, options
from unisono._src.foundation.options import ReduceOp
from unisono._src.foundation.process_bound import ProcessBound
from unisono._src.state import storage
from unisono._src.state.variables import Variable
from unisono._src.strategies import call_context, function_contexts
from unisono._src.strategies.call_context import Args, Communication, Fn, Kwargs
from unisono._src.strategies.reductions import Destinations
from unisono._src.values import distributed

if TYPE_CHECKING:
    # Named in signatures only: the container imports this module, and the input
    # modules are loaded when a program reads data.
    from unisono._src.input.api.distributed_dataset import DistributedDataset
    from unisono._src.input.distribution.input_options import InputContext, InputOptions
    from unisono._src.strategies.base import Strategy

# Where state that belongs to no single variable goes: names of devices, or a variable
# on whose devices it is.
NonSlotDevices: TypeAlias = Sequence[str] | Variable


def _not_implemented_error() -> NotImplementedError:
    return NotImplementedError("must be implemented in descendants")


class StrategyExtended(ProcessBound):
    """The lower-level methods of a strategy, which libraries use.

    If you write your own strategy, implement the abstract methods that you use. The
    others raise `NotImplementedError` when they are called. The class is therefore not
    an `abc.ABC`, which would require all of them.

    Args:
        container_strategy: the `Strategy` that this object belongs to.

    Attributes:
        experimental_enable_get_next_as_optional: whether the last step of a dataset may
            have replicas without data, which get empty batches. If it is False, the
            dataset ends before this step. It applies to datasets that
            `distribute_datasets_from_function` creates afterwards.
        _placement: where variables of the scope are stored; None does not place them.
        _reduced_at: where `reduce` leaves its result; None means the first device.
        _copies: how many replicas of this process can have values of their own; None
            if a value is never wrapped.
        _has_static_shapes: whether it is a TPU's strategy, which TensorFlow gives
            programs of fixed shapes.
        _keep_local: returns what this worker's replicas have of a value; None if there
            are no other workers.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> isinstance(strategy.extended, StrategyExtended)
    True
    """

    experimental_enable_get_next_as_optional = True
    _instead = "Make a strategy in each process."
    _placement: storage.Placement | None = None
    _reduced_at: object = None
    _copies: int | None = None
    _has_static_shapes = False
    _keep_local: Callable[[object], object] | None = None

    def __init__(self, container_strategy: Strategy) -> None:
        # Weak, so that the two do not keep each other alive.
        self._container_ref = weakref.ref(container_strategy)

    def _container_strategy(self) -> Strategy:
        container = self._container_ref()
        if container is None:
            raise RuntimeError(
                "The Strategy that owns this object is gone; keep a reference to it."
            )
        return container

    def __repr__(self) -> str:
        return f"<extended of {self._container_ref()!r}>"

    # The methods that an implementation gives.

    @property
    @abc.abstractmethod
    def _num_replicas_in_sync(self) -> int:
        raise _not_implemented_error()

    @abc.abstractmethod
    def _call_for_each_replica(self, fn: Fn, args: Args, kwargs: Kwargs) -> object:
        raise _not_implemented_error()

    @abc.abstractmethod
    def _reduce_to(
        self, op: ReduceOp, value: object, destinations: object, options: Communication
    ) -> Any:
        raise _not_implemented_error()

    def _reduce(self, op: options.ReduceOp, value: object) -> Any:
        where = self._reduced_at or self.worker_devices[0]
        return self._reduce_to(op, value, where, None)

    def _batch_reduce_to(
        self,
        op: options.ReduceOp,
        pairs: Sequence[tuple[object, Destinations]],
        options: Communication,
    ) -> list[Any]:
        return [self._reduce_to(op, v, d, options) for v, d in pairs]

    @abc.abstractmethod
    def _broadcast_to(self, tensor: object, destinations: Destinations) -> object:
        raise _not_implemented_error()

    @abc.abstractmethod
    def _gather(self, value: object, axis: int) -> object:
        raise _not_implemented_error()

    @abc.abstractmethod
    def _update(
        self, var: Variable, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        raise _not_implemented_error()

    def _update_together(
        self, var: Variable, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        """Does `_update` when all replicas have called it at the same time."""
        return self._update(var, fn, args, kwargs, group)

    @abc.abstractmethod
    def _update_non_slot(
        self, colocate_with: object, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        raise _not_implemented_error()

    def _local_results(self, value: object) -> tuple[object, ...]:
        if self._copies is None:
            return (value,)
        if self._keep_local is not None:
            value = nest.map_structure(self._keep_local, value)
        if isinstance(value, distributed.DistributedValues):
            return tuple(value.values)
        if not nest.is_nested(value):
            return (value,)
        # `x.values` of a stacked array makes its parts, so it is asked for once.
        per_leaf = {
            id(x): x.values
            for x in nest.leaves(value)
            if isinstance(x, distributed.DistributedValues)
        }

        def take_part(index: int) -> object:
            return nest.map_structure(
                lambda x: per_leaf[id(x)][index] if id(x) in per_leaf else x, value
            )

        return tuple(take_part(i) for i in range(self._copies))

    @abc.abstractmethod
    def _values_from_function(
        self, value_fn: Callable[[function_contexts.ValueContext], object]
    ) -> object:
        raise _not_implemented_error()

    @abc.abstractmethod
    def _distribute_dataset(
        self, dataset: object, options: InputOptions | None
    ) -> DistributedDataset:
        raise _not_implemented_error()

    @abc.abstractmethod
    def _distribute_from_function(
        self,
        dataset_fn: Callable[[InputContext], object],
        options: InputOptions | None,
    ) -> DistributedDataset:
        raise _not_implemented_error()

    def _copy_for(self, container: Strategy) -> StrategyExtended:
        """Returns a copy that belongs to another strategy."""
        made: StrategyExtended = copy.copy(self)
        made._container_ref = weakref.ref(container)
        if self._placement is not None:
            moved = dataclasses.replace(self._placement, strategy=container)
            made._placement = moved
        return made

    def _get_local_replica_id(self, replica_id: int) -> int:
        if self._placement is None:
            return replica_id
        return self._placement.topology.position(replica_id)

    # Data.

    def experimental_make_numpy_dataset(
        self, numpy_input: object, session: object = None
    ) -> pipelines.dataset.Dataset:
        """Creates a dataset of the rows of arrays, to be batched and distributed.

        Args:
            numpy_input: nested arrays with a common first axis.
            session: accepted, no effect.

        Returns:
            A `unisono.data.Dataset` with one element for each row.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = strategy.extended.experimental_make_numpy_dataset([1, 2, 3])
        >>> [int(x) for x in dataset]
        [1, 2, 3]
        """
        return pipelines.dataset.Dataset.from_tensor_slices(numpy_input)

    # Properties.

    @property
    @abc.abstractmethod
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds its own program.

        >>> import unisono
        >>> unisono.distribute.get_strategy().extended.experimental_between_graph
        False
        """
        raise _not_implemented_error()

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes must be known when a program is compiled.

        It is True only for `TPUStrategy`, as in TensorFlow. Under every strategy, JAX
        compiles one program for each shape.

        >>> import unisono
        >>> unisono.distribute.TPUStrategy().extended.experimental_require_static_shapes
        True
        """
        return self._has_static_shapes

    @property
    @abc.abstractmethod
    def experimental_should_init(self) -> bool:
        """Whether this process initialises variables.

        >>> import unisono
        >>> unisono.distribute.get_strategy().extended.experimental_should_init
        True
        """
        raise _not_implemented_error()

    @property
    @abc.abstractmethod
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints.

        >>> import unisono
        >>> unisono.distribute.get_strategy().extended.should_checkpoint
        True
        """
        raise _not_implemented_error()

    @property
    @abc.abstractmethod
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries.

        >>> import unisono
        >>> unisono.distribute.get_strategy().extended.should_save_summary
        True
        """
        raise _not_implemented_error()

    @property
    @abc.abstractmethod
    def worker_devices(self) -> Sequence[str]:
        """The names of the devices of this process that compute, one per replica.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> [name[-5:] for name in strategy.extended.worker_devices]
        ['CPU:0', 'CPU:1']
        """
        raise _not_implemented_error()

    @property
    @abc.abstractmethod
    def parameter_devices(self) -> Sequence[str]:
        """The names of the devices of this process that store variables.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> [name[-5:] for name in strategy.extended.parameter_devices]
        ['CPU:0', 'CPU:1']
        """
        raise _not_implemented_error()

    # Values and variables.

    @abc.abstractmethod
    def value_container(self, value: object) -> Any:
        """Returns the variable that a copy belongs to, and other values unchanged.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        >>> copy = strategy.experimental_local_results(weight)[1]
        >>> strategy.extended.value_container(copy) is weight
        True
        """
        raise _not_implemented_error()

    @abc.abstractmethod
    def read_var(self, v: Variable) -> jax.Array:
        """Returns the value of a variable of this strategy.

        Args:
            v: the variable. The copies of one with ON_READ synchronization are
                aggregated.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(2.5)
        >>> float(strategy.extended.read_var(weight))
        2.5
        """
        raise _not_implemented_error()

    @abc.abstractmethod
    def non_slot_devices(self, var_list: Sequence[Variable]) -> NonSlotDevices:
        """Returns the devices for state that does not belong to a single variable.

        Args:
            var_list: the variables that an optimizer updates.

        Returns:
            A value for `update_non_slot` and `colocate_vars_with`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> len(strategy.extended.non_slot_devices([]))
        2
        """
        raise _not_implemented_error()

    def variable_created_in_scope(self, v: object) -> bool:
        """Returns whether the variable `v` was created in this strategy's scope.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> outside = unisono.Variable(1.0)
        >>> with strategy.scope():
        ...     inside = unisono.Variable(1.0)
        >>> [strategy.extended.variable_created_in_scope(v) for v in (inside, outside)]
        [True, False]
        """
        strategy = self._container_strategy()
        owner = None if call_context.is_default(strategy) else strategy
        return getattr(v, "distribute_strategy", self) is owner

    def colocate_vars_with(
        self, colocate_with_variable: NonSlotDevices
    ) -> contextlib.AbstractContextManager[object]:
        """Returns a context manager that creates variables on the devices of another.

        Args:
            colocate_with_variable: a variable of this scope, or the result of
                `non_slot_devices`.

        Raises:
            RuntimeError: called outside this strategy's scope.
            ValueError: the argument is not a variable of this scope.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        ...     with strategy.extended.colocate_vars_with(weight):
        ...         momentum = unisono.Variable(0.0)
        >>> momentum.device == weight.device
        True
        """
        strategy = self._container_strategy()
        is_here = ambient.current().strategy is strategy
        is_default = call_context.is_default(strategy)
        if not is_here and not is_default:
            raise RuntimeError(
                f'Need to be inside "with strategy.scope()" for {strategy!r}'
            )
        target = colocate_with_variable
        is_devices = isinstance(target, tuple) and not is_default
        # TensorFlow's documentation allows it, though its `MirroredStrategy` raises.
        if is_devices and target == self.non_slot_devices([]):
            return ambient.push(colocate=target)
        if not self.variable_created_in_scope(target):
            raise ValueError(
                "`colocate_vars_with` must only be passed a variable created in this "
                f"tf.distribute.Strategy.scope(), not: {target!r}"
            )
        return ambient.push(colocate=target)

    # Communication.

    def reduce_to(
        self,
        reduce_op: options.ReduceOp | options.VariableAggregation | str,
        value: object,
        destinations: Destinations,
        options: options.CommunicationOptions | None = None,
    ) -> Any:
        """Combines a per-replica value and puts the result on the destinations.

        Args:
            reduce_op: `ReduceOp`, its name, or a `VariableAggregation`.
            value: a per-replica value, or structure of them.
            destinations: a device name, an array or a plain variable (the result is an
                array on that device); or a per-replica value, mirrored value or
                distributed variable (the result is mirrored on its devices).
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            An array on one device, or a mirrored value, for each leaf of `value`.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            AssertionError: `destinations` is a list or tuple.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> value = strategy.run(lambda: jax.numpy.float32(3))
        >>> total = strategy.extended.reduce_to("SUM", value, destinations="CPU:0")
        >>> float(total)
        6.0
        """
        call_context.require_cross_replica(self._container_strategy())
        op = _parse_op(reduce_op)
        return self._reduce_to(op, value, destinations, options)

    def batch_reduce_to(
        self,
        reduce_op: options.ReduceOp | options.VariableAggregation | str,
        value_destination_pairs: Sequence[tuple[object, Destinations]],
        options: options.CommunicationOptions | None = None,
    ) -> list[Any]:
        """Combines several per-replica values, each as `reduce_to` does.

        Args:
            reduce_op: `ReduceOp`, its name, or a `VariableAggregation`.
            value_destination_pairs: pairs of arguments `value` and `destinations` of
                `reduce_to`.
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            A list with the result of each pair, in their order.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> value = strategy.run(lambda: jax.numpy.float32(3))
        >>> pairs = [(value, "CPU:0"), (value, "CPU:1")]
        >>> [float(x) for x in strategy.extended.batch_reduce_to("MEAN", pairs)]
        [3.0, 3.0]
        """
        call_context.require_cross_replica(self._container_strategy())
        op = _parse_op(reduce_op)
        return self._batch_reduce_to(op, list(value_destination_pairs), options)

    def broadcast_to(self, tensor: object, destinations: Destinations) -> Any:
        """Copies one value to the devices of `destinations`.

        Args:
            tensor: an array or a plain variable.
            destinations: as for `reduce_to`.

        Returns:
            An array on one device, or a mirrored value.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            AssertionError: `destinations` is None or a list.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        >>> copies = strategy.extended.broadcast_to(jax.numpy.arange(2), weight)
        >>> [x.tolist() for x in strategy.experimental_local_results(copies)]
        [[0, 1], [0, 1]]
        """
        call_context.require_cross_replica(self._container_strategy())
        if destinations is None or isinstance(destinations, list):
            raise AssertionError(
                "destinations must be a device name, a value or a variable, received "
                f"{destinations!r}."
            )
        return self._broadcast_to(tensor, destinations)

    def call_for_each_replica(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Calls `fn` once per replica, as `Strategy.run` does.

        Args:
            fn: the function to call in replica context. A `unisono.function` is
                compiled for all replicas together.
            args: a list or tuple of positional arguments.
            kwargs: keyword arguments.

        Returns:
            The merged results of the replicas; see `Strategy.run`.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            ValueError: `args` is not a list or tuple.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     strategy.extended.call_for_each_replica(lambda x: x + 1, args=(1,))
        2
        """
        strategy = self._container_strategy()
        if function.is_function(fn):
            return strategy.run(fn, args, kwargs)
        call_context.require_cross_replica(strategy)
        call_context.check_args(args)
        return self._call_for_each_replica(fn, tuple(args), dict(kwargs or {}))

    # Updates.

    def update(
        self,
        var: Variable,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn` with each copy of `var` to change it.

        Args:
            var: a variable of this strategy.
            fn: the function to call as ``fn(copy, *args, **kwargs)``, once per copy.
            args: positional arguments. A copy gets its own part of a mirrored value,
                and other values as they are.
            kwargs: keyword arguments, passed in the same way.
            group: True returns one mirrored result; False returns a tuple for each
                leaf, with one entry per copy.

        Returns:
            The results of `fn`. If `group` is True, results that are not arrays are
            replaced by None.

        Raises:
            RuntimeError: called in another strategy's scope.
            AssertionError: `var` is not a variable of this strategy.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        >>> _ = strategy.extended.update(weight, lambda v, x: v.assign_add(x), (2.0,))
        >>> [float(v.numpy()) for v in strategy.experimental_local_results(weight)]
        [3.0, 3.0]
        """
        strategy = self._container_strategy()
        kwargs = dict(kwargs or {})
        frame = ambient.current()
        in_replica = frame.mode == ambient.REPLICA and frame.replica is not None
        if in_replica and frame.strategy is strategy:
            # The replicas meet here, so that one call updates all copies.
            return contexts.merge_replicas(
                lambda _, *a, **k: self._update_together(var, fn, a, k, group),
                args,
                kwargs,
            )
        call_context.require_cross_replica(strategy)
        with call_context.scope_of(strategy):
            return self._update(var, fn, tuple(args), kwargs, group)

    def update_non_slot(
        self,
        colocate_with: NonSlotDevices,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        group: bool = True,
    ) -> Any:
        """Calls `fn` once for each device of `colocate_with`.

        Args:
            colocate_with: the result of `non_slot_devices`.
            fn: the function to call as ``fn(*args, **kwargs)``.
            args: positional arguments, passed as in `update`.
            kwargs: keyword arguments, passed in the same way.
            group: as for `update`.

        Returns:
            The results of `fn`, as `update` returns them.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            AssertionError: `colocate_with` is something else.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> where = strategy.extended.non_slot_devices([])
        >>> made = strategy.extended.update_non_slot(where, jax.numpy.zeros, args=(2,))
        >>> [x.tolist() for x in strategy.experimental_local_results(made)]
        [[0.0, 0.0], [0.0, 0.0]]
        """
        strategy = self._container_strategy()
        call_context.require_cross_replica(strategy)
        with call_context.scope_of(strategy):
            return self._update_non_slot(
                colocate_with, fn, tuple(args), dict(kwargs or {}), group
            )

    def experimental_run_steps_on_iterator(
        self,
        fn: Callable[[function_contexts.MultiStepContext, Any], object],
        iterator: Iterator[object],
        iterations: int = 1,
        initial_loop_values: Mapping[str, object] | None = None,
    ) -> function_contexts.MultiStepContext:
        """Calls ``fn(context, inputs)`` for the next `iterations` inputs.

        Args:
            fn: the step; it runs in cross-replica context.
            iterator: the iterator over the inputs.
            iterations: the number of steps to run.
            initial_loop_values: the outputs before the first step, by name.

        Returns:
            The `MultiStepContext` with the outputs that the steps have set.

        Raises:
            ValueError: `iterations` is less than 1.
            IndexError: the iterator ended too early.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def step(context, x):
        ...     context.set_last_step_output("double", 2 * x)
        >>> steps = strategy.extended.experimental_run_steps_on_iterator
        >>> steps(step, iter([1, 2, 3]), iterations=2).last_step_outputs
        {'double': 4}
        """
        strategy = self._container_strategy()
        call_context.require_cross_replica(strategy)
        with call_context.scope_of(strategy):
            return function_contexts.run_steps(
                fn, iterator, iterations, initial_loop_values
            )


# `options` is the name of a parameter above, so the function has a name of its own.
_parse_op = options.reduce_op
