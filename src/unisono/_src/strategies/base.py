"""`Strategy`: the class that a program calls; its `extended` does the work."""

# As in TensorFlow, what an implementation of a strategy gives are methods of its
# `extended` whose names start with an underscore, and the strategy calls them.
# ruff: noqa: SLF001

from __future__ import annotations

import contextlib
import copy
import functools
import html
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    NoReturn,
    Self,
    SupportsIndex,
    TypeVar,
    overload,
)

import jax
import jax.numpy as jnp

from unisono._src import input as pipelines
from unisono._src.execution import function
from unisono._src.foundation import (
    ambient,
    host_numbers,
    library_hooks,
    nest,
    options,
    process_bound,
)
from unisono._src.machines import forks
from unisono._src.state import description
from unisono._src.state.variables import Variable
from unisono._src.strategies import call_context, extended as extended_lib
from unisono._src.strategies.call_context import Args, Fn, Kwargs
from unisono._src.strategies.function_contexts import ValueContext
from unisono._src.values import collectives
from unisono._src.values.distributed import DistributedValues, PerReplica
from unisono._src.values.indexed_slices import IndexedSlices
from unisono._src.workers import worker_notes

if TYPE_CHECKING:
    # Named in signatures only: the input modules are loaded when a program reads data.
    from unisono._src.cluster.resolvers.base import ClusterResolver
    from unisono._src.input.api.dataset import Dataset
    from unisono._src.input.api.distributed_dataset import DistributedDataset
    from unisono._src.input.api.input_iterator import InputIterator
    from unisono._src.input.distribution.input_options import (
        InputContext,
        InputOptions,
        InputReplicationMode,
    )

_Object = TypeVar("_Object")

_GATHER_IN_REPLICA = (
    "tf.distribute.Strategy.gather method requires cross-replica context, use "
    "get_replica_context().all_gather() instead"
)


class Strategy:
    """A policy that places state and computation on a list of devices.

    Create variables in `scope`, call `run` once per step, and `reduce` what the
    replicas return. A subclass only creates a `StrategyExtended`.

    Args:
        extended: the object that does the work.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> with strategy.scope():
    ...     weight = unisono.Variable(2.0)
    >>> losses = strategy.run(lambda: weight * 3.0)
    >>> float(strategy.reduce("SUM", losses, axis=None))
    12.0
    """

    _resolver: ClusterResolver | None = None

    def __init__(self, extended: extended_lib.StrategyExtended) -> None:
        self._extended = extended

    @property
    def extended(self) -> extended_lib.StrategyExtended:
        """The object with the lower-level methods of this strategy.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> len(strategy.extended.worker_devices)
        2
        """
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas that compute together, over all workers.

        Multiply a per-replica batch size by it to get the global batch size.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> 32 * strategy.num_replicas_in_sync
        64
        """
        return self._extended._num_replicas_in_sync

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver of a multi-worker or TPU strategy; None for all others.

        >>> import unisono
        >>> strategy = unisono.distribute.MultiWorkerMirroredStrategy()
        >>> type(strategy.cluster_resolver).__name__
        'TFConfigClusterResolver'
        """
        return self._resolver

    def scope(self) -> contextlib.AbstractContextManager[Self]:
        """Returns a context manager that makes this strategy current.

        The strategy places the variables that you create in the block. The scope does
        not distribute computation: `run` does.

        Returns:
            A context manager whose value is this strategy.

        Raises:
            RuntimeError: on entering, if another strategy's scope or a replica context
                is open.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        >>> strategy.extended.variable_created_in_scope(weight)
        True
        >>> len(strategy.experimental_local_results(weight))
        2
        """
        return call_context.StrategyScope(self)

    def run(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        options: options.RunOptions | None = None,
    ) -> Any:
        """Calls `fn` once per replica and merges the results.

        Args:
            fn: the function to call in replica context. A `unisono.function` is
                compiled for all replicas together.
            args: a list or tuple of positional arguments. Each replica gets its own
                part of a per-replica value, and other values as they are.
            kwargs: keyword arguments, passed in the same way.
            options: `RunOptions`; only `TPUStrategy` looks at them.

        Returns:
            The structure that `fn` returned. Each leaf is one object if all replicas
            returned the same one, otherwise a `PerReplica`.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            ValueError: `args` is not a list or tuple.

        >>> import numpy as np
        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = [np.array([1.0, 2.0, 3.0, 4.0])]
        >>> batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
        >>> sums = strategy.run(jnp.sum, args=(batch,))
        >>> [float(x) for x in strategy.experimental_local_results(sums)]
        [3.0, 7.0]
        """
        call_context.require_cross_replica(self)
        call_context.check_args(args)
        kwargs = dict(kwargs or {})
        if options is not None and self._extended.experimental_require_static_shapes:
            call_context.check_run_options(options, (args, kwargs))
        host = ambient.current().host
        if host is not None or isinstance(fn, function.COMPILED):
            compiled = (
                None if function.is_compiling() else function.find_compiled(fn, host)
            )
            if compiled is not None:
                return compiled.for_strategy(self)(*args, **kwargs)
            # An outer program is being compiled already: `fn` becomes a part of it.
            if not function.is_compiling():
                fn = function.python_function(fn)
        return self._run(fn, tuple(args), kwargs)

    def _run(self, fn: Fn, args: Args, kwargs: Kwargs) -> Any:
        """Calls `fn` for each replica, without the checks of `run`."""
        call = self._extended._call_for_each_replica
        with call_context.scope_of(self):
            # Without Keras or Flax in the process there is nothing to enter.
            if sys.modules.keys().isdisjoint(library_hooks.known):
                return call(fn, args, kwargs)
            with library_hooks.enter_scopes():
                return call(fn, args, kwargs)

    def experimental_run_v2(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Calls `run`; this is its old name.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> strategy.experimental_run_v2(lambda x: x + 1, args=(1,))
        2
        """
        return self.run(fn, args, kwargs)

    @overload
    def reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: DistributedValues | Variable | jax.Array,
        axis: int | Sequence[int] | None,
    ) -> jax.Array: ...

    @overload
    def reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: list[Any],
        axis: int | Sequence[int] | None,
    ) -> list[Any]: ...

    @overload
    def reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: object,
        axis: int | Sequence[int] | None,
    ) -> Any: ...

    def reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: object,
        axis: int | Sequence[int] | None,
    ) -> object:
        """Combines a per-replica value into one.

        Args:
            reduce_op: a `ReduceOp` or its name, ``"SUM"`` or ``"MEAN"``.
            value: a result of `run`, or a variable.
            axis: None combines element by element across replicas. An axis, or a tuple
                of them, is reduced within each replica first; MEAN then divides by
                the number of elements of all replicas, which is correct for uneven
                batches.

        Returns:
            One array for each leaf of `value`.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            ValueError: `reduce_op` is unknown, or it is SUM and `value` is not
                distributed.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> rows = strategy.experimental_distribute_values_from_function(
        ...     lambda context: jnp.arange(3.0)[: 1 + context.replica_id_in_sync_group]
        ... )
        >>> float(strategy.reduce("MEAN", rows, axis=0))  # of 0, and 0 and 1
        0.3333333432674408
        >>> scalars = strategy.run(jnp.sum, args=(rows,))
        >>> float(strategy.reduce("SUM", scalars, axis=None))
        1.0
        """
        call_context.require_cross_replica(self)
        op = _parse_op(reduce_op)
        with call_context.scope_of(self):
            if axis is None:
                return self._extended._reduce(op, value)
            return self._reduce_axis(op, value, axis)

    def _reduce_axis(
        self, op: options.ReduceOp, value: object, axis: int | Sequence[int]
    ) -> jax.Array:
        """Reduces `axis` within each replica, then the results over the replicas."""
        local = functools.partial(collectives.sum_and_count, op, axis)
        # Counted on each replica, because their parts may have different lengths.
        total, count = self._run(local, (value,), {})
        reduce = self._extended._reduce
        summed: jax.Array = reduce(options.ReduceOp.SUM, total)
        if op is options.ReduceOp.SUM:
            return summed
        mean: jax.Array = summed / reduce(options.ReduceOp.SUM, count)
        # The mean of floats keeps their type; that of integers is a float.
        is_float = jnp.issubdtype(summed.dtype, jnp.inexact)
        return mean.astype(summed.dtype) if is_float else mean

    @overload
    def gather(
        self, value: DistributedValues | Variable | jax.Array, axis: int
    ) -> jax.Array: ...

    @overload
    def gather(self, value: list[Any], axis: int) -> list[Any]: ...

    @overload
    def gather(self, value: object, axis: int) -> Any: ...

    def gather(self, value: object, axis: int) -> object:
        """Concatenates a per-replica value along an axis, in replica order.

        Args:
            value: a result of `run`, a variable, or a structure of them.
            axis: the axis to concatenate along. The parts of the replicas may differ
                in size along this axis only.

        Returns:
            One array for each leaf of `value`.

        Raises:
            RuntimeError: called in replica context, or in another strategy's scope.
            ValueError: the parts do not fit together.
            NotImplementedError: `value` contains `IndexedSlices`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> rows = strategy.experimental_distribute_values_from_function(
        ...     lambda context: jnp.full(2, context.replica_id_in_sync_group)
        ... )
        >>> strategy.gather(rows, axis=0).tolist()
        [0, 0, 1, 1]
        """
        call_context.require_cross_replica(self, _GATHER_IN_REPLICA)
        if any(map(_has_slices, nest.leaves(value))):
            raise NotImplementedError(
                "gather does not support IndexedSlices; reduce them, which "
                "concatenates, or gather their `to_dense()`."
            )
        with call_context.scope_of(self):
            return self._extended._gather(value, axis)

    def experimental_local_results(self, value: object) -> tuple[Any, ...]:
        """Returns the values of the replicas of this process.

        Args:
            value: a result of `run`, a variable, or a structure of them.

        Returns:
            A tuple with one entry for each replica of this process, or with one entry
            if `value` is not distributed. NumPy numbers in it have a method `numpy`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> ids = strategy.run(
        ...     lambda: (
        ...         unisono.distribute.get_replica_context().replica_id_in_sync_group
        ...     )
        ... )
        >>> [int(x) for x in strategy.experimental_local_results(ids)]
        [0, 1]
        >>> strategy.experimental_local_results("text")
        ('text',)
        """
        found = self._extended._local_results(value)
        return tuple(host_numbers.to_host_numbers(x) for x in found)

    def unwrap(self, value: object) -> tuple[Any, ...]:
        """Calls `experimental_local_results`; this is its old name.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> strategy.unwrap(7)
        (7,)
        """
        return self.experimental_local_results(value)

    def group(self, value: object, name: str | None = None) -> object:
        """Returns a single value unchanged; in TensorFlow it groups operations.

        Args:
            value: the result of `run` or of an assignment.
            name: the name of the group; if you pass one, the result is None.

        Returns:
            The value of the replicas of this process if there is only one value, and
            None if there are several.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> strategy.group(strategy.run(lambda: unisono.constant(1))) is None
        True
        >>> strategy.group(3)
        3
        """
        found = list(nest.leaves(self.experimental_local_results(value)))
        return found[0] if len(found) == 1 and name is None else None

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], object]
    ) -> Any:
        """Creates a per-replica value by calling a function once per replica.

        Args:
            value_fn: takes a `ValueContext` and returns the replica's value.

        Returns:
            A `PerReplica`, or a structure of them.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> value = strategy.experimental_distribute_values_from_function(
        ...     lambda context: 10 * context.replica_id_in_sync_group
        ... )
        >>> strategy.experimental_local_results(value)
        (0, 10)
        """
        return self._extended._values_from_function(value_fn)

    def experimental_distribute_dataset(
        self, dataset: object, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Splits the global batches of a dataset over the replicas.

        Args:
            dataset: a `unisono.data.Dataset`, a loader of Grain, PyTorch, Hugging Face
                or Keras, arrays, or anything that can be iterated repeatedly. Its
                elements are global batches: nested arrays with a common first axis.
            options: an `InputOptions`.

        Returns:
            A `DistributedDataset`. Each element has a consecutive part of the batch
            for every replica; the last parts of a short batch may be smaller or empty.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(4).batch(4)
        >>> batch = next(iter(strategy.experimental_distribute_dataset(dataset)))
        >>> [x.tolist() for x in strategy.experimental_local_results(batch)]
        [[0, 1], [2, 3]]
        """
        return self._extended._distribute_dataset(dataset, options)

    def distribute_dataset(
        self, dataset: object, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Calls `experimental_distribute_dataset`; this is another name for it.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(6).batch(2)
        >>> sum(1 for batch in strategy.distribute_dataset(dataset))
        3
        """
        return self.experimental_distribute_dataset(dataset, options)

    def distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[InputContext], object],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Distributes the elements of a dataset that a function creates.

        The strategy does not split or shard the dataset. The function must batch it by
        the per-replica batch size, and shard it by the fields of its `InputContext`.

        Args:
            dataset_fn: takes an `InputContext`; it is called once for each worker.
            options: an `InputOptions`; with `PER_REPLICA` the function is called once
                for each replica.

        Returns:
            A `DistributedDataset`, in which each replica in turn gets the next element.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def read(context):
        ...     size = context.get_per_replica_batch_size(global_batch_size=4)
        ...     return unisono.data.Dataset.range(8).batch(size)
        >>> batches = iter(strategy.distribute_datasets_from_function(read))
        >>> [x.tolist() for x in strategy.experimental_local_results(next(batches))]
        [[0, 1], [2, 3]]
        """
        return self._extended._distribute_from_function(dataset_fn, options)

    def experimental_distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[InputContext], object],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Calls `distribute_datasets_from_function`; this is its old name.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> batches = strategy.experimental_distribute_datasets_from_function(
        ...     lambda context: unisono.data.Dataset.range(8).batch(2)
        ... )
        >>> sum(1 for batch in batches)
        2
        """
        return self.distribute_datasets_from_function(dataset_fn, options)

    def make_dataset_iterator(self, dataset: object) -> InputIterator:
        """Returns an iterator over a dataset that is split over the replicas.

        This is TensorFlow 1's name for `experimental_distribute_dataset` and `iter`.

        Args:
            dataset: as for `experimental_distribute_dataset`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = unisono.data.Dataset.range(4).batch(4)
        >>> iterator = strategy.make_dataset_iterator(dataset)
        >>> doubled = strategy.experimental_run(lambda x: 2 * x, iterator)
        >>> [x.tolist() for x in strategy.experimental_local_results(doubled)]
        [[0, 2], [4, 6]]
        """
        made = self.experimental_distribute_dataset(dataset)
        return pipelines.input_iterator.InputIterator(made)

    def make_input_fn_iterator(
        self,
        input_fn: Callable[[InputContext], object],
        replication_mode: InputReplicationMode | None = None,
    ) -> InputIterator:
        """Returns an iterator over a function's dataset, with an element per replica.

        This is TensorFlow 1's name for `distribute_datasets_from_function` and `iter`.

        Args:
            input_fn: takes an `InputContext`; returns a dataset, or a function without
                arguments that returns the next element for a replica.
            replication_mode: PER_WORKER, which is the default.

        Raises:
            ValueError: `replication_mode` has another value, or `input_fn` returned
                something else.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> iterator = strategy.make_input_fn_iterator(
        ...     lambda context: unisono.data.Dataset.range(8).batch(2)
        ... )
        >>> step = iterator.get_next()
        >>> [x.tolist() for x in strategy.experimental_local_results(step)]
        [[0, 1], [2, 3]]
        """
        per_worker = pipelines.input_options.InputReplicationMode.PER_WORKER
        if replication_mode not in (None, per_worker):
            raise ValueError(
                "Input replication mode not supported: "
                f"{replication_mode}; make_input_fn_iterator takes PER_WORKER only."
            )
        found = pipelines.input_iterator
        made = self.distribute_datasets_from_function(
            lambda context: found.as_dataset(input_fn(context))
        )
        return found.InputIterator(made)

    def experimental_run(
        self, fn: Callable[..., object], input_iterator: InputIterator | None = None
    ) -> Any:
        """Runs `fn` on each replica with the next values of an iterator.

        This is TensorFlow 1's name for `run` and `get_next`.

        Args:
            fn: takes the values of the replica; without an iterator, no argument.
            input_iterator: an iterator that this strategy has created, or None.

        Returns:
            The result of `run`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> strategy.experimental_run(lambda: 3)
        3
        """
        args = () if input_iterator is None else (input_iterator.get_next(),)
        return self.run(fn, args=args)

    def experimental_make_numpy_dataset(
        self, numpy_input: object, session: object = None
    ) -> Dataset:
        """Creates a dataset of the rows of arrays, to be batched and distributed.

        Args:
            numpy_input: nested arrays with a common first axis.
            session: accepted, no effect.

        Returns:
            A `unisono.data.Dataset` with one element for each row.

        >>> import numpy as np
        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> dataset = strategy.experimental_make_numpy_dataset(np.arange(6))
        >>> int(dataset.batch(2).cardinality())
        3
        """
        return self._extended.experimental_make_numpy_dataset(numpy_input)

    def colocate_vars_with(
        self, colocate_with_variable: extended_lib.NonSlotDevices
    ) -> contextlib.AbstractContextManager[object]:
        """Calls `extended.colocate_vars_with`; this is TensorFlow 1's name for it.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(1.0)
        ...     with strategy.colocate_vars_with(weight):
        ...         momentum = unisono.Variable(0.0)
        >>> momentum.device == weight.device
        True
        """
        return self._extended.colocate_vars_with(colocate_with_variable)

    def configure(
        self,
        session_config: object = None,
        cluster_spec: object = None,
        task_type: str | None = None,
        task_id: int | None = None,
    ) -> None:
        """Does nothing: there are no sessions to configure.

        Args:
            session_config: a `compat.v1.ConfigProto`, which has no effect.
            cluster_spec: None, except for the default strategy. The workers are fixed
                when you create a strategy.
            task_type: accepted, no effect.
            task_id: accepted, no effect.

        Raises:
            ValueError: you pass a cluster to a strategy other than the default one.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> strategy.configure(unisono.compat.v1.ConfigProto())
        """
        if cluster_spec and not call_context.is_default(self):
            raise ValueError(
                f"{type(self).__name__}.configure was given a cluster, but the workers "
                "of a strategy are chosen when it is made. Pass a cluster_resolver to "
                "MultiWorkerMirroredStrategy or ParameterServerStrategy, or set "
                "TF_CONFIG."
            )

    def update_config_proto(self, config_proto: _Object) -> _Object:
        """Returns an unchanged copy of the settings of a session.

        Args:
            config_proto: a `compat.v1.ConfigProto`.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> config = unisono.compat.v1.ConfigProto(allow_soft_placement=True)
        >>> strategy.update_config_proto(config).allow_soft_placement
        True
        """
        return copy.deepcopy(config_proto)

    def adopt(self, obj: _Object) -> _Object:
        """Adds a Keras object that was created outside the scope to this strategy.

        Everything that it contains is added too: layers, optimizer, metrics and seeds.
        Variables stay the same objects and keep their values. You do not need it for a
        model that was created inside the scope: what it gets later is added
        automatically.

        Args:
            obj: a Keras model, layer, optimizer, metric, seed generator or variable.

        Returns:
            The same object.

        Raises:
            TypeError: `obj` is something else.
            ValueError: `obj` belongs to another strategy.
            RuntimeError: called in replica context, in another strategy's scope or
                while `fit` of `obj` runs, or Keras runs on another backend than JAX.

        For example ``strategy.adopt(keras.applications.MobileNetV3Small())``.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> try:
        ...     strategy.adopt("model.keras")
        ... except TypeError as error:
        ...     print(error)  # doctest: +ELLIPSIS
        strategy.adopt takes a Keras model, layer, optimizer or metric, received str...
        """
        call_context.check_scope(self)
        library_hooks.adopt(obj, self)
        return obj

    def barrier(self, name: str, timeout_seconds: float = 600.0) -> None:
        """Waits until every worker of this strategy has called it.

        Use it around something that one worker does for all, such as writing a file
        that the others read. All workers must call their barriers in the same order.
        With one worker it returns immediately.

        Args:
            name: a name for this point of the program, the same on all workers.
            timeout_seconds: how long to wait for the other workers.

        Raises:
            WorkerStalledError: some workers have not called it in time; the message
                names them.
            WorkerMismatchError: the workers passed different names.
            WorkerError: another worker has failed or ended.
            RuntimeError: called in replica context, or while a function is traced.

        >>> import unisono
        >>> strategy = unisono.distribute.MultiWorkerMirroredStrategy()
        >>> strategy.barrier("the model is saved")
        """
        frame = ambient.current()
        if frame.replica is not None or frame.state is not None:
            raise RuntimeError(
                f"strategy.barrier({name!r}) was called in replica context or inside a "
                "compiled function, which would meet the other workers only while it "
                "is traced. Call it between the steps."
            )
        placement = getattr(self._extended, "_placement", None)
        if placement is not None:
            worker_notes.wait_at_barrier(placement.topology, str(name), timeout_seconds)

    def describe(self, tree: object = None) -> description.Description:
        """Describes where each variable of `tree` is stored, and its size in bytes.

        Args:
            tree: a variable, a Keras model or a Flax module, or a nested structure of
                variables and arrays; None for all variables created in the strategy's
                scope.

        Returns:
            A `Description`, which prints as a table.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> with strategy.scope():
        ...     weight = unisono.Variable(jnp.zeros((4, 3)), name="weight")
        >>> "weight" in str(strategy.describe(weight))
        True
        """
        placement = getattr(self.extended, "_placement", None)
        if placement is not None and placement.plan is not None:
            placement.plan.check_rules()
        if tree is None:
            return description.describe_scope(self)
        return description.describe(tree)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{self.describe()._repr_html_()}"

    def __copy__(self) -> Self:
        raise RuntimeError(
            "Must only deepcopy DistributionStrategy. A shallow copy would share "
            "the variables' owner."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if call_context.is_default(self):
            raise RuntimeError(
                f"Should only create a single instance of {type(self).__name__}"
            )
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        # The twin owns variables of its own, so it needs an `extended` of its own.
        own = self._extended._copy_for(twin)
        twin.__dict__.update(self.__dict__, _extended=own)
        return twin

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        title = f"A {type(self).__name__}"
        instead = "Make a strategy in each process."
        raise process_bound.refusal(title, "pickled", instead)

    def __repr__(self) -> str:
        if call_context.is_default(self):
            return f"<{type(self).__name__}>"
        count = self.num_replicas_in_sync
        here = [n.rpartition("device:")[2] for n in self.extended.worker_devices]
        shown = ", ".join(here if len(here) < 5 else [here[0], "…", here[-1]])
        title = f"{type(self).__name__} of {count} replica{'s' * (count != 1)}"
        # Other workers have the rest of the replicas.
        return f"<{title}{', here' if count > len(here) else ''} on {shown}>"


def replace_extended(
    strategy: Strategy, extended: extended_lib.StrategyExtended
) -> extended_lib.StrategyExtended:
    """Has another object do the work of a strategy, and returns the one before."""
    outer, strategy._extended = strategy._extended, extended
    return outer


# `options` is the name of a parameter above, so the function has a name of its own.
_parse_op = options.reduce_op


def _has_slices(x: object) -> bool:
    """Whether a value is `IndexedSlices`, for all replicas or for each."""
    return isinstance(x, IndexedSlices) or (
        isinstance(x, PerReplica) and x.holds(IndexedSlices)
    )


forks.refuse(Strategy, "run", "reduce", "gather")
