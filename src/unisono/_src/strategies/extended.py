"""`StrategyExtended`: the lower-level methods of a strategy, checked and documented.

A strategy is made by subclassing this class and implementing the methods whose names
start with an underscore; the container class only builds it.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

from unisono._src import input as pipelines
from unisono._src.foundation import ambient, errors, nest, options
from unisono._src.foundation.public_names import publish
from unisono._src.state.variables import Variable
from unisono._src.strategies import multistep
from unisono._src.values import distributed


def require_cross_replica(strategy: Any, method: str | None = None) -> None:
    """Raise unless in cross-replica context of `strategy`, or outside any."""
    frame = ambient.current()
    owner = None if strategy._is_default else strategy
    if frame.strategy is None or frame.strategy is owner:
        if frame.strategy is None or frame.mode != ambient.REPLICA:
            return
        raise RuntimeError(method or errors.CROSS_REPLICA_REQUIRED)
    raise errors.mixing(frame.strategy, strategy)


GATHER_IN_REPLICA = (
    "tf.distribute.Strategy.gather method requires cross-replica context, use "
    "get_replica_context().all_gather() instead"
)


def _abstract() -> NotImplementedError:
    return NotImplementedError("must be implemented in descendants")


class StrategyExtended:
    """Algorithms that are written once for all strategies; see each method.

    A strategy of one's own implements as many of the abstract methods as it uses;
    the others raise when they are called. So this is no `abc.ABC`, which would ask
    for all of them.

    Args:
        container_strategy: the `Strategy` that this object belongs to.

    Attributes:
        _placement: where variables made in scope go; None leaves them as they are.
        _reduced_at: where `reduce` leaves its result; None is the first device.
        _copies: how many replicas of this process can have values of their own; None
            if a value is never wrapped.
        _has_static_shapes: whether it is a TPU's strategy, which TensorFlow gives
            programs of fixed shapes.
    """

    _placement: Any = None
    _reduced_at: Any = None
    _copies: int | None = None
    _has_static_shapes = False

    def __init__(self, container_strategy: Any) -> None:
        self._container_ref = weakref.ref(container_strategy)
        self._default_options = options.CommunicationOptions()

    def _container_strategy(self) -> Any:
        container = self._container_ref()
        if container is None:
            raise RuntimeError(
                "The Strategy that owns this object is gone; keep a reference to it."
            )
        return container

    # What an implementation gives.

    @property
    @abc.abstractmethod
    def _num_replicas_in_sync(self) -> int:
        raise _abstract()

    @abc.abstractmethod
    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        raise _abstract()

    @abc.abstractmethod
    def _reduce_to(self, op: Any, value: Any, destinations: Any, options: Any) -> Any:
        raise _abstract()

    def _reduce(self, op: options.ReduceOp, value: Any) -> Any:
        where = self._reduced_at or self.worker_devices[0]
        return self._reduce_to(op, value, where, None)

    def _batch_reduce_to(self, op: Any, pairs: Any, options: Any) -> list[Any]:
        return [self._reduce_to(op, v, d, options) for v, d in pairs]

    @abc.abstractmethod
    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        raise _abstract()

    @abc.abstractmethod
    def _gather(self, value: Any, axis: int) -> Any:
        raise _abstract()

    @abc.abstractmethod
    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        raise _abstract()

    def _update_together(
        self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        """`_update` that all replicas have called at the same time."""
        return self._update(var, fn, args, kwargs, group)

    @abc.abstractmethod
    def _update_non_slot(
        self, colocate_with: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        raise _abstract()

    def _local_results(self, value: Any) -> tuple[Any, ...]:
        if self._copies is None:
            return (value,)
        if isinstance(value, distributed.DistributedValues):
            return tuple(value.values)
        if not nest.is_nested(value):
            return (value,)
        per_leaf = {
            id(x): x.values
            for x in nest.leaves(value)
            if isinstance(x, distributed.DistributedValues)
        }

        def of_replica(index: int) -> Any:
            return nest.map_structure(
                lambda x: per_leaf[id(x)][index] if id(x) in per_leaf else x, value
            )

        return tuple(of_replica(i) for i in range(self._copies))

    @abc.abstractmethod
    def _values_from_function(self, value_fn: Callable[[Any], Any]) -> Any:
        raise _abstract()

    @abc.abstractmethod
    def _distribute_dataset(self, dataset: Any, options: Any) -> Any:
        raise _abstract()

    @abc.abstractmethod
    def _distribute_from_function(self, dataset_fn: Any, options: Any) -> Any:
        raise _abstract()

    def _rebind(self, container: Any) -> None:
        """Belong to another container from now on, for `copy.deepcopy`."""
        self._container_ref = weakref.ref(container)
        if self._placement is not None:
            moved = dataclasses.replace(self._placement, strategy=container)
            self._placement = moved

    def _get_local_replica_id(self, replica_id: int) -> int:
        if self._placement is None:
            return replica_id
        position: int = self._placement.topology.position(replica_id)
        return position

    # Data.

    def experimental_make_numpy_dataset(
        self, numpy_input: Any, session: object = None
    ) -> pipelines.dataset.Dataset:
        """A dataset of the rows of arrays, to be batched and distributed.

        Args:
            numpy_input: nested arrays with a common first axis.
            session: accepted for TensorFlow's sake.
        """
        return pipelines.dataset.Dataset.from_tensor_slices(numpy_input)

    # Properties.

    @property
    @abc.abstractmethod
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds a program of its own."""
        raise _abstract()

    @property
    def experimental_require_static_shapes(self) -> bool:
        """Whether shapes must be known when a program is compiled.

        They always are here, whatever this says: another shape is another program.
        """
        return self._has_static_shapes

    @property
    @abc.abstractmethod
    def experimental_should_init(self) -> bool:
        """Whether this process initialises variables."""
        raise _abstract()

    @property
    @abc.abstractmethod
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints."""
        raise _abstract()

    @property
    @abc.abstractmethod
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries."""
        raise _abstract()

    @property
    @abc.abstractmethod
    def worker_devices(self) -> Sequence[str]:
        """The devices that compute, one per replica."""
        raise _abstract()

    @property
    @abc.abstractmethod
    def parameter_devices(self) -> Sequence[str]:
        """The devices that hold variables."""
        raise _abstract()

    # Values and variables.

    @abc.abstractmethod
    def value_container(self, value: Any) -> Any:
        """The variable that a component belongs to; other values themselves."""
        raise _abstract()

    @abc.abstractmethod
    def read_var(self, v: Variable) -> jax.Array:
        """The value of a variable of this strategy, aggregated if it is ON_READ."""
        raise _abstract()

    @abc.abstractmethod
    def non_slot_devices(self, var_list: Sequence[Any]) -> Any:
        """Where state that belongs to no single variable should go."""
        raise _abstract()

    def variable_created_in_scope(self, v: object) -> bool:
        """Whether `v` was made in this strategy's scope."""
        strategy = self._container_strategy()
        owner = None if strategy._is_default else strategy
        return getattr(v, "distribute_strategy", self) is owner

    def colocate_vars_with(
        self, colocate_with_variable: Any
    ) -> contextlib.AbstractContextManager[object]:
        """Context manager: variables made in it share the devices of another.

        Raises:
            RuntimeError: not in this strategy's scope.
            ValueError: not a variable of this scope.
        """
        strategy = self._container_strategy()
        is_here = ambient.current().strategy is strategy
        if not is_here and not strategy._is_default:
            raise RuntimeError(
                f'Need to be inside "with strategy.scope()" for {strategy!r}'
            )
        target = colocate_with_variable
        is_devices = isinstance(target, tuple) and not strategy._is_default
        if is_devices and target == self.non_slot_devices([]):
            return ambient.pushed(colocate=target)
        if not self.variable_created_in_scope(target):
            raise ValueError(
                "`colocate_vars_with` must only be passed a variable created in this "
                f"tf.distribute.Strategy.scope(), not: {target!r}"
            )
        return ambient.pushed(colocate=target)

    # Communication.

    def reduce_to(
        self,
        reduce_op: options.ReduceOp | options.VariableAggregation | str,
        value: Any,
        destinations: Any,
        options: options.CommunicationOptions | None = None,
    ) -> Any:
        """Combine a per-replica value and leave the result where asked.

        Args:
            reduce_op: `ReduceOp`, its name, or a `VariableAggregation`.
            value: a per-replica value, or structure of them.
            destinations: a device name, a tensor or plain variable (the result is a
                tensor there), or a per-replica value, mirrored value or distributed
                variable (the result is mirrored on its devices).
            options: `CommunicationOptions`; no field changes the result.
        """
        require_cross_replica(self._container_strategy())
        op = _op(reduce_op)
        return self._reduce_to(op, value, destinations, options)

    def batch_reduce_to(
        self,
        reduce_op: options.ReduceOp | options.VariableAggregation | str,
        value_destination_pairs: Sequence[tuple[Any, Any]],
        options: options.CommunicationOptions | None = None,
    ) -> list[Any]:
        """`reduce_to` for a list of (value, destinations) pairs."""
        require_cross_replica(self._container_strategy())
        op = _op(reduce_op)
        return self._batch_reduce_to(op, value_destination_pairs, options)

    def broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """Copy one value to the devices of `destinations`."""
        require_cross_replica(self._container_strategy())
        if destinations is None or isinstance(destinations, list):
            raise AssertionError(
                "destinations must be a device name, a value or a variable, received "
                f"{destinations!r}."
            )
        return self._broadcast_to(tensor, destinations)

    def call_for_each_replica(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call `fn` once per replica; the same as `Strategy.run`."""
        require_cross_replica(self._container_strategy())
        check_args(args)
        return self._call_for_each_replica(fn, tuple(args), dict(kwargs or {}))

    # Updates.

    def update(
        self,
        var: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call `fn` with each copy of `var` to change it.

        Args:
            var: a variable of this strategy.
            fn: called as ``fn(copy, *args, **kwargs)`` once per copy.
            args: mirrored values are passed copy by copy, others as they are.
            kwargs: likewise.
            group: True gives one mirrored result, False a tuple per leaf with one
                entry per copy.
        """
        strategy = self._container_strategy()
        kwargs = dict(kwargs or {})
        frame = ambient.current()
        in_replica = frame.mode == ambient.REPLICA and frame.replica is not None
        if in_replica and frame.strategy is strategy:
            return frame.replica._merge_call(
                lambda _, *a, **k: self._update_together(var, fn, a, k, group),
                args,
                kwargs,
            )
        require_cross_replica(strategy)
        with scope_of(strategy):
            return self._update(var, fn, tuple(args), kwargs, group)

    def update_non_slot(
        self,
        colocate_with: Any,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        group: bool = True,
    ) -> Any:
        """Call `fn` once per device of `colocate_with`; see `non_slot_devices`."""
        strategy = self._container_strategy()
        require_cross_replica(strategy)
        with scope_of(strategy):
            return self._update_non_slot(
                colocate_with, fn, tuple(args), dict(kwargs or {}), group
            )

    def experimental_run_steps_on_iterator(
        self,
        fn: Callable[..., Any],
        iterator: Any,
        iterations: int = 1,
        initial_loop_values: dict[str, Any] | None = None,
    ) -> multistep.MultiStepContext:
        """Call ``fn(context, inputs)`` for the next `iterations` inputs.

        Args:
            fn: the step, in cross-replica context.
            iterator: gives the inputs.
            iterations: how many steps to run.
            initial_loop_values: the outputs before the first step.

        Returns:
            The `MultiStepContext` with what the steps have set.
        """
        strategy = self._container_strategy()
        require_cross_replica(strategy)
        with scope_of(strategy):
            return multistep.run_steps(fn, iterator, iterations, initial_loop_values)


_op = options.reduce_op


def check_args(args: Any) -> None:
    """Raise unless positional arguments come as a list or tuple."""
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"positional args must be a list or tuple, got {type(args)}; write "
            "args=(value,) for a single argument."
        )


@contextlib.contextmanager
def scope_of(strategy: Any) -> Iterator[None]:
    """Be in cross-replica context of `strategy` for a block, if not yet there."""
    frame = ambient.current()
    if strategy._is_default or frame.strategy is strategy:
        yield
        return
    extended = strategy._extended
    with ambient.pushed(
        strategy=strategy,
        mode=ambient.CROSS,
        replica=None,
        port=None,
        copy=None,
        placement=extended._placement,
        outer_creators=len(frame.creators),
        creators=(*frame.creators, *custom_creators(extended)),
    ):
        yield


def custom_creators(extended: StrategyExtended) -> tuple[Any, ...]:
    """The `_create_variable` of a user's own strategy, if it has one."""
    create = getattr(extended, "_create_variable", None)
    return () if create is None else (create,)


def single_result(result: Any, group: bool) -> Any:
    """What an update of one copy gives back."""
    if group:
        return distributed.regroup([result])
    return nest.map_structure(lambda x: (x,), distributed.regroup([result]))


publish("unisono.distribute", StrategyExtended)
