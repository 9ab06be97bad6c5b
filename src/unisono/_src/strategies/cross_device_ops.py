"""The `cross_device_ops` classes: how values of replicas are combined.

XLA chooses how devices communicate when it compiles (NCCL on GPU, its own rings on TPU,
shared memory between virtual CPU devices), and the classes of this module all give its
result. A program may call them, and may give a strategy a subclass of its own, which
then combines the values.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import jax
from jax.typing import ArrayLike

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import (
    CommunicationOptions,
    ReduceOp,
    reduce_op as _parse_op,
)
from unisono._src.machines import devices
from unisono._src.machines.topology import Topology
from unisono._src.state import frames
from unisono._src.strategies import reductions
from unisono._src.strategies.reductions import Destinations
from unisono._src.values import collectives, distributed, jax_tapes
from unisono._src.values.indexed_slices import IndexedSlices

Combined: TypeAlias = jax.Array | IndexedSlices | distributed.Mirrored
_Value = TypeVar("_Value")
_Place = TypeVar("_Place")

PerReplicaLike: TypeAlias = distributed.DistributedValues | jax.Array | IndexedSlices


class CrossDeviceOps:
    """The base class of the algorithms that combine values across devices.

    A subclass defines `reduce_implementation`, and can define the other
    implementations. Pass an object of it as `MirroredStrategy(cross_device_ops=...)`.
    The strategy calls its methods in cross-replica context. In a compiled program the
    values are traced.

    >>> import unisono
    >>> class Largest(CrossDeviceOps):
    ...     def reduce_implementation(self, reduce_op, value, destinations, options):
    ...         largest = jax.numpy.stack(value.values).max(axis=0)
    ...         return self.broadcast(largest, destinations)
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"], Largest())
    >>> x = unisono.distribute.PerReplica((jax.numpy.ones(()), jax.numpy.zeros(())))
    >>> float(strategy.reduce("SUM", x, axis=None))
    1.0
    """

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def reduce(
        self,
        reduce_op: ReduceOp | str,
        per_replica_value: distributed.PerReplica,
        destinations: Destinations,
        options: CommunicationOptions | None = None,
    ) -> Combined:
        """Combines a per-replica value and puts the result on the destinations.

        Args:
            reduce_op: a `ReduceOp` or its name.
            per_replica_value: a per-replica value, or an array if there is one replica.
            destinations: a device name, or a value or variable whose devices get the
                result. Pass the value itself for an all-reduce.
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            An array on one device, or a mirrored value on several.

        Raises:
            RuntimeError: called in replica context.
            ValueError: `destinations` is something else, or empty.

        >>> from unisono.distribute import PerReplica
        >>> x = PerReplica((jax.numpy.ones(()), jax.numpy.ones(())))
        >>> float(NcclAllReduce().reduce("SUM", x, "CPU:0"))
        2.0
        """
        value = _prepare(per_replica_value, destinations)
        op = _parse_op(reduce_op)
        if _is_there_already(value, destinations):
            only: Combined = collectives.as_array(value.values[0])
            return only
        return self.reduce_implementation(
            op, value, destinations, options or CommunicationOptions()
        )

    def batch_reduce(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[PerReplicaLike, Destinations]],
        options: CommunicationOptions | None = None,
    ) -> list[Combined]:
        """Combines several per-replica values, each as `reduce` does.

        Args:
            reduce_op: a `ReduceOp` or its name.
            value_destination_pairs: tuples of a value and its destinations.
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            A list with the result of each pair, in their order.

        Raises:
            RuntimeError: called in replica context.
            ValueError: a pair is not a tuple of two, or its destinations are invalid.

        >>> from unisono.distribute import PerReplica
        >>> x = PerReplica((jax.numpy.ones(()), jax.numpy.ones(())))
        >>> pairs = [(x, "CPU:0"), (x, "CPU:1")]
        >>> [float(v) for v in NcclAllReduce().batch_reduce("MEAN", pairs)]
        [1.0, 1.0]
        """
        pairs = [_prepare_pair(pair) for pair in value_destination_pairs]
        op = _parse_op(reduce_op)
        if pairs and all(_is_there_already(v, d) for v, d in pairs):
            return [collectives.as_array(v.values[0]) for v, _ in pairs]
        return self.batch_reduce_implementation(
            op, pairs, options or CommunicationOptions()
        )

    def gather(
        self,
        per_replica_value: PerReplicaLike,
        destinations: Destinations,
        axis: int,
        options: CommunicationOptions | None = None,
    ) -> Combined:
        """Concatenates a per-replica value and puts the result on the destinations.

        Args:
            per_replica_value: a per-replica value, or an array if there is one replica.
            destinations: as for `reduce`.
            axis: the axis to concatenate along.
            options: `CommunicationOptions`; no field changes the result.

        Returns:
            An array on one device, or a mirrored value on several.

        Raises:
            NotImplementedError: the values are `IndexedSlices`.
            RuntimeError: called in replica context.
            ValueError: `destinations` is invalid.

        >>> from unisono.distribute import PerReplica
        >>> x = PerReplica((jax.numpy.arange(2), jax.numpy.arange(1)))
        >>> NcclAllReduce().gather(x, "CPU:0", axis=0).tolist()
        [0, 1, 0]
        """
        value = _prepare(per_replica_value, destinations)
        if any(isinstance(x, IndexedSlices) for x in value.values):
            raise NotImplementedError(
                "gather/all_gather does not support IndexedSlices; gather their "
                "`to_dense()`."
            )
        if _is_there_already(value, destinations):
            only: Combined = collectives.as_array(value.values[0])
            return only
        return self._gather_implementation(
            value, destinations, axis, options or CommunicationOptions()
        )

    # TensorFlow's name.
    _gather = gather

    def broadcast(
        self, tensor: ArrayLike | IndexedSlices, destinations: Destinations
    ) -> Combined:
        """Copies one value to the devices of `destinations`.

        Args:
            tensor: an array.
            destinations: as for `reduce`.

        Returns:
            An array on one device, or a mirrored value on several.

        Raises:
            RuntimeError: called in replica context.
            ValueError: `destinations` is invalid.

        >>> float(NcclAllReduce().broadcast(jax.numpy.ones(()), "CPU:1"))
        1.0
        """
        _check_place(destinations)
        return self.broadcast_implementation(tensor, destinations)

    @abc.abstractmethod
    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: distributed.PerReplica,
        destinations: Destinations,
        options: CommunicationOptions,
    ) -> Combined:
        """Implements `reduce`; subclasses must define it.

        Args:
            reduce_op: a `ReduceOp`.
            per_replica_value: a per-replica value; `values` are those of the replicas.
            destinations: as for `reduce`; `broadcast` puts a value there.
            options: `CommunicationOptions`.
        """
        raise NotImplementedError(
            "_reduce method must be implemented in descendants: give "
            f"{type(self).__name__} a method reduce_implementation."
        )

    def batch_reduce_implementation(
        self,
        reduce_op: ReduceOp,
        value_destination_pairs: Sequence[tuple[distributed.PerReplica, Destinations]],
        options: CommunicationOptions,
    ) -> list[Combined]:
        """Implements `batch_reduce`; by default with `reduce_implementation`.

        Args:
            reduce_op: a `ReduceOp`.
            value_destination_pairs: tuples of a per-replica value and its destinations.
            options: `CommunicationOptions`.
        """
        return [
            self.reduce_implementation(reduce_op, value, where, options)
            for value, where in value_destination_pairs
        ]

    def broadcast_implementation(
        self, tensor: ArrayLike | IndexedSlices, destinations: Destinations
    ) -> Combined:
        """Implements `broadcast`; by default it makes one copy for each device.

        Args:
            tensor: an array.
            destinations: as for `reduce`.
        """
        return _deliver(collectives.as_array(tensor), destinations)

    def _gather_implementation(
        self,
        per_replica_value: distributed.PerReplica,
        destinations: Destinations,
        axis: int,
        options: CommunicationOptions,
    ) -> Combined:
        """Does what `gather` says: by default it concatenates and broadcasts."""
        value = per_replica_value
        if value.local is not None:
            return self.broadcast(
                collectives.gather_local(value.local, axis), destinations
            )
        parts = _all_parts(value, "gather")
        device = _device_for(value)
        return self.broadcast(
            collectives.gather_parts(parts, axis, device), destinations
        )


class ReductionToOneDevice(CrossDeviceOps):
    """Collects values on one device and broadcasts the result.

    Args:
        reduce_to_device: the device to collect on; by default the first one. In
            compiled programs XLA chooses it.
        accumulation_fn: a function that adds a list of arrays, one for each replica; by
            default XLA adds them.

    >>> ops = ReductionToOneDevice("CPU:0")
    >>> ops.reduce_to_device
    'CPU:0'
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"], ops)
    """

    def __init__(
        self,
        reduce_to_device: str | None = None,
        accumulation_fn: Callable[[list[jax.Array]], jax.Array] | None = None,
    ) -> None:
        self.reduce_to_device = reduce_to_device
        self.accumulation_fn = accumulation_fn

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: distributed.PerReplica,
        destinations: Destinations,
        options: CommunicationOptions,
    ) -> Combined:
        """Adds the values on one device, and puts the result on the destinations.

        Args:
            reduce_op: a `ReduceOp`.
            per_replica_value: a per-replica value.
            destinations: as for `reduce`.
            options: `CommunicationOptions`; no field changes the result.
        """
        value = per_replica_value
        if self.accumulation_fn is None:
            total = _add(reduce_op, value, self.reduce_to_device)
        else:
            device = _device_for(value, self.reduce_to_device)
            parts = _all_parts(value, f"reduce {reduce_op.value}")
            placed = [collectives.place(collectives.as_array(p), device) for p in parts]
            total = self.accumulation_fn(placed)
            if reduce_op is ReduceOp.MEAN:
                total = jax.tree.map(lambda x: x / len(parts), total)
        return self.broadcast(total, destinations)


class _AllReduce(CrossDeviceOps, abc.ABC):
    """The ways to combine values that name an algorithm, which XLA chooses."""

    def reduce_implementation(
        self,
        reduce_op: ReduceOp,
        per_replica_value: distributed.PerReplica,
        destinations: Destinations,
        options: CommunicationOptions,
    ) -> Combined:
        """Adds the values, and puts the result on the destinations.

        Args:
            reduce_op: a `ReduceOp`.
            per_replica_value: a per-replica value.
            destinations: as for `reduce`.
            options: `CommunicationOptions`; no field changes the result.
        """
        return self.broadcast(_add(reduce_op, per_replica_value), destinations)


class NcclAllReduce(_AllReduce):
    """Requests NVIDIA's library NCCL, which XLA always uses on GPUs.

    Args:
        num_packs: the number of messages to send; stored, but XLA chooses it.

    Raises:
        ValueError: `num_packs` is negative.

    >>> NcclAllReduce(num_packs=2).num_packs
    2
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _check_packs("NCCL all-reduce", num_packs)


class HierarchicalCopyAllReduce(_AllReduce):
    """Requests an all-reduce in two levels; XLA chooses the levels.

    Args:
        num_packs: the number of messages to send; stored, but XLA chooses it.

    Raises:
        ValueError: `num_packs` is negative.

    >>> HierarchicalCopyAllReduce().num_packs
    1
    """

    def __init__(self, num_packs: int = 1) -> None:
        self.num_packs = _check_packs("HierarchicalCopy", num_packs)


def _check_packs(who: str, count: int) -> int:
    if count < 0:
        raise ValueError(f"{who} requires num_packs >= 0, but {count} is specified")
    return count


def find_program_ops(cross_device_ops: object) -> CrossDeviceOps | None:
    """Returns the object if it combines values by code of the program, else None.

    Raises:
        ValueError: it is neither None nor an object of one of the classes above.
    """
    given = cross_device_ops
    if given is None:
        return None
    if not isinstance(given, CrossDeviceOps):
        raise ValueError(
            "Expected cross_device_ops to be a unisono.distribute.CrossDeviceOps such "
            f"as ReductionToOneDevice(), received {given!r}."
        )
    # The very classes, not subclasses: a subclass may combine values in its own way.
    if type(given) in (NcclAllReduce, HierarchicalCopyAllReduce):
        return None
    if type(given) is ReductionToOneDevice and given.accumulation_fn is None:
        return None
    return given


# What the classes share.


def _prepare(value: object, where: object) -> distributed.PerReplica:
    """Returns a value as a `PerReplica`; raises unless `where` is a place."""
    _check_place(where)
    if isinstance(value, distributed.PerReplica):
        return value
    if isinstance(value, distributed.DistributedValues):
        return distributed.PerReplica(value.values, _topology_of(value))
    return distributed.PerReplica((collectives.as_array(value),))


def _prepare_pair(
    pair: tuple[_Value, _Place],
) -> tuple[distributed.PerReplica, _Place]:
    """Returns a pair whose value is a `PerReplica`, and its destinations."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError(
            "Each element of `value_destination_pairs` should be a tuple of size 2: "
            f"a value and its destinations. Received {pair!r}."
        )
    return _prepare(*pair), pair[1]


def _check_place(where: object) -> None:
    """Raises unless `where` can be a destination, in cross-replica context."""
    frame = ambient.current()
    if frame.strategy is not None and frame.mode == ambient.REPLICA:
        raise errors.cross_replica_required_error()
    if isinstance(where, str) and not where:
        raise ValueError("destinations can not be empty")
    kinds = (str, jax.Array, distributed.DistributedValues)
    if not isinstance(where, kinds) and not hasattr(where, "state_cell"):
        raise ValueError(
            "destinations must be one of a `DistributedValues` object, a tf.Variable "
            f"object, or a device string; received {where!r}."
        )


def _is_there_already(value: distributed.PerReplica, where: object) -> bool:
    """Whether a value has one part only, which is on the only destination."""
    if value.count != 1 or value.is_traced:
        return False
    here = _devices_of(value)
    if isinstance(where, distributed.DistributedValues):
        return _devices_of(where) == here
    return [reductions.parse_destination(where).device] == here


def _devices_of(value: distributed.DistributedValues) -> list[jax.Device | None]:
    """Returns the device of each part of a distributed value."""
    return [
        next(iter(x.sharding.device_set)) if isinstance(x, jax.Array) else None
        for part in value.values
        for x in jax.tree.leaves(part)[:1]
    ]


def _topology_of(value: distributed.DistributedValues) -> Topology | None:
    """Returns the replicas that a distributed value belongs to, if that is known."""
    cell = getattr(value, "state_cell", None)
    known = getattr(value, "topology", None) if cell is None else cell.topology
    placement = ambient.current().placement
    if known is not None or placement is None:
        return known
    # A value that a program has made by hand is taken for one of the strategy in scope,
    # if it has as many parts.
    here: Topology = placement.topology
    if not isinstance(value, (distributed.PerReplica, distributed.Mirrored)):
        return None
    return here if here.replicas == value.count else None


def _device_for(
    value: distributed.PerReplica, wanted: str | None = None
) -> jax.Device | None:
    """Returns the device to combine a value on; a program has none."""
    if value.is_traced or frames.frame().is_compiled:
        return None
    if wanted is not None:
        return devices.resolve([wanted])[1][0]
    topology = _topology_of(value)
    return _devices_of(value)[0] if topology is None else topology.home


def _all_parts(value: distributed.PerReplica, point: str) -> Sequence[object]:
    """Returns the values of all replicas, those of other workers included."""
    topology = _topology_of(value)
    if topology is None or value.local is not None:
        return tuple(value.values)
    return collectives.all_parts(value.values, topology, point)


def _add(
    op: ReduceOp, value: distributed.PerReplica, wanted: str | None = None
) -> jax.Array | IndexedSlices:
    """Returns the sum or mean of a per-replica value."""
    if value.local is not None:
        total: jax.Array | IndexedSlices = collectives.reduce_local(
            op, value.local, value.count
        )
        return total
    parts = _all_parts(value, f"reduce {op.value}")
    total = collectives.reduce_parts(op, parts, _device_for(value, wanted))
    return total


def _deliver(value: jax.Array | IndexedSlices, where: object) -> Combined:
    """Puts a value on the devices of a destination."""
    if not isinstance(where, distributed.DistributedValues):
        return reductions.parse_destination(where).deliver(value)
    topology = _topology_of(where)
    if topology is not None:
        return reductions.Target(None, topology).deliver(value)
    if jax_tapes.has_tracer(value):
        return distributed.Mirrored.of(value, len(where.values))
    copies = [collectives.place(value, d) for d in _devices_of(where)]
    return copies[0] if len(copies) == 1 else distributed.Mirrored(copies)
