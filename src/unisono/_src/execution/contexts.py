"""The context of a replica: which one it is, and how code enters it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution import merging, replica_collectives
from unisono._src.foundation import ambient, options
from unisono._src.machines.topology import Topology
from unisono._src.state import branch_frame, frames, storage
from unisono._src.values import ports
from unisono._src.values.array_operators import StandsForArray
from unisono._src.values.indexed_slices import IndexedSlices


class ReplicaContext:
    """Identifies the running replica, and combines its values with those of others.

    `unisono.distribute.get_replica_context()` returns it inside `Strategy.run`.

    Args:
        strategy: the strategy that runs the replica.
        replica_id_in_sync_group: the number of the replica.
        port: how the replica communicates with the others; None if there are none.

    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> def total(x):
    ...     context = unisono.distribute.get_replica_context()
    ...     return context.all_reduce("SUM", x * context.num_replicas_in_sync)
    >>> float(strategy.run(total, args=(3.0,)).values[1])
    12.0
    """

    def __init__(
        self,
        strategy: Any,
        replica_id_in_sync_group: object,
        port: ports.Port | None = None,
    ) -> None:
        self._strategy = strategy
        self._id: Any = replica_id_in_sync_group
        self._port = port or ports.SingleReplicaPort()
        # A stack, because a program may enter one context several times.
        self._entered: list[Any] = []

    @property
    def strategy(self) -> Any:
        """The strategy that runs this replica.

        >>> import unisono
        >>> strategy = unisono.distribute.OneDeviceStrategy("CPU:0")
        >>> def is_mine():
        ...     return unisono.distribute.get_replica_context().strategy is strategy
        >>> bool(strategy.run(is_mine))
        True
        """
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> jax.Array | int:
        """The number of this replica, an int32 scalar that starts at 0.

        In a compiled program it is traced: use ``jnp.where(id == 0, a, b)`` or
        ``jax.lax.cond``. In a `unisono.function` you can also use a Python ``if``,
        which AutoGraph converts.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def number():
        ...     return unisono.distribute.get_replica_context().replica_id_in_sync_group
        >>> [int(i) for i in strategy.run(number).values]
        [0, 1]
        """
        if self._id is None or type(self._id) is _ReplicaNumber:
            # In a program that replicas make in turn the id is a NumPy number, because
            # JAX would trace an array, and Python could not branch on it.
            number = np.int32(self._id or 0)
            self._id = number if frames.frame().is_compiled else jnp.asarray(number)
        found: jax.Array | int = self._id
        return found

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of replicas that run together; 1 outside any strategy.

        >>> import unisono
        >>> unisono.distribute.get_replica_context().num_replicas_in_sync
        1
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def count():
        ...     return unisono.distribute.get_replica_context().num_replicas_in_sync
        >>> strategy.run(count)
        2
        """
        if self._strategy is None:
            return 1
        return int(self._strategy.num_replicas_in_sync)

    @property
    def devices(self) -> list[str]:
        """The name of this replica's device, in a list.

        With the default strategy JAX chooses the device, and the name is empty.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> found = []
        >>> def note():
        ...     found.extend(unisono.distribute.get_replica_context().devices)
        >>> strategy.run(note)
        >>> [name.rpartition("/")[2] for name in found]
        ['device:CPU:0', 'device:CPU:1']
        """
        frame = ambient.current()
        # A function that the default strategy runs has a frame without a strategy.
        is_run_by_default = frame.replica is self and frame.strategy is None
        if is_run_by_default or isinstance(self, _DefaultReplicaContext):
            return [""]
        # `copy` counts over all workers, the names are those of this worker.
        names = self._strategy.extended.worker_devices
        first = 0 if frame.placement is None else frame.placement.topology.first
        return [names[(frame.copy or first) - first]]

    def experimental_logical_device(
        self, logical_device_id: int
    ) -> contextlib.AbstractContextManager[None]:
        """Returns a context manager that puts operations on a logical device.

        XLA runs one program on all logical devices of a replica, so each of them holds
        the values that are computed in the block.

        Args:
            logical_device_id: the number of the logical device, from 0.

        Raises:
            ValueError: the replica has no such logical device.

        >>> import unisono
        >>> strategy = unisono.distribute.TPUStrategy()
        >>> def double(x):
        ...     context = unisono.distribute.get_replica_context()
        ...     with context.experimental_logical_device(0):
        ...         return x * 2
        >>> strategy.experimental_local_results(strategy.run(double, args=(3,)))[0]
        6
        """
        require_replica_context(self)
        placement = ambient.current().placement
        topology = None if placement is None else placement.topology
        return enter_logical_device(topology, logical_device_id)

    def __enter__(self) -> ReplicaContext:
        """Makes this the context of the running code until the end of the block.

        >>> import unisono
        >>> strategy = unisono.distribute.OneDeviceStrategy("CPU:0")
        >>> with unisono.distribute.ReplicaContext(strategy, 0) as context:
        ...     unisono.distribute.get_replica_context() is context
        True
        """
        entered = ambient.push(
            strategy=self._strategy,
            mode=ambient.REPLICA,
            replica=self,
            port=self._port,
            copy=0,
        )
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered.pop().__exit__(*exc)

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pauses all replicas and calls `merge_fn` once in cross-replica context.

        Args:
            merge_fn: called as ``merge_fn(strategy, *args, **kwargs)``, with each
                argument merged over the replicas.
            args: this replica's positional arguments.
            kwargs: this replica's keyword arguments.

        Returns:
            This replica's part of the result of `merge_fn`.

        Raises:
            RuntimeError: the call is not in this replica's context, some replicas do
                not call it, or it is in a branch or loop of a compiled function.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def add(strategy, x):
        ...     return strategy.reduce("SUM", x, axis=None)
        >>> def replica(x):
        ...     return unisono.distribute.get_replica_context().merge_call(add, (x,))
        >>> x = unisono.distribute.PerReplica((1.0, 2.0))
        >>> float(strategy.run(replica, args=(x,)))
        3.0
        """
        if isinstance(ambient.current().state, branch_frame.BranchFrame):
            raise RuntimeError(
                "`merge_call` called while defining a new graph or a tf.function: it "
                "is in a branch or loop body, as of `cond` or `while_loop`, of a "
                "compiled function. Move the branch or loop out of the function that "
                "is passed to `strategy.run`, or call `all_reduce` in the body."
            )
        self._port.has_merged = True
        require_replica_context(self)
        return merging.merge(self._strategy, self._port, merge_fn, args, kwargs or {})

    @overload
    def all_reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: IndexedSlices,
        options: options.CommunicationOptions | None = None,
    ) -> IndexedSlices: ...

    @overload
    def all_reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: ArrayLike | StandsForArray,
        options: options.CommunicationOptions | None = None,
    ) -> jax.Array: ...

    @overload
    def all_reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: object,
        options: options.CommunicationOptions | None = None,
    ) -> Any: ...

    def all_reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: object,
        options: options.CommunicationOptions | None = None,
    ) -> Any:
        """Reduces `value` over the replicas, and returns the result on every replica.

        Args:
            reduce_op: a `ReduceOp` or its name, such as ``"SUM"``.
            value: an array, an `IndexedSlices`, or a nested structure of them.
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            The reduced value, in the structure of `value`.

        Raises:
            RuntimeError: the call is not in this replica's context, or some replicas
                do not call it.

        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def mean(x):
        ...     return unisono.distribute.get_replica_context().all_reduce("MEAN", x)
        >>> x = unisono.distribute.PerReplica((1.0, 2.0))
        >>> [float(v) for v in strategy.run(mean, args=(x,)).values]
        [1.5, 1.5]
        """
        require_replica_context(self)
        op = _as_reduce_op(reduce_op)
        return replica_collectives.all_reduce(self._port, op, value, options)

    @overload
    def all_gather(
        self,
        value: ArrayLike | StandsForArray,
        axis: int,
        options: options.CommunicationOptions | None = None,
    ) -> jax.Array: ...

    @overload
    def all_gather(
        self,
        value: list[Any],
        axis: int,
        options: options.CommunicationOptions | None = None,
    ) -> list[Any]: ...

    @overload
    def all_gather(
        self,
        value: object,
        axis: int,
        options: options.CommunicationOptions | None = None,
    ) -> Any: ...

    def all_gather(
        self,
        value: object,
        axis: int,
        options: options.CommunicationOptions | None = None,
    ) -> Any:
        """Concatenates `value` over the replicas, and returns it on every replica.

        Args:
            value: an array, or a nested structure of arrays. Their sizes along `axis`
                may differ between replicas, except in a compiled function.
            axis: the axis to concatenate along.
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            The concatenated value, in the structure of `value`.

        Raises:
            NotImplementedError: `value` contains an `IndexedSlices`.
            RuntimeError: the call is not in this replica's context, or some replicas
                do not call it.

        >>> import jax.numpy as jnp
        >>> import unisono
        >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        >>> def gather(x):
        ...     return unisono.distribute.get_replica_context().all_gather(x, axis=0)
        >>> parts = (jnp.array([1, 2]), jnp.array([3]))
        >>> x = unisono.distribute.PerReplica(parts)
        >>> strategy.run(gather, args=(x,)).values[0].tolist()
        [1, 2, 3]
        """
        require_replica_context(self)
        return replica_collectives.all_gather(self._port, axis, value)


@final
class _ReplicaNumber(int):
    """The number of a replica that runs alone or in turn.

    A replica's id is an array, which is made of this number on demand, because most
    replica functions never ask for it.
    """


@final
class _DefaultReplicaContext(ReplicaContext):
    """The context of code that runs under no strategy."""


# `all_reduce` has a parameter called `options`, which hides the module.
_as_reduce_op = options.reduce_op


def context_of_replica(
    strategy: object, replica_id: object, port: ports.ReplicaPort
) -> ReplicaContext:
    """Return the context of a replica.

    Args:
        strategy: the strategy that runs the replica.
        replica_id: its number; a tracer in a program that serves all replicas.
        port: how it meets the others.
    """
    if isinstance(replica_id, int):
        replica_id = _ReplicaNumber(replica_id)
    return ReplicaContext(strategy, replica_id, port)


def frame_of_replica(
    placement: storage.Placement,
    replica_id: object,
    port: ports.ReplicaPort,
    copy: int | None,
) -> ambient.Frame:
    """Return the context frame of a replica, made from the current frame.

    Args:
        placement: the placement of the strategy that runs the replica.
        replica_id: its number; a tracer in a program that serves all replicas.
        port: how it meets the others.
        copy: the number of the replica whose copies of variables it sees; None in a
            program that serves all replicas.
    """
    strategy = placement.strategy
    return ambient.current()._replace(
        strategy=strategy,
        mode=ambient.REPLICA,
        replica=context_of_replica(strategy, replica_id, port),
        port=port,
        placement=placement,
        copy=copy,
    )


def enter_replica(
    placement: storage.Placement,
    replica_id: object,
    port: ports.ReplicaPort,
    copy: int | None,
    state: frames.StateFrame | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Return a block that runs as a replica.

    Args:
        placement: the placement of the strategy that runs the replica.
        replica_id: its number; a tracer in a program that serves all replicas.
        port: how it meets the others.
        copy: the number of the replica whose copies of variables it sees, or None.
        state: the frame of variable values in the block; None for the current one.
    """
    frame = frame_of_replica(placement, replica_id, port, copy)
    return ambient.enter(frame if state is None else frame._replace(state=state))


def use_device(device: jax.Device) -> contextlib.AbstractContextManager[object]:
    """Return a block that makes new arrays on a device; a program says where itself."""
    is_compiled = frames.frame().is_compiled
    return contextlib.nullcontext() if is_compiled else jax.default_device(device)


def check_logical_device(logical: int, number: int) -> None:
    """Raise unless a replica has a logical device of this number.

    Args:
        logical: how many logical devices a replica has.
        number: the number of the wanted one.
    """
    if not 0 <= number < logical:
        raise ValueError(
            "`logical_core_id` to assign must be lower then total number of logical "
            f"devices per replica. Received logical device id {number} but there are "
            f"only total of {logical} logical devices in replica."
        )


@contextlib.contextmanager
def enter_logical_device(topology: Topology | None, number: int) -> Iterator[None]:
    """Run a block for a logical device; its variables are whole.

    Args:
        topology: the replicas; None for one that has a single device.
        number: the number of the logical device.
    """
    logical = 1 if topology is None else topology.num_logical_devices
    check_logical_device(logical, number)
    placement = ambient.current().placement
    if placement is not None:
        placement = dataclasses.replace(placement, plan=None)
    with ambient.push(placement=placement):
        yield


def default_replica_context(strategy: object) -> ReplicaContext:
    """Return the context of code outside any strategy: replica 0 of 1."""
    return _DefaultReplicaContext(strategy, 0)


def merge_replicas(
    merge_fn: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Do what `merge_call` of the running replica does; `merge_fn` may run repeatedly.

    A function of the user's may have effects in Python that must happen once. So
    `merge_call` notes it, and the replica function is then traced only once.

    Args:
        merge_fn: called as ``merge_fn(strategy, *args, **kwargs)``, with each argument
            merged over the replicas.
        args: this replica's positional arguments.
        kwargs: this replica's keyword arguments.
    """
    strategy, port = ambient.replica().strategy, ambient.current().port
    return merging.merge(
        strategy, port or ports.SingleReplicaPort(), merge_fn, args, kwargs or {}
    )


def require_replica_context(context: ReplicaContext) -> None:
    """Raise unless `context` is the context of the running replica.

    Raises:
        RuntimeError: no replica is running, or another one is.
    """
    frame = ambient.current()
    if frame.replica is context:
        return
    is_default = frame.replica is None and frame.mode == ambient.REPLICA
    if is_default and isinstance(context, _DefaultReplicaContext):
        return
    if frame.strategy is not context.strategy:
        raise RuntimeError(
            "Mismatching tf.distribute.Strategy objects: the current strategy "
            f"{frame.strategy!r} is not {context.strategy!r}. Use the ReplicaContext "
            "that get_replica_context() gives inside the running replica."
        )
    if frame.mode != ambient.REPLICA:
        raise RuntimeError(
            "Need to be inside `call_for_each_replica()`: this ReplicaContext was used "
            "in cross-replica context. Use it in the function given to strategy.run."
        )
    raise RuntimeError(
        "Mismatching ReplicaContext. Each replica must use the context that "
        "get_replica_context() gives it, not another replica's."
    )
