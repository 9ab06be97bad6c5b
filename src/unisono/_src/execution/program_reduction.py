"""The `all_reduce` of replicas by the `CrossDeviceOps` that a program has given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from unisono._src.execution import merging
from unisono._src.state import storage
from unisono._src.values import collectives, distributed
from unisono._src.values.array_operators import operand


def all_reduce(
    port: Any,
    placement: storage.Placement,
    op: Any,
    options: Any,
    x: Any,
) -> Any:
    """Return one leaf, reduced over the replicas.

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

    def combine(parts: list[Any]) -> Sequence[Any]:
        found = call(distributed.PerReplica(parts, placement.topology))
        return [distributed.unwrap(found, i, port.replicas) for i in port.turns]

    @jax.custom_vjp
    def reduce(own: Any) -> Any:
        with merging.enter_cross_replica(placement.strategy, port):
            found = call(distributed.PerReplica.from_local(own, port.replicas))
        if isinstance(found, distributed.PerReplica):
            return found.local
        return found.whole if isinstance(found, distributed.Mirrored) else found

    own = collectives.as_array(operand(x))
    if not port.is_spmd:
        # Replicas that take turns: `meet` lets the gradient pass by the same function.
        return port.meet(combine, own, combine)
    # In an SPMD program the rule is given to JAX, as TensorFlow has it.
    reduce.defvjp(lambda x: (reduce(x), None), lambda _, ct: (reduce(ct),))
    return reduce(own)
