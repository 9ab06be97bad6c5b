"""Replica, cross-replica and update context, and `merge_call` between them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.foundation import ambient, nest, options
from unisono._src.foundation.public_names import publish
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.state import assignment, frames
from unisono._src.values import (
    collectives,
    distributed,
    gradient_packing,
    indexed_slices,
)
from unisono._src.values.array_operators import ArrayOperators, StandsForArray, operand
from unisono._src.values.indexed_slices import IndexedSlices


class ReplicaContext:
    """What a replica knows of itself, and how it meets the others.

    Got by `unisono.distribute.get_replica_context()` inside `Strategy.run`.

    >>> context = ReplicaContext(None, 0)
    >>> context.num_replicas_in_sync
    1
    """

    def __init__(
        self, strategy: Any, replica_id_in_sync_group: Any, port: Any = None
    ) -> None:
        self._strategy = strategy
        self._id: jax.Array | int = replica_id_in_sync_group
        self._port = port or collectives.Solo()
        self._entered: list[Any] = []
        # The number of a replica that runs alone or in turn. Its id is an array, which
        # is made when it is asked for: most replica functions never do.
        self._index: int | None = None

    @property
    def strategy(self) -> Any:
        """The strategy that runs this replica."""
        return self._strategy

    @property
    def replica_id_in_sync_group(self) -> jax.Array | int:
        """Which replica this is: an int32 scalar from 0 to the number less one.

        Inside a compiled program it is traced: write ``jnp.where(id == 0, a, b)``
        or ``jax.lax.cond``, not a Python ``if``.
        """
        if self._id is None:
            number = np.int32(self._index or 0)
            self._id = number if frames.frame().is_compiled else jnp.asarray(number)
        return self._id

    @property
    def num_replicas_in_sync(self) -> int:
        """How many replicas there are."""
        if self._strategy is None:
            return 1
        return int(self._strategy.num_replicas_in_sync)

    @property
    def devices(self) -> list[str]:
        """The devices of this replica."""
        frame = ambient.current()
        names = self._strategy.extended.worker_devices
        first = 0 if frame.placement is None else frame.placement.topology.first
        return [names[(frame.copy or first) - first]]

    def __enter__(self) -> ReplicaContext:
        entered = ambient.pushed(
            strategy=self._strategy,
            mode=ambient.REPLICA,
            replica=self,
            port=self._port,
            copy=0,
        )
        entered.__enter__()
        self._entered.append(entered)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._entered.pop().__exit__(*exc)

    def merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Pause all replicas and call `merge_fn` once in cross-replica context.

        Args:
            merge_fn: called as ``merge_fn(strategy, *args, **kwargs)``, with each
                argument merged over the replicas.
            args: positional arguments, one set per replica.
            kwargs: keyword arguments, one set per replica.

        Returns:
            What `merge_fn` returned, unwrapped to this replica's own part.

        Raises:
            RuntimeError: not called in this replica's context, or not by all.
        """
        self._port.has_merged = True
        return self._merge_call(merge_fn, args, kwargs)

    def _merge_call(
        self,
        merge_fn: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """`merge_call` with a function of ours, which may be called repeatedly."""
        require_replica_context(self)
        kwargs = kwargs or {}
        port = self._port
        if port.replicas == 1:
            return _merge_alone(self._strategy, merge_fn, args, kwargs)
        if port.is_spmd:
            return _merge_spmd(self._strategy, port, merge_fn, args, kwargs)
        return _merge_lockstep(self._strategy, port, merge_fn, args, kwargs)

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
        value: Any,
        options: options.CommunicationOptions | None = None,
    ) -> Any: ...

    def all_reduce(
        self,
        reduce_op: options.ReduceOp | str,
        value: Any,
        options: options.CommunicationOptions | None = None,
    ) -> Any:
        """Combine `value` over the replicas; every replica gets the result.

        Args:
            reduce_op: `ReduceOp` or its name.
            value: an array, `IndexedSlices`, or nested structure of them.
            options: `CommunicationOptions`; no field changes the result.
        """
        require_replica_context(self)
        op = _op(reduce_op)
        if self._port.is_spmd and gradient_packing.pays(
            ambient.current().placement.topology
        ):
            chosen = self._strategy.extended._default_options.merge(options)
            return _all_reduce_together(self._port, op, value, chosen.bytes_per_pack)
        return nest.map_structure(lambda x: _all_reduce(self._port, op, x), value)

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
        value: Any,
        axis: int,
        options: options.CommunicationOptions | None = None,
    ) -> Any: ...

    def all_gather(
        self,
        value: Any,
        axis: int,
        options: options.CommunicationOptions | None = None,
    ) -> Any:
        """Concatenate `value` over the replicas along `axis`.

        Sizes along `axis` may differ when replicas are not compiled together.
        """
        require_replica_context(self)
        return nest.map_structure(lambda x: _all_gather(self._port, axis, x), value)


@final
class _DefaultReplicaContext(ReplicaContext):
    """The context of code that runs under no strategy."""


_op = options.reduce_op


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Say in the user's terms what went wrong when Python met a traced value."""
    try:
        yield
    except _NEEDS_VALUE as error:
        if isinstance(error, _TracedValueError):
            raise
        raise _TracedValueError(error) from error


_NEEDS_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


class _TracedValueError(jax.errors.ConcretizationTypeError):
    """A value that is not known while compiling was needed in Python."""

    def __init__(self, error: Exception) -> None:
        TypeError.__init__(
            self,
            "Python needed a value that is only known when the compiled step runs, for "
            "example in `if`, `int()` or `range()`. Arrays are traced there, and so is "
            "`replica_id_in_sync_group`, because one program serves all replicas. "
            "Write jnp.where(replica_id == 0, a, b) or jax.lax.cond(...), or call "
            "strategy.run outside unisono.function, where values are known. JAX said: "
            f"{str(error).splitlines()[0]}",
        )


def context_of_replica(strategy: Any, replica_id: Any, port: Any) -> ReplicaContext:
    """The context of a replica whose id is a number, or a tracer."""
    if not isinstance(replica_id, int):
        return ReplicaContext(strategy, replica_id, port)
    context = ReplicaContext(strategy, None, port)
    context._index = replica_id
    return context


def frame_of_replica(
    placement: frames.Placement, replica_id: Any, port: Any, copy: int | None
) -> ambient.Frame:
    """The frame of the replica that `port` belongs to, below the current one.

    Args:
        placement: whose replica it is.
        replica_id: a number, or a tracer in a program that is traced for all replicas.
        port: how it meets the others.
        copy: whose copies of variables it sees; None where the program says so.
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


@contextlib.contextmanager
def replica_frame(
    placement: frames.Placement,
    replica_id: Any,
    port: Any,
    copy: int | None,
    state: frames.StateFrame | None = None,
) -> Iterator[None]:
    """Be the replica that `port` belongs to; see `frame_of_replica`."""
    frame = frame_of_replica(placement, replica_id, port, copy)
    outer = ambient.swap(frame if state is None else frame._replace(state=state))
    try:
        yield
    finally:
        ambient.swap(outer)


def default_replica_context(strategy: Any) -> ReplicaContext:
    """The context outside any strategy: replica 0 of 1."""
    return _DefaultReplicaContext(strategy, 0)


def require_replica_context(context: ReplicaContext) -> None:
    """Raise unless `context` is that of the running replica."""
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
            "Need to be inside 'call_for_each_replica()': this ReplicaContext was used "
            "in cross-replica context."
        )
    raise RuntimeError(
        "Mismatching ReplicaContext. Each replica must use the context that "
        "get_replica_context() gives it, not another replica's."
    )


# merge_call.


def _cross_frame(strategy: Any, **more: Any) -> Any:
    return ambient.pushed(
        strategy=strategy, mode=ambient.CROSS, replica=None, copy=None, **more
    )


def _merge_alone(strategy: Any, merge_fn: Any, args: Any, kwargs: Any) -> Any:
    owner = None if ambient.current().strategy is None else strategy
    with _cross_frame(owner, port=None):
        args = distributed.regroup([tuple(args)])
        merged = merge_fn(strategy, *args, **distributed.regroup([kwargs]))
    return distributed.unwrap(merged, 0, 1)


def local_group(tree: Any, port: collectives.SpmdPort) -> Any:
    """Merge the leaves of one traced replica as those of all replicas would be."""

    def leaf(x: Any) -> Any:
        container = distributed.container_of(x)
        if container is not None:
            return container
        if isinstance(x, (distributed.DistributedValues, ArrayOperators)):
            return x
        if not _has_local(x, port):
            return x
        return distributed.PerReplica.from_local(x, port.replicas)

    return nest.map_structure(leaf, tree)


def _has_local(x: Any, port: collectives.SpmdPort) -> bool:
    return any(not port.is_shared(leaf) for leaf in jax.tree.leaves(x))


def local_ungroup(tree: Any) -> Any:
    """The own part of distributed leaves inside an SPMD program."""

    def leaf(x: Any) -> Any:
        if isinstance(x, distributed.PerReplica):
            return x.local if x.local is not None else _own_part(x)
        return x.whole if isinstance(x, distributed.Mirrored) else x

    return nest.map_structure(leaf, tree)


def _own_part(x: distributed.PerReplica) -> Any:
    index = jax.lax.axis_index(AXIS)
    every = x.complete(ambient.current().placement.topology)
    return jnp.stack([jnp.asarray(p) for p in every.values])[index]


def _merge_spmd(strategy: Any, port: Any, merge_fn: Any, args: Any, kwargs: Any) -> Any:
    def detach(tree: Any) -> Any:
        return jax.tree.map(frames.without_gradient, tree)

    def prepare(tree: Any) -> Any:
        return nest.map_structure(
            lambda x: detach(x) if isinstance(x, (jax.Array, IndexedSlices)) else x,
            tree,
        )

    with _cross_frame(strategy, port=port):
        args = local_group(prepare(tuple(args)), port)
        kwargs = local_group(prepare(kwargs), port)
        merged = merge_fn(strategy, *args, **kwargs)
    for x in nest.leaves(merged):
        if isinstance(x, jax.core.Tracer) and not port.is_shared(x):
            port.share(x)
    return local_ungroup(merged)


def _merge_lockstep(
    strategy: Any, port: Any, merge_fn: Any, args: Any, kwargs: Any
) -> Any:
    def combine(payloads: list[Any]) -> Sequence[Any]:
        topology = ambient.current().placement.topology
        wrap = functools.partial(distributed.PerReplica, topology=topology)
        merged_args = distributed.regroup([p[0] for p in payloads], wrap)
        merged_kwargs = distributed.regroup([p[1] for p in payloads], wrap)
        merged = merge_fn(strategy, *merged_args, **merged_kwargs)
        return [distributed.unwrap(merged, i, port.replicas) for i in port.turns]

    return port.meet(combine, (tuple(args), dict(kwargs)))


# Collectives of replicas.


def _all_reduce(port: Any, op: options.ReduceOp, x: Any) -> Any:
    x = operand(x)
    if port.replicas == 1:
        return x
    if port.is_spmd:
        return collectives.reduce_local(op, x, port.replicas)
    if indexed_slices.is_tree(x):
        return indexed_slices.map_tree(lambda a: _all_reduce(port, op, a), x)
    devices = _devices()

    topology = ambient.current().placement.topology

    def combine(parts: list[Any]) -> Sequence[Any]:
        every = collectives.all_parts(parts, topology, f"all_reduce {op.value}")
        total = collectives.reduce_parts(op, every, devices[0])
        return collectives.hand_out(total, devices)

    return port.meet(combine, collectives.as_array(x), combine)


def _all_reduce_together(
    port: Any, op: options.ReduceOp, value: Any, bytes_per_pack: int
) -> Any:
    """`_all_reduce` of all arrays in a structure, in few collectives."""
    arrays: dict[int, Any] = {}

    def collect(x: Any) -> Any:
        found = operand(x)
        if isinstance(found, jax.Array):
            arrays[id(x)] = found
        return x

    nest.map_structure(collect, value)
    own = [*arrays.values()]
    totals = gradient_packing.reduce_together(op, own, port.replicas, bytes_per_pack)
    known = dict(zip(arrays, totals, strict=True))
    return nest.map_structure(
        lambda x: known[id(x)] if id(x) in known else _all_reduce(port, op, x), value
    )


def _all_gather(port: Any, axis: int, x: Any) -> Any:
    x = operand(x)
    if isinstance(x, IndexedSlices):
        raise NotImplementedError("all_gather does not support IndexedSlices")
    if port.replicas == 1:
        collectives.check_gather(jnp.shape(x), axis)
        return x
    if port.is_spmd:
        return collectives.gather_local(x, axis)
    devices = _devices()
    sizes: list[int] = []
    topology = ambient.current().placement.topology

    def combine(parts: list[Any]) -> Sequence[Any]:
        every = collectives.all_parts(parts, topology, "all_gather")
        whole = collectives.gather_parts(every, axis, devices[0])
        sizes[:] = [jnp.shape(p)[axis] for p in every]
        return collectives.hand_out(whole, devices)

    def transpose(cotangents: list[Any]) -> Sequence[Any]:
        op = options.ReduceOp.SUM
        every = collectives.all_parts(cotangents, topology, "gradient of all_gather")
        total = collectives.reduce_parts(op, every, devices[0])
        pieces = jnp.split(total, np.cumsum(sizes)[:-1].tolist(), axis)
        own = [pieces[i] for i in port.turns]
        return [collectives.place(p, d) for p, d in zip(own, devices, strict=True)]

    return port.meet(combine, collectives.as_array(x), transpose)


def _devices() -> Sequence[Any]:
    """Where results go: the replicas' devices, or nowhere while tracing."""
    frame = ambient.current()
    topology: Topology = frame.placement.topology
    if (frame.state or frames.EAGER).is_compiled:
        return [None] * topology.replicas
    return topology.local_devices


def read_for_output(x: Any) -> Any:
    """What leaves a compiled program in place of a variable or mirrored value."""
    if isinstance(x, distributed.Mirrored):
        return x.whole
    return assignment.read(x)


publish("unisono.distribute", ReplicaContext)
