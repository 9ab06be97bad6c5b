"""`Strategy`: what a program calls; all work is done by its `extended`."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, final, overload

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import function
from unisono._src.foundation import ambient, errors, library_hooks, options
from unisono._src.foundation.public_names import publish
from unisono._src.state import assignment, description
from unisono._src.state.variables import Variable
from unisono._src.strategies import extended as extended_lib
from unisono._src.strategies import run_options
from unisono._src.values import collectives
from unisono._src.values.distributed import DistributedValues

if TYPE_CHECKING:
    # Named in signatures only: most of it is loaded when a program reads data.
    from unisono._src.cluster.resolvers.base import ClusterResolver
    from unisono._src.input.api.dataset import Dataset
    from unisono._src.input.api.distributed_dataset import DistributedDataset
    from unisono._src.input.stages.dataset_options import InputContext, InputOptions

_Strategy = TypeVar("_Strategy", bound="Strategy")


class ValueContext:
    """Passed to the function of `experimental_distribute_values_from_function`.

    >>> str(ValueContext(1, 4))
    'tf.distribute.ValueContext(replica id 1,  total replicas in sync: 4)'
    """

    def __init__(
        self, replica_id_in_sync_group: int = 0, num_replicas_in_sync: int = 1
    ) -> None:
        self._replica_id_in_sync_group = replica_id_in_sync_group
        self._num_replicas_in_sync = num_replicas_in_sync

    @property
    def replica_id_in_sync_group(self) -> int:
        """The replica whose value is asked for, from 0."""
        return self._replica_id_in_sync_group

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        return self._num_replicas_in_sync

    def __str__(self) -> str:
        return (
            "tf.distribute.ValueContext(replica id "
            f"{self._replica_id_in_sync_group},  total replicas in sync: "
            f"{self._num_replicas_in_sync})"
        )


@final
class _Scope(Generic[_Strategy]):
    """The context manager of `Strategy.scope`."""

    def __init__(self, strategy: _Strategy) -> None:
        self._strategy = strategy
        self._open: list[Any] = []
        self._loaded: list[Any] = []
        self._left = False

    def __enter__(self) -> _Strategy:
        if self._left and not self._open:
            raise AttributeError(
                "This scope was left and cannot be entered again; call "
                "strategy.scope() for a new one."
            )
        check_scope(self._strategy)
        with contextlib.ExitStack() as stack:
            stack.enter_context(extended_lib.scope_of(self._strategy))
            stack.enter_context(library_hooks.entered())
            self._open.append(stack.pop_all())
        self._loaded = library_hooks.loaded()
        return self._strategy

    def __exit__(self, *exc: Any) -> None:
        self._left = True
        self._open.pop().__exit__(*exc)
        library_hooks.check_known(self._loaded)


def check_scope(strategy: Any) -> None:
    """Raise unless the scope of `strategy` may be entered here."""
    frame = ambient.current()
    if strategy._is_default:
        if frame.strategy is not None:
            raise RuntimeError(
                "Must not nest tf.distribute.Strategy scopes: the default strategy's "
                f"scope cannot be entered inside that of {frame.strategy!r}."
            )
        return
    extended_lib.require_cross_replica(strategy)


class Strategy:
    """A policy that places state and computation on a list of devices.

    Make variables under `scope`, call `run` once per step, and `reduce` what the
    replicas return. Subclasses build a `StrategyExtended` and nothing more.

    Args:
        extended: the object that does the work.
    """

    _is_default = False
    _resolver: ClusterResolver | None = None

    def __init__(self, extended: extended_lib.StrategyExtended) -> None:
        self._extended = extended

    @property
    def extended(self) -> extended_lib.StrategyExtended:
        """The lower-level methods."""
        return self._extended

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas compute together, over all workers."""
        return self._extended._num_replicas_in_sync

    @property
    def cluster_resolver(self) -> ClusterResolver | None:
        """The resolver of a multi-worker strategy; None for one machine."""
        return self._resolver

    def scope(self) -> contextlib.AbstractContextManager[Self]:
        """Context manager that makes this strategy current.

        Variables made in it are placed by this strategy. It says nothing about
        computation: that is distributed by `run`.
        """
        return _Scope(self)

    def run(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
        options: options.RunOptions | None = None,
    ) -> Any:
        """Call `fn` once per replica and merge what the replicas return.

        Args:
            fn: called in replica context. A `unisono.function` is compiled for all
                replicas together.
            args: positional arguments; per-replica values are passed part by part.
            kwargs: keyword arguments, likewise.
            options: `RunOptions`; they concern `TPUStrategy` only.

        Returns:
            The structure that `fn` returned; each leaf is one object if all replicas
            returned the same, else a `PerReplica`.
        """
        extended_lib.require_cross_replica(self)
        extended_lib.check_args(args)
        kwargs = dict(kwargs or {})
        if options is not None and self._extended._has_static_shapes:
            run_options.check(options, (args, kwargs))
        host = ambient.current().host
        if host is not None or isinstance(fn, function.COMPILED):
            compiled = None if function.is_compiling() else function.compiled(fn, host)
            if compiled is not None:
                return compiled.for_strategy(self)(*args, **kwargs)
            fn = function.python_function(fn)
        return self._run(fn, tuple(args), kwargs)

    def _run(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with extended_lib.scope_of(self):
            if sys.modules.keys().isdisjoint(library_hooks.known):
                return self._extended._call_for_each_replica(fn, args, kwargs)
            with library_hooks.entered():
                return self._extended._call_for_each_replica(fn, args, kwargs)

    def experimental_run_v2(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The old name of `run`."""
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
        value: Any,
        axis: int | Sequence[int] | None,
    ) -> Any: ...

    def reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: Any,
        axis: int | Sequence[int] | None,
    ) -> Any:
        """Combine a per-replica value into one.

        Args:
            reduce_op: `ReduceOp` or its name.
            value: what `run` returned, or a variable.
            axis: None combines element by element across replicas. An axis, or tuple
                of them, is reduced within each replica first; MEAN then divides by
                the number of elements of all replicas, so uneven batches are right.
        """
        extended_lib.require_cross_replica(self)
        op = _op(reduce_op)
        with extended_lib.scope_of(self):
            if axis is None:
                return self._extended._reduce(op, value)
            return _reduce_axis(self, op, value, axis)

    @overload
    def gather(
        self, value: DistributedValues | Variable | jax.Array, axis: int
    ) -> jax.Array: ...

    @overload
    def gather(self, value: list[Any], axis: int) -> list[Any]: ...

    @overload
    def gather(self, value: Any, axis: int) -> Any: ...

    def gather(self, value: Any, axis: int) -> Any:
        """Concatenate a per-replica value along `axis`, in replica order."""
        extended_lib.require_cross_replica(self, extended_lib.GATHER_IN_REPLICA)
        with extended_lib.scope_of(self):
            return self._extended._gather(value, axis)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """The values of this process's replicas, as a tuple."""
        return self._extended._local_results(value)

    def unwrap(self, value: Any) -> tuple[Any, ...]:
        """The old name of `experimental_local_results`."""
        return self._extended._local_results(value)

    def group(self, value: object, name: str | None = None) -> None:
        """Nothing to do: in TensorFlow this groups graph operations."""
        return None

    def experimental_distribute_values_from_function(
        self, value_fn: Callable[[ValueContext], Any]
    ) -> Any:
        """A per-replica value made by calling `value_fn` once per replica."""
        return self._extended._values_from_function(value_fn)

    def experimental_distribute_dataset(
        self, dataset: Any, options: InputOptions | None = None
    ) -> DistributedDataset:
        """Split the global batches of a dataset over the replicas.

        Args:
            dataset: a `unisono.data.Dataset`, a loader of Grain, PyTorch, Hugging Face
                or Keras, arrays, or anything that can be iterated again and again. Its
                elements are global batches: nested arrays with a common first axis.
            options: an `InputOptions`.

        Returns:
            A `DistributedDataset`: each element has a consecutive part of the batch
            for every replica; the last parts of a short batch may be smaller or empty.
        """
        made: DistributedDataset = self._extended._distribute_dataset(dataset, options)
        return made

    def distribute_dataset(
        self, dataset: Any, options: InputOptions | None = None
    ) -> DistributedDataset:
        """The same as `experimental_distribute_dataset`."""
        return self.experimental_distribute_dataset(dataset, options)

    def distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[InputContext], Any],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """Let each replica take the elements of a dataset that a function makes.

        Nothing is split and nothing is sharded: the function batches by the
        per-replica size, and shards by what its context says.

        Args:
            dataset_fn: takes an `InputContext`; called once for each worker.
            options: an `InputOptions`; with `PER_REPLICA` the function is called once
                for each replica.

        Returns:
            A `DistributedDataset`.
        """
        made: DistributedDataset = self._extended._distribute_from_function(
            dataset_fn, options
        )
        return made

    def experimental_distribute_datasets_from_function(
        self,
        dataset_fn: Callable[[InputContext], Any],
        options: InputOptions | None = None,
    ) -> DistributedDataset:
        """The old name of `distribute_datasets_from_function`."""
        return self.distribute_datasets_from_function(dataset_fn, options)

    def experimental_make_numpy_dataset(self, numpy_input: Any) -> Dataset:
        """A dataset of the rows of arrays, to be batched and distributed."""
        return self._extended.experimental_make_numpy_dataset(numpy_input)

    def describe(self, tree: object) -> description.Description:
        """Where each variable of `tree` lives and how many bytes it takes.

        Args:
            tree: a variable, a Keras model or a Flax module, or a nested structure of
                variables and arrays.

        Returns:
            A `Description`, which prints as a table.
        """
        return description.describe(tree)

    def __copy__(self) -> Self:
        raise RuntimeError(
            "Must only deepcopy DistributionStrategy. A shallow copy would share "
            "the variables' owner."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        if self._is_default:
            raise RuntimeError(
                f"Should only create a single instance of {type(self).__name__}"
            )
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update(self.__dict__)
        twin._extended = copy.copy(self._extended)
        twin._extended._rebind(twin)
        return twin

    def __repr__(self) -> str:
        if self._is_default:
            return f"<{type(self).__name__}>"
        return f"<{type(self).__name__} of {self.num_replicas_in_sync} replicas>"


_op = options.reduce_op


def _reduce_axis(strategy: Any, op: options.ReduceOp, value: Any, axis: Any) -> Any:
    local = functools.partial(collectives.sum_and_count, op, axis)
    total, count = strategy._run(local, (value,), {})
    summed = strategy._extended._reduce(options.ReduceOp.SUM, total)
    if op is options.ReduceOp.SUM:
        return summed
    counted = strategy._extended._reduce(options.ReduceOp.SUM, count)
    mean = summed / counted
    is_float = jnp.issubdtype(summed.dtype, jnp.inexact)
    return mean.astype(summed.dtype) if is_float else mean


def read_plain(value: Any) -> Any:
    """A plain variable's value; other things themselves."""
    return assignment.read(value) if hasattr(value, "_cell") else value


def reduce_plain(op: options.ReduceOp, value: Any, replicas: int) -> Any:
    """Reduce something that is not distributed: one object for all replicas."""
    is_zero = isinstance(value, np.ndarray) and not value.any()
    if op is options.ReduceOp.SUM and replicas > 1 and not is_zero:
        raise errors.not_distributed(value, op)
    return read_plain(value)


publish("unisono.distribute", Strategy, ValueContext)
