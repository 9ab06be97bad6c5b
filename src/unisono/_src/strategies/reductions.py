"""Combines one value over the replicas of a topology, and puts it on its devices."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import TypeAlias, TypeGuard, TypeVar, final

import jax
import numpy as np

from unisono._src.execution import lockstep
from unisono._src.foundation import ambient, errors
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines import devices
from unisono._src.machines.topology import Topology
from unisono._src.state import frames, reading, variables
from unisono._src.state.storage import Cell
from unisono._src.values import collectives, distributed, jax_tapes

_Value = TypeVar("_Value")

Destinations: TypeAlias = (
    str | distributed.DistributedValues | variables.Variable | jax.Array
)


@final
@dataclasses.dataclass(frozen=True)
class Target:
    """A device, or all devices of a topology.

    Attributes:
        device: the device; None leaves the result where it is.
        topology: the replicas whose devices all get a copy; None for one device.
    """

    device: jax.Device | None
    topology: Topology | None = None

    def deliver(self, value: _Value) -> _Value | distributed.Mirrored:
        """Puts `value` there; returns an array, or a `Mirrored` on several devices."""
        traced = jax_tapes.has_tracer(value)
        if self.topology is None or self.topology.replicas == 1:
            device = self.device
            if self.topology is not None:
                device = self.topology.devices[0]
            return collectives.place(value, device)
        # A program places its values itself.
        if not traced:
            value = jax.tree.map(self.topology.spread, value)
        return distributed.Mirrored.of(value, self.topology.replicas)


def parse_destination(where: object, topology: Topology | None = None) -> Target:
    """Returns the target that a `destinations` argument names.

    Args:
        where: a device name, a value or a variable.
        topology: the replicas of the strategy; needed for a distributed value only.

    Raises:
        AssertionError: `where` is a list or tuple.
        AttributeError: `where` has no device.
        ValueError: `where` is an empty device name.
    """
    if isinstance(where, (list, tuple)):
        raise AssertionError(
            "destinations must be one device name, value or variable, received the "
            f"{type(where).__name__} {where!r}."
        )
    if isinstance(where, str):
        if not where:
            raise ValueError("destinations can not be empty")
        return Target(devices.resolve([where])[1][0])
    if isinstance(where, distributed.DistributedValues):
        return Target(None, topology)
    cell = getattr(where, "state_cell", None)
    if cell is not None:
        # A plain variable is where its strategy has put it, or else where its array is.
        return Target(cell.parameter_device or _device_of(cell.array))
    if isinstance(where, jax.Array):
        return Target(_device_of(where))
    raise AttributeError(
        f"'{type(where).__name__}' object has no attribute 'device': destinations must "
        "be a device name, a value or a variable."
    )


def _device_of(array: jax.Array) -> jax.Device | None:
    """Returns the first device of an array; None for one of a program."""
    if jax_tapes.is_traced(array):
        return None
    return min(array.sharding.device_set, key=operator.attrgetter("id"))


def reduce(topology: Topology, op: ReduceOp, value: object, target: Target) -> object:
    """Returns one leaf of a structure, combined over the replicas, on its target.

    Raises:
        AssertionError: the SUM of a mirrored value is asked for.
        ValueError: the SUM of a value that is not distributed is asked for.
    """
    count = topology.replicas
    if _is_on_read(value):
        return target.deliver(_reduce_cell(topology, op, value.state_cell))
    if isinstance(value, (distributed.Mirrored, variables.MirroredVariable)):
        if op is ReduceOp.SUM:
            raise AssertionError(
                "A mirrored value has the same value on every replica; its SUM "
                f"over {count} replicas is refused. Use MEAN, or multiply it."
            )
        return target.deliver(value.__jax_array__())
    if not isinstance(value, distributed.PerReplica):
        if topology.is_spread:
            return target.deliver(_reduce_workers(topology, op, value))
        plain = _reduce_plain(op, value, count)
        is_leaf = plain is None or jax.tree_util.all_leaves([plain])
        if op is ReduceOp.SUM and count == 1 and is_leaf:
            # As in TensorFlow, whose MEAN is the object itself.
            plain = collectives.as_array(plain)
        return target.deliver(plain) if isinstance(plain, jax.Array) else plain
    return target.deliver(_reduce_per_replica(topology, op, value))


def _reduce_cell(topology: Topology, op: ReduceOp, cell: Cell) -> object:
    """Combines the replicas' values of a sync-on-read variable."""
    source, port = frames.frame(), ambient.current().port
    if cell.copies == 1:
        return source.copy(cell, 0)
    if port is not None and port.is_spmd:
        return collectives.reduce_local(op, source.copy(cell, None), cell.copies)
    parts = [source.copy(cell, i) for i in lockstep.replicas_in_turn(cell.topology)]
    parts = collectives.all_parts(
        parts, topology, f"reduce {op.value} of variable '{cell.name}'"
    )
    return collectives.reduce_parts(op, parts, _result_device(topology))


def _reduce_workers(topology: Topology, op: ReduceOp, value: object) -> object:
    """Combines the plain values of all workers, one for each worker."""
    # Several replicas here have the value in common: its sum is refused, as it is in
    # one process.
    if op is ReduceOp.SUM and topology.copies > 1:
        return _reduce_plain(op, value, topology.replicas)
    value = read_plain(value)
    if not frames.frame().is_compiled:
        point = f"reduce {op.value} of a plain value"
        every = collectives.all_parts([collectives.as_array(value)], topology, point)
        return collectives.reduce_parts(op, every, _result_device(topology))
    frames.frame().note_topology(topology)
    # Before it is an array of the program, which would have the number built in.
    value = collectives.as_input(value)
    combine = functools.partial(collectives.reduce_local, op)
    count = topology.replicas
    return collectives.apply_on_replicas(value, lambda x: combine(x, count), topology)


def _reduce_per_replica(
    topology: Topology, op: ReduceOp, value: distributed.PerReplica
) -> object:
    """Combines the parts of a per-replica value."""
    count = topology.replicas
    if value.local is not None:
        return collectives.reduce_local(op, value.local, count)
    distributed.check_count(value, count)
    if count == 1:
        return collectives.as_array(value.values[0])
    if frames.frame().is_compiled:
        frames.frame().note_topology(topology)
        stacked = value.stacked(topology)
        # NumPy arrays lie on the host: there is nothing to sum across devices.
        if stacked is not None and not _is_numpy(stacked):
            return collectives.reduce_stacked(op, stacked, topology)
    parts = collectives.all_parts(value.values, topology, f"reduce {op.value}")
    return collectives.reduce_parts(op, parts, _result_device(topology))


def _result_device(topology: Topology) -> jax.Device | None:
    """Returns the device for results of eager code; a program has none."""
    return None if frames.frame().is_compiled else topology.home


def gather(topology: Topology, value: object, axis: int) -> object:
    """Returns one leaf of a structure, concatenated over the replicas."""
    if not isinstance(value, distributed.DistributedValues):
        return _gather_workers(topology, value, axis)
    if isinstance(value, distributed.PerReplica):
        if value.local is not None:
            return collectives.gather_local(value.local, axis)
        distributed.check_count(value, topology.replicas)
        if frames.frame().is_compiled:
            frames.frame().note_topology(topology)
    if hasattr(value, "state_cell"):
        source = frames.frame()
        turns = lockstep.replicas_in_turn(topology)
        parts = tuple(source.copy(value.state_cell, i) for i in turns)
    else:
        parts = value.values
    every = collectives.all_parts(parts, topology, "gather")
    return collectives.gather_parts(every, axis, _result_device(topology))


def _gather_workers(topology: Topology, value: object, axis: int) -> object:
    """Gathers a plain value of each worker, if a worker has one replica only."""
    if not topology.is_spread or topology.copies > 1:
        return value
    array = collectives.as_array(read_plain(value))
    collectives.check_gather(array.shape, axis)
    if not frames.frame().is_compiled:
        every = collectives.all_parts([array], topology, "gather")
        return collectives.gather_parts(every, axis, _result_device(topology))
    frames.frame().note_topology(topology)
    combine = functools.partial(collectives.gather_local, axis=axis)
    return collectives.apply_on_replicas(array, combine, topology)


def _is_on_read(value: object) -> TypeGuard[variables.SyncOnReadVariable]:
    return isinstance(value, variables.SyncOnReadVariable)


def _is_numpy(tree: object) -> bool:
    return all(isinstance(x, np.ndarray) for x in jax.tree.leaves(tree))


def read_plain(value: object) -> object:
    """Returns the value of a variable, and anything else as it is."""
    return reading.read(value) if isinstance(value, variables.Variable) else value


def _reduce_plain(op: ReduceOp, value: object, replicas: int) -> object:
    """Reduces a value that is not distributed: all replicas have the same object.

    Raises:
        ValueError: its SUM over several replicas is asked for.
    """
    # As in TensorFlow, the sum of zeros is accepted: it is zero for any number.
    is_zero = isinstance(value, np.ndarray) and not value.any()
    if op is ReduceOp.SUM and replicas > 1 and not is_zero:
        raise errors.not_distributed_error(value, op)
    return read_plain(value)
