"""The `all_reduce` and `all_gather` of replicas, in each of the ways to run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import merging
from unisono._src.foundation import ambient, nest
from unisono._src.foundation.options import CommunicationOptions, ReduceOp
from unisono._src.state import frames, storage
from unisono._src.values import (
    collectives,
    distributed,
    gradient_packing,
    indexed_slices,
    jax_tapes,
    ports,
)
from unisono._src.values.array_operators import operand
from unisono._src.values.indexed_slices import IndexedSlices


def all_reduce(
    port: ports.Port, op: ReduceOp, value: object, options: CommunicationOptions | None
) -> Any:
    """Return a value, reduced over the replicas, in its own structure.

    Args:
        port: how this replica meets the others.
        op: how values are combined.
        value: this replica's value.
        options: those of the call; None for the strategy's own.
    """
    placement = ambient.current().placement
    if placement is not None and placement.ops and port.replicas > 1:
        return nest.map_structure(
            lambda x: _reduce_by_program(port, placement, op, options, x),
            value,
        )
    # Between CPUs of several processes few large collectives are faster than many
    # small ones (decision 0019).
    if (
        placement is not None
        and port.is_spmd
        and gradient_packing.is_worthwhile(placement.topology)
    ):
        chosen = placement.communication.merge(options)
        return _reduce_together(port, op, value, chosen.bytes_per_pack)
    return nest.map_structure(lambda x: _reduce_leaf(port, op, x), value)


def all_gather(port: ports.Port, axis: int, value: object) -> Any:
    """Return a value, concatenated over the replicas, in its own structure.

    Args:
        port: how this replica meets the others.
        axis: the axis to concatenate along.
        value: this replica's value.

    Raises:
        NotImplementedError: `value` holds an `IndexedSlices`.
    """
    return nest.map_structure(lambda x: _gather_leaf(port, axis, x), value)


def _reduce_leaf(port: ports.Port, op: ReduceOp, x: Any) -> Any:
    """Reduce one leaf over the replicas."""
    x = operand(x)
    if port.replicas == 1:
        return jax_tapes.renew(x) if isinstance(x, jax.Array) else x
    if not isinstance(port, ports.LockstepPort):
        return collectives.reduce_local(op, x, port.replicas)
    if indexed_slices.is_tree(x):
        return indexed_slices.map_tree(lambda a: _reduce_leaf(port, op, a), x)
    devices = _result_devices()

    topology = ambient.topology()

    def combine(parts: list[Any]) -> Sequence[Any]:
        every = collectives.all_parts(parts, topology, f"all_reduce {op.value}")
        total = collectives.reduce_parts(op, every, devices[0])
        return collectives.hand_out(total, devices)

    # A sum or mean over replicas is its own transpose, which gradients go through.
    return port.meet(combine, collectives.as_array(x), combine)


def _reduce_by_program(
    port: ports.Port,
    placement: storage.Placement,
    op: ReduceOp,
    options: CommunicationOptions | None,
    x: object,
) -> Any:
    """Reduce one leaf by the `CrossDeviceOps` that the program has given.

    As in TensorFlow, the gradient of the result is combined in the same way.

    Args:
        port: how the replica meets the others.
        placement: its strategy's, with the program's `ops`.
        op: a `ReduceOp`.
        options: `CommunicationOptions` or None.
        x: the replica's array or `IndexedSlices`.
    """

    def call(value: distributed.PerReplica) -> Any:
        (found,) = placement.ops.batch_reduce(op, [(value, value)], options)
        return found

    own = collectives.as_array(operand(x))
    if isinstance(port, ports.LockstepPort):
        turns = port.turns

        def combine(parts: list[Any]) -> Sequence[Any]:
            found = call(distributed.PerReplica(parts, placement.topology))
            return [distributed.unwrap(found, i, port.replicas) for i in turns]

        # Replicas that take turns: `meet` lets the gradient pass by the same function.
        return port.meet(combine, own, combine)

    @jax.custom_vjp
    def reduce(own: jax.Array) -> Any:
        with merging.enter_cross_replica(placement.strategy, port):
            found = call(distributed.PerReplica.from_local(own, port.replicas))
        if isinstance(found, distributed.PerReplica):
            return found.local
        return found.whole if isinstance(found, distributed.Mirrored) else found

    # In an SPMD program the rule is given to JAX, as TensorFlow has it.
    reduce.defvjp(lambda x: (reduce(x), None), lambda _, ct: (reduce(ct),))
    return reduce(own)


def _reduce_together(
    port: ports.Port, op: ReduceOp, value: object, bytes_per_pack: int
) -> Any:
    """Reduce all arrays of a structure over the replicas in few collectives."""
    # By identity: arrays cannot be keys of a dict. An array that occurs twice is
    # reduced once.
    arrays: dict[int, Any] = {}

    def collect(x: object) -> Any:
        found = operand(x)
        if isinstance(found, jax.Array):
            arrays[id(x)] = found
        return x

    nest.map_structure(collect, value)
    own = [*arrays.values()]
    totals = gradient_packing.reduce_together(op, own, port.replicas, bytes_per_pack)
    known = dict(zip(arrays, totals, strict=True))
    return nest.map_structure(
        lambda x: known[id(x)] if id(x) in known else _reduce_leaf(port, op, x), value
    )


def _gather_leaf(port: ports.Port, axis: int, x: Any) -> Any:
    """Concatenate one leaf over the replicas."""
    x = operand(x)
    if isinstance(x, IndexedSlices):
        raise NotImplementedError(
            "all_gather does not support IndexedSlices; gather its `to_dense()`."
        )
    if port.replicas == 1:
        collectives.check_gather(jnp.shape(x), axis)
        return jax_tapes.renew(x) if isinstance(x, jax.Array) else x
    if not isinstance(port, ports.LockstepPort):
        return collectives.gather_local(x, axis)
    devices = _result_devices()
    sizes: list[int] = []
    topology = ambient.topology()

    def combine(parts: list[Any]) -> Sequence[Any]:
        every = collectives.all_parts(parts, topology, "all_gather")
        whole = collectives.gather_parts(every, axis, devices[0])
        sizes[:] = [jnp.shape(p)[axis] for p in every]
        return collectives.hand_out(whole, devices)

    # Each replica used the whole, so the gradients of all are added, and each gets the
    # piece that it gave.
    turns = port.turns

    def transpose(cotangents: list[Any]) -> Sequence[Any]:
        op = ReduceOp.SUM
        every = collectives.all_parts(cotangents, topology, "gradient of all_gather")
        total = collectives.reduce_parts(op, every, devices[0])
        pieces = jnp.split(total, np.cumsum(sizes)[:-1].tolist(), axis)
        own = [pieces[i] for i in turns]
        return [collectives.place(p, d) for p, d in zip(own, devices, strict=True)]

    return port.meet(combine, collectives.as_array(x), transpose)


def _result_devices() -> Sequence[Any]:
    """Return the device for each replica's result: None for each while tracing."""
    frame = ambient.current()
    topology = ambient.topology()
    if (frame.state or frames.EAGER).is_compiled:
        # In a program the replicas of all workers take turns, and XLA places the
        # values.
        return [None] * topology.replicas
    return topology.local_devices
