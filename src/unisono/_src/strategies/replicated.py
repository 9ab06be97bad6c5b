"""`run`, `reduce` and `update` of the strategies that have several replicas.

`MirroredStrategy` and `CentralStorageStrategy` differ in where variables live, which
is data (`state.storage.Placement`), not code.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import logging
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, final

import jax

from unisono._src.execution import contexts, lockstep, merging, spmd
from unisono._src.foundation import ambient, nest, options
from unisono._src.foundation.options import ReduceOp
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.state import frames, reading, storage
from unisono._src.state.storage import Policy
from unisono._src.state.variables import (
    MirroredVariable,
    SyncOnReadVariable,
    Variable,
)
from unisono._src.strategies import function_contexts, local, reductions
from unisono._src.strategies.call_context import Args, Communication, Fn, Kwargs
from unisono._src.strategies.cross_device_ops import CrossDeviceOps
from unisono._src.strategies.extended import NonSlotDevices
from unisono._src.values import (
    collectives,
    distributed,
    gradient_packing,
    jax_tapes,
    ports,
    worker_rows,
)
from unisono._src.values.array_operators import StandsForArray

if TYPE_CHECKING:
    from unisono._src.strategies.base import Strategy

_log = logging.getLogger("unisono")


class Replicated(local.LocalExtended, abc.ABC):
    """The methods of replicas on the devices of a topology; abstract.

    Some of the devices may belong to other workers.

    Args:
        container_strategy: the `Strategy` that this object belongs to.
        placement: its replicas, and where variables made in scope go.
        communication: the `CommunicationOptions` that hold where a call gives none.
    """

    _placement: storage.Placement
    _reduced_at: reductions.Target

    def __init__(
        self,
        container_strategy: Strategy,
        placement: storage.Placement,
        communication: options.CommunicationOptions | None = None,
    ) -> None:
        chosen = placement.communication.merge(communication)
        placement = dataclasses.replace(placement, communication=chosen)
        super().__init__(container_strategy, placement)
        self._cross_device_ops: CrossDeviceOps | None = placement.ops
        self._copies = self._topology.copies
        # Parsed once: `Strategy.reduce` asks for it at every call.
        self._reduced_at = reductions.Target(self._topology.home)
        self._is_central = placement.kind is Policy.CENTRAL
        if self._topology.is_spread:
            self._keep_local = functools.partial(_keep_local, self._topology)

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._topology.replicas

    # Running.

    def _call_for_each_replica(self, fn: Fn, args: Args, kwargs: Kwargs) -> object:
        frame = ambient.current()
        if frame.port is not None and frame.port.is_spmd:
            # In a merge_call of a program that every device runs for its own replica.
            return self._run_nested(frame.port, fn, args, kwargs)
        if self._topology.replicas == 1:
            return self._run_alone(fn, args, kwargs)
        state: frames.StateFrame = frame.state or frames.EAGER
        if state.is_compiled:
            # Also if the replicas use no variable, which would tell the devices.
            state.note_topology(self._topology)
        if state.is_compiled and self._is_even((args, kwargs)):
            try:
                return self._run_spmd(fn, args, kwargs)
            except ports.NeedsLockstep as reason:
                # One program for all replicas cannot express it (docs/decisions/0002).
                _log.info("Replicas run in turn: %s", reason)
        return self._run_lockstep(fn, args, kwargs)

    def _run_spmd(self, fn: Fn, args: Args, kwargs: Kwargs) -> object:
        found = spmd.run(self._placement, fn, args, kwargs)
        # Not before: the first call may make the variables.
        if self._placement.plan is not None:
            self._placement.plan.check_rules()
        return found

    def _is_even(self, tree: object) -> bool:
        """Whether the parts of every per-replica value have the same shape."""
        return all(
            x.stacked(self._topology) is not None or x.local is not None
            for x in jax.tree.leaves(tree, is_leaf=_is_per_replica)
            if _is_per_replica(x)
        )

    def _run_alone(self, fn: Fn, args: Args, kwargs: Kwargs) -> object:
        """Calls `fn` for the only replica."""
        own = distributed.unwrap((args, kwargs), 0, 1)
        if self._topology.spans and frames.frame().is_compiled:
            frames.frame().note_topology(self._topology)
        elif self._topology.spans:
            # Eager code of a replica with several logical devices uses the first one.
            own = collectives.move_all(own, self._topology.devices[0])
        args, kwargs = own
        port = ports.SingleReplicaPort()
        with (
            contexts.use_device(self._topology.devices[0]),
            contexts.enter_replica(self._placement, 0, port, copy=0),
        ):
            result = fn(*args, **kwargs)
        return distributed.regroup([result])

    def _run_nested(
        self, port: ports.SpmdPort, fn: Fn, args: Args, kwargs: Kwargs
    ) -> object:
        """Calls `fn` for the own replica, in a merge_call of an SPMD program."""
        args, kwargs = merging.own_parts((args, kwargs))
        index = jax.lax.axis_index(AXIS)
        with contexts.enter_replica(self._placement, index, port, copy=None):
            result = fn(*args, **kwargs)
        return merging.group_replica_values(result, port)

    def _run_lockstep(self, fn: Fn, args: Args, kwargs: Kwargs) -> object:
        """Calls `fn` for one replica after the other; they meet at collectives."""
        turns = lockstep.replicas_in_turn(self._topology)
        if self._is_traced_by_workers():
            # In a program the replicas of all workers take turns.
            args, kwargs = nest.map_leaves(
                lambda x: x.complete(self._topology) if _is_per_replica(x) else x,
                (args, kwargs),
                StandsForArray,
            )
        if args or kwargs:
            calls = [self._call_of(i, fn, args, kwargs) for i in turns]
        else:
            calls = [fn] * len(turns)
        results = lockstep.run(self._placement, calls)
        # A short question for a common result: `regroup` would give the same.
        if all(map(operator.is_, results, itertools.repeat(None))):
            return None
        return distributed.regroup(results, self._make_per_replica)

    def _call_of(
        self, index: int, fn: Fn, args: Args, kwargs: Kwargs
    ) -> Callable[[], object]:
        """Returns the call of `fn` that one of the replicas makes in its turn."""
        own = distributed.unwrap((args, kwargs), index, self._topology.replicas)
        if not frames.frame().is_compiled:
            # JAX refuses to combine an array of another device with those of the
            # replica; TensorFlow copies it.
            own = collectives.move_all(own, self._topology.devices[index])
        own_args, own_kwargs = own
        return lambda: fn(*own_args, **own_kwargs)

    @property
    def _make_per_replica(self) -> Callable[[Sequence[object]], distributed.PerReplica]:
        return functools.partial(distributed.PerReplica, topology=self._topology)

    # Reducing.

    def _reduce_to(
        self, op: ReduceOp, value: object, destinations: object, options: Communication
    ) -> Any:
        if self._cross_device_ops is not None:
            return self._reduce_by_program(
                self._cross_device_ops, op, value, destinations, options
            )
        # `_reduced_at` is a parsed target; see `Strategy.reduce`, which asks for it.
        is_parsed = destinations is self._reduced_at
        target = self._reduced_at if is_parsed else self._target(destinations)
        return nest.map_structure(
            lambda x: reductions.reduce(self._topology, op, x, target), value
        )

    def _reduce_by_program(
        self,
        ops: CrossDeviceOps,
        op: options.ReduceOp,
        value: object,
        where: Any,
        options: Communication,
    ) -> object:
        """Combines per-replica leaves by code of the program, the others as usual."""
        if where is self._reduced_at:
            where = self._topology.local_names[0]
        return nest.map_structure(
            lambda x: (
                ops.reduce(op, x, where, options)
                if _is_per_replica(x)
                else reductions.reduce(self._topology, op, x, self._target(where))
            ),
            value,
        )

    def _batch_reduce_to(
        self,
        op: options.ReduceOp,
        pairs: Sequence[tuple[object, reductions.Destinations]],
        options: Communication,
    ) -> list[Any]:
        if self._cross_device_ops is not None:
            given = [(v, d) for v, d in pairs if _is_per_replica(v)]
            if len(given) == len(pairs):
                return list(self._cross_device_ops.batch_reduce(op, given, options))
            return super()._batch_reduce_to(op, pairs, options)
        # Only a replica's own dense arrays can share a buffer.
        own = {
            i: value.local
            for i, (value, _) in enumerate(pairs)
            if _is_per_replica(value) and isinstance(value.local, jax.Array)
        }
        # Packing joins many small all-reduces into few large ones
        # (docs/decisions/0019).
        if len(own) < 2 or not gradient_packing.is_worthwhile(self._topology):
            return super()._batch_reduce_to(op, pairs, options)
        totals = gradient_packing.reduce_together(
            op,
            list(own.values()),
            self._topology.replicas,
            self._placement.communication.merge(options).bytes_per_pack,
        )
        known = dict(zip(own, totals, strict=True))
        return [
            self._target(d).deliver(known[i])
            if i in known
            else self._reduce_to(op, value, d, options)
            for i, (value, d) in enumerate(pairs)
        ]

    def _target(self, where: object) -> reductions.Target:
        return reductions.parse_destination(where, self._topology)

    def _gather(self, value: object, axis: int) -> object:
        def gather_leaf(x: object) -> object:
            if self._cross_device_ops is not None and _is_per_replica(x):
                where = self._topology.local_names[0]
                return self._cross_device_ops.gather(x, where, axis)
            return reductions.gather(self._topology, x, axis)

        return nest.map_structure(gather_leaf, value)

    def _broadcast_to(
        self, tensor: object, destinations: reductions.Destinations
    ) -> object:
        if isinstance(tensor, (int, float, distributed.PerReplica)):
            return tensor
        target = self._target(destinations)
        plain = collectives.as_array(reductions.read_plain(tensor))
        if self._cross_device_ops is not None:
            return self._cross_device_ops.broadcast(plain, destinations)
        return target.deliver(plain)

    def _values_from_function(
        self, value_fn: Callable[[function_contexts.ValueContext], object]
    ) -> object:
        count = self._topology.replicas
        every = [function_contexts.ValueContext(i, count) for i in range(count)]
        own = [every[i] for i in self._topology.local]
        if not self._is_traced_by_workers():
            made = [value_fn(c) for c in own]
        else:
            # At once, because a worker knows the values of its own replicas only. If
            # they depend on the program being traced, they do so on all workers alike.
            with jax.ensure_compile_time_eval():
                made = [value_fn(c) for c in own]
            if jax_tapes.has_tracer(made):
                made = [value_fn(c) for c in every]
        return distributed.regroup(made, self._make_per_replica, always_wrap=True)

    def _is_traced_by_workers(self) -> bool:
        """Whether a program of several workers is being traced."""
        return self._topology.is_spread and frames.frame().is_compiled

    # Updating.

    def _update(
        self,
        var: Variable,
        fn: Fn,
        args: Args,
        kwargs: Kwargs,
        group: bool,
        in_turns: bool = False,
    ) -> object:
        if self._is_central:
            return self._update_central(var, fn, args, kwargs, group)
        if not isinstance(var, (MirroredVariable, SyncOnReadVariable)):
            raise AssertionError(
                "update expects a variable made in the scope of a mirrored strategy, "
                f"received {var!r}."
            )
        return local.update(self._topology, var, fn, args, kwargs, group, in_turns)

    def _update_together(
        self, var: Variable, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        return self._update(var, fn, args, kwargs, group, in_turns=True)

    def _update_central(
        self, var: Variable, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        # There is one copy of the variable, so it gets the first replica's values.
        def first(x: object) -> object:
            if isinstance(x, distributed.PerReplica) and x.local is not None:
                return collectives.pick_local(x.local, 0)
            return (
                x.values[0]
                if isinstance(x, (distributed.PerReplica, distributed.Mirrored))
                else x
            )

        args, kwargs = nest.map_structure(first, (args, kwargs))
        with ambient.push(mode=ambient.UPDATE, replica=None, copy=0):
            result = fn(var.get(), *args, **kwargs)
        return local.single_result(result, group)

    def _update_non_slot(
        self, colocate_with: object, fn: Fn, args: Args, kwargs: Kwargs, group: bool
    ) -> object:
        if self._is_central:
            with ambient.push(mode=ambient.UPDATE, replica=None, copy=0):
                result = fn(*args, **kwargs)
            return local.single_result(result, group)
        if not isinstance(colocate_with, tuple):
            raise AssertionError(
                "colocate_with must be the tuple that non_slot_devices gives, received "
                f"{colocate_with!r}."
            )
        return local.update_non_slot(self._topology, fn, args, kwargs, group)

    # Properties.

    @property
    def experimental_between_graph(self) -> bool:
        """Whether each worker builds a program of its own, as TensorFlow answers it."""
        return self._is_central or self._topology.is_spread

    @property
    def worker_devices(self) -> Sequence[str]:
        """The names of this process's devices that compute, one per replica."""
        names = self._topology.local_names
        return list(names) if self._is_central else names

    @property
    def parameter_devices(self) -> Sequence[str]:
        """The names of this process's devices that hold variables."""
        if self._is_central:
            return (self._placement.parameter_name,)
        return self._topology.local_names

    def value_container(self, value: object) -> Any:
        """Returns the variable that one of its copies belongs to, else `value`."""
        container = distributed.container_of(value)
        return value if container is None else container

    def read_var(self, v: Variable) -> jax.Array:
        """Returns the value of a variable of this strategy, aggregated if ON_READ."""
        if v.distribute_strategy is None:
            raise AttributeError(
                f"'{type(v).__name__}' object has no attribute '_get_cross_replica': "
                "read_var takes a variable of this strategy."
            )
        return v.read_value()

    def non_slot_devices(self, var_list: Sequence[Variable]) -> NonSlotDevices:
        """Returns all devices; with central storage, the first variable by name."""
        if self._is_central:
            return min(var_list, key=lambda v: v.name, default=())
        return self._topology.local_names


@final
class ReplicatedExtended(Replicated):
    """The methods of replicas that have one device each."""


def _is_per_replica(x: object) -> TypeGuard[distributed.PerReplica]:
    return isinstance(x, distributed.PerReplica)


def _keep_local(topology: Topology, x: object) -> object:
    """Returns what this worker's replicas have of a value, while a program is traced.

    Elsewhere a value is returned as it is: each worker has its own part of it. Of a
    variable that is split over the workers the parts are returned, and nobody asked.

    Args:
        topology: the replicas.
        x: any value, of which one that is not distributed is returned as it is.
    """
    if not frames.frame().is_compiled:
        if isinstance(x, MirroredVariable) and reading.has_part(x):
            return distributed.PerReplica(reading.read_own_parts(x), topology)
        return x
    if isinstance(x, SyncOnReadVariable) and x.state_cell.is_stacked:
        whole = frames.frame().whole(x.state_cell)
        return distributed.PerReplica(worker_rows.own_rows(whole, topology), topology)
    if not isinstance(x, distributed.DistributedValues):
        return x
    return distributed.PerReplica(_own_parts(x, topology), topology)


def _own_parts(
    x: distributed.DistributedValues, topology: Topology
) -> tuple[object, ...]:
    """Returns the parts of a distributed value that belong to this worker."""
    if isinstance(x, distributed.PerReplica):
        if x.local is not None:
            return worker_rows.own_values(x.local, topology)
        if x.is_stacked and x.is_traced:
            # By the number of its row each worker would make another program.
            return worker_rows.own_rows(x.stacked(topology), topology)
    parts = tuple(x.values)
    is_whole = len(parts) == topology.replicas
    if isinstance(x, distributed.PerReplica):
        if is_whole and jax_tapes.has_tracer(parts):
            stacked = x.stacked(topology)
            if stacked is not None:
                return worker_rows.own_rows(stacked, topology)
        # Parts of different shapes cannot be rows.
        # Each worker's program takes other parts, so their digests are not compared.
        frames.note_worker_parts()
    return (
        parts[topology.first : topology.first + topology.copies] if is_whole else parts
    )
