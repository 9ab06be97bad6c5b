"""Cells, each of which stores the value of a variable where its strategy wants it.

The *whole* of a cell is the array that it stores, with a leading replica axis if the
variable is sync-on-read; a *copy* is the value that one replica sees. Programs read and
write cells through `frames`. See docs/decisions/0003.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import threading
import weakref
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient, errors, printable
from unisono._src.foundation.options import CommunicationOptions
from unisono._src.machines import partition, shard_plan
from unisono._src.machines.topology import Topology
from unisono._src.state import trace_versions
from unisono._src.state.remote_state import Home, RemoteState
from unisono._src.values import collectives, part_exchange
from unisono._src.workers import eager_exchange, watchdog


class Policy(enum.Enum):
    """The way in which the value of a variable is kept.

    Attributes:
        PLAIN: one array.
        MIRRORED: a copy on each replica, all equal.
        ON_READ: a value per replica, aggregated when read across replicas.
        CENTRAL: one array on the parameter device, which replicas copy.
        SERVER: one array, or a part of one, on a parameter server.
    """

    PLAIN = "one copy"
    MIRRORED = "mirrored"
    ON_READ = "per replica"
    CENTRAL = "central"
    SERVER = "on a server"


@final
@dataclasses.dataclass(frozen=True)
class Placement:
    """A strategy's settings for the variables that are made in its scope.

    Attributes:
        strategy: the strategy.
        topology: its replicas.
        kind: how variables are kept that are not sync-on-read.
        parameter_device: where variables that are one array live.
        parameter_name: TensorFlow's name of that device.
        plan: which mirrored variables are cut over the devices; None if none are.
        ops: the program's own `CrossDeviceOps`; None leaves it to XLA how values of
            replicas are combined.
        servers: the parameter servers that keep variables; None if none do.
        communication: how values of replicas are combined where a call does not say.
    """

    strategy: Any
    topology: Topology
    kind: Policy
    parameter_device: jax.Device
    parameter_name: str
    plan: shard_plan.ShardPlan | None = None
    ops: Any = None
    servers: RemoteState | None = None
    communication: CommunicationOptions = dataclasses.field(
        default_factory=CommunicationOptions
    )

    @property
    def mesh(self) -> Topology | None:
        """The devices of a program of all replicas; None for a single device."""
        return None if self.topology.is_one_device else self.topology


@final
class Clock:
    """Counts how often an array has escaped from its cell.

    A compiled step donates the arrays of the variables that it writes. It copies an
    array first if someone else may hold it. A program looks for such arrays only if
    this count has changed since it looked last.
    """

    escapes = 0


# Held from taking arrays out of cells to putting new ones in, by steps and by eager
# changes: what another thread stores meanwhile would be lost, and a step donates the
# arrays it takes, so that they must not be read. Nobody holds it while code of the
# program, a server or another worker is waited for (see `holding`). It is reentrant
# because a signal handler may read variables while its own thread holds the lock.
LOCK = threading.RLock()


@final
class Births:
    """The first values of new cells, while somebody collects them.

    Attributes:
        seen: the values by cell; None if nobody collects them.
    """

    seen: dict[Cell, Any] | None = None


_serial = itertools.count()
# Weak, so that a variable that nobody holds frees its memory. Used under the lock: a
# set must not grow while another thread iterates over it.
_live: weakref.WeakSet[Cell] = weakref.WeakSet()


# A cell is made without a value, and a frame gives it the first one. Assignments and
# steps replace its array and never change it. While a program is traced, the values are
# in frames; the cell changes when the program has run. It goes with its variable.
@final
class Cell:
    """The storage of one variable.

    Attributes:
        array: the stored array; None before the first value.
        born: the step of all workers in which they agreed on the first value; 0 if
            they did not.
        copies: how many replicas have a copy.
        cut_text: how and why the array is cut, or not; "" where none is.
        drafts: for a cell that is cut, the values that replicas have written in turn,
            by replica; not stored yet.
        escaped: whether someone else may hold the array.
        holder: the code that changes the cell in several parts; see `holding`. None if
            there is none.
        home: where parameter servers have the value; None if it is here, in `array`.
        is_apart: whether some worker lacks parts of the array, so that reading the
            whole is a matter of all workers.
        is_everywhere: whether each device of the topology holds the array or a part.
        is_replicated: whether each replica's device holds all of the array.
        is_spread: whether other processes hold copies too.
        is_stacked: whether the array has a leading replica axis.
        is_suspect: whether copies were written one by one, and may differ.
        origin: file and line of the code that made the variable, for messages.
        placement: the settings that it was made with; None outside every scope.
        serial: a number that is larger for cells made later.
        sharding: where the array belongs; None for anywhere.
        split: how the array is cut over devices, or None.
        stored_shape: the shape of the array.
    """

    __slots__ = (
        "__weakref__", "aggregation", "array", "born", "copies", "cut_text", "drafts",
        "dtype", "escaped", "holder", "home", "is_apart", "is_everywhere",
        "is_replicated", "is_spread", "is_stacked", "is_suspect", "name", "origin",
        "owner", "parameter_device", "placement", "policy", "serial", "shape",
        "sharding", "split", "stored_shape", "topology",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        placement: Placement | None,
        name: str,
        origin: str,
    ) -> None:
        self.policy = policy
        self.shape = shape
        self.dtype = dtype
        # Names are for people: every message and `repr` shows them.
        self.name = name if name.isprintable() else printable.escape(name)
        self.origin = origin
        # Set by the variable: how values that replicas assign become one, and the
        # strategy in whose scope it was made.
        self.aggregation: Any = None
        self.owner: Any = None
        self._set_placement(placement)
        self.drafts: dict[int, jax.Array] = {}
        self.array: jax.Array | Any = None
        self.escaped = False
        self.is_suspect = False
        self.born = 0
        self.holder: Any = None
        self.serial = next(_serial)
        self.home: Home | None = None
        if policy is Policy.SERVER and placement is not None and placement.servers:
            self.home = placement.servers.place(self)
        with LOCK:
            _live.add(self)

    def _set_placement(self, placement: Placement | None) -> None:
        """Sets where the value is kept."""
        self.placement = placement
        # `Any` in place of None, here and below: who reads these knows that they are.
        self.topology: Topology | Any = placement.topology if placement else None
        self.parameter_device = placement.parameter_device if placement else None
        self.copies = placement.topology.replicas if placement else 1
        choice = _choose_split(self)
        self.split: partition.Split | Any = choice.split if choice else None
        # For people; "" if nothing was to be chosen.
        self.cut_text = str(choice or "")
        # Attributes, not properties: every read and write asks for some of them.
        self.is_stacked = self.policy is Policy.ON_READ and self.copies > 1
        self.is_replicated = self.split is None and _is_on_every_replica(self)
        self.is_everywhere = (
            self.is_stacked or self.is_replicated or self.split is not None
        )
        spread = self.topology is not None and self.topology.is_spread
        self.is_spread = self.is_everywhere and spread
        self.is_apart = self.split is not None and part_exchange.is_apart(
            self.topology, self.split
        )
        self.stored_shape = (
            (self.copies, *self.shape) if self.is_stacked else self.shape
        )
        self.sharding: Any = _sharding(self)

    def move(self, placement: Placement | None, array: Any) -> None:
        """Keeps the value elsewhere from now on; no program may be using the cell.

        Args:
            placement: where.
            array: the value, of the shape that is stored there.
        """
        with LOCK:
            self._set_placement(placement)
            self.store(array)

    def escape(self) -> None:
        """Notes that someone else may hold the stored array."""
        self.escaped = True
        Clock.escapes += 1

    def store(self, array: jax.Array, is_fresh: bool = False) -> None:
        """Replaces the stored array.

        Args:
            array: the new array, anywhere.
            is_fresh: whether nobody else holds it.
        """
        check_type(self, array)
        trace_versions.EAGER.note_change()
        if self.home is not None:
            self.home.group.create(self, array)
            return
        seen = Births.seen
        # A loop of Keras takes arrays out of their cells, and puts others in.
        if self.array is None and seen is not None and self not in seen:
            # A step may donate the array itself.
            seen[self] = jnp.copy(array[0] if self.is_stacked else array)
        placed = self._place(array)
        # A step of another thread would overwrite what is stored while it runs.
        with LOCK:
            self.array = placed
            # What replicas had written one by one is gone: nothing is left to compare.
            self.drafts, self.is_suspect = {}, False
            if not is_fresh:
                self.escape()

    def _place(self, array: jax.Array) -> jax.Array:
        """Returns the array where the cell keeps it."""
        sharding, topology = self.sharding, self.topology
        if sharding is None:
            return array
        # With several workers `device_put` gets global arrays only. The topology places
        # this process's own arrays, among them those of NumPy, shard by shard.
        if not (self.is_spread and getattr(array, "is_fully_addressable", True)):
            placed: jax.Array = jax.device_put(array, sharding)
            return placed
        if self.is_stacked:
            # Rows of this process only: the other workers place theirs.
            return topology.stack([array[i : i + 1] for i in topology.local])
        if self.split is not None:
            return part_exchange.cut(array, sharding)
        return topology.spread(array)

    def begin(self, value: jax.Array) -> None:
        """Stores the first value in all copies.

        Workers may have computed different ones; all of them take that of worker 0. An
        array that they have computed together is one value already.

        Args:
            value: an array of the variable's own shape.
        """
        if self.home is not None:
            self.home.group.create(self, value)
            return
        point = f"creation of variable '{self.name}'"
        if self.is_spread and self.split is not None:
            if getattr(value, "is_fully_addressable", True):
                args = self.split, self.topology, self.name
                value = part_exchange.put_first(value, *args)
            else:
                eager_exchange.gather(self.topology, point, [])
            self.store(value, is_fresh=True)
            return
        if self.is_spread:
            value = eager_exchange.broadcast_first(
                self.topology, point, collectives.own_copy(value)
            )
            self.born = watchdog.count_steps()
        if self.split is not None:
            self.store(partition.put(value, self.sharding), is_fresh=True)
            return
        # The caller may hold the array, and a step would donate it.
        array = jnp.array(value, copy=True)
        if self.is_stacked:
            # All replicas begin with the same value.
            array = jnp.broadcast_to(array, self.stored_shape)
        self.store(array, is_fresh=True)

    def gather(self, index: int | None) -> jax.Array:
        """Returns the value of a cell that is cut, gathered on one replica's device.

        If the cell is apart, all workers must call this, without the lock.

        Args:
            index: the replica; None for the first one of this process.
        """
        topology = self.topology
        here = topology.first + topology.position(index)
        # What the replica wrote itself, before the parts on the devices.
        if here in self.drafts:
            return self.drafts[here]
        target = topology.devices[here]
        if self.is_apart:
            args = self.array, self.split, topology, self.name
            parts = jax.device_put(part_exchange.gather(*args), target)
            return jnp.concatenate(parts, self.split.axis)
        asked = topology.spans[here] if topology.spans else topology.devices
        return partition.gather_parts(self.array, self.split, asked, target)

    def settle(self) -> bool:
        """Stores the value that replicas have written in turn, if all wrote the same.

        Returns:
            Whether they did.
        """
        # JAX compares arrays of one device only, so all go to the first.
        device, every = self.topology.home, self.topology.local
        if self.is_apart and len(self.drafts) < len(every):
            # The value before is no draft, and only all workers together have it.
            first, same = next(iter(self.drafts.values())), False
        else:
            first, *others = (jax.device_put(self.gather(i), device) for i in every)
            is_float = bool(jnp.issubdtype(self.dtype, jnp.inexact))
            equal = (jnp.array_equal(first, o, equal_nan=is_float) for o in others)
            same = all(map(bool, equal))
        if self.is_spread:
            # A worker whose drafts differ takes part as well: the others wait for it.
            point = f"assignment of variable '{self.name}'"
            same = eager_exchange.is_same(self.topology, point, first, same)
        if same:
            self.store(part_exchange.cut(first, self.sharding), is_fresh=True)
        return same

    def store_copies(self, one: jax.Array) -> list[jax.Array]:
        """Stores an array of one device on all replicas, and returns their copies.

        The cell must be replicated, within this process, and have a value already.
        """
        # Asked here, not in `changed`: this is the shortest path of an assignment.
        if trace_versions.EAGER.has_read:
            trace_versions.EAGER.note_change()
        own = self.topology.own_devices
        array = collectives.put_pieces(
            self.array.aval, self.sharding, [one] * len(own), own
        )
        self.array, self.is_suspect = array, False
        self.escape()
        return [
            collectives.release(x) for x in collectives.shards(array, self.topology)
        ]

    def make_twin(self) -> Cell:
        """Returns another cell of the same kind, with a copy of the value."""
        # It lives where this one does, whatever scope is open now.
        outer = ambient.current().placement
        placement = outer if self.owner is None else self.placement
        twin = Cell(
            self.policy, self.shape, self.dtype, placement, self.name, self.origin
        )
        twin.array, twin.is_suspect = self.duplicate(), self.is_suspect
        return twin

    def duplicate(self) -> jax.Array:
        """Returns a copy of the stored array."""
        if not self.is_spread:
            return jnp.copy(self.array)
        # Shard by shard: a program for all shards would need the other workers.
        pieces = [jnp.copy(s.data) for s in self.array.addressable_shards]
        return jax.make_array_from_single_device_arrays(
            self.stored_shape, self.sharding, pieces
        )


def _is_on_every_replica(cell: Cell) -> bool:
    """Whether each replica's device holds all of an uncut cell's array."""
    # A single replica may consist of several logical devices (docs/decisions/0016).
    if cell.copies == 1 and cell.topology is not None and cell.topology.spans:
        return cell.policy in (Policy.MIRRORED, Policy.ON_READ)
    return cell.policy is Policy.MIRRORED and cell.copies > 1


def _sharding(cell: Cell) -> jax.sharding.Sharding | None:
    """Returns where the array of a cell belongs, or None for anywhere."""
    if cell.topology is None:
        return None
    if cell.split is not None:
        return partition.sharding(cell.topology, cell.split)
    if cell.is_stacked:
        return cell.topology.stacked_sharding
    if cell.is_replicated:
        return cell.topology.replicated_sharding
    return jax.sharding.SingleDeviceSharding(cell.parameter_device)


def _choose_split(cell: Cell) -> shard_plan.Choice | None:
    """Returns how an array is cut over the devices; None if that is not asked."""
    placement = cell.placement
    if cell.policy is not Policy.MIRRORED or placement is None:
        return None
    is_key = jnp.issubdtype(cell.dtype, jax.dtypes.prng_key)
    if placement.plan is None or is_key:
        return None
    choice = placement.plan.choose(placement.topology, cell.shape, cell.name)
    placement.plan.note(cell.name, cell.shape, choice)
    return choice


# Sorted, because a set has no order of its own, and all workers must give their
# programs the same inputs in the same order.
def live_cells() -> list[Cell]:
    """Returns every cell that has a value, oldest first."""
    with LOCK:
        found = list(_live)
    known = (c for c in found if c.array is not None or c.home is not None)
    return sorted(known, key=lambda c: c.serial)


def check_strategy(cell: Cell) -> ambient.Frame:
    """Returns the current context, if it belongs to the strategy of a cell's variable.

    Raises:
        RuntimeError: the running code is in the context of another strategy.
    """
    frame = ambient.current()
    owner = cell.owner
    if owner is None or frame.strategy is None or frame.strategy is owner:
        return frame
    error = errors.mixed_strategies_error(frame.strategy, owner)
    raise RuntimeError(
        f"{error} The variable '{cell.name}' belongs to the second; it was created at "
        f"{cell.origin}. To compute with its value here, read it before, outside both "
        "scopes, and pass the value in."
    )


def sees_copy(cell: Cell, frame: ambient.Frame) -> bool:
    """Whether the running code sees one copy: it is in a replica or in an update."""
    return frame.strategy is cell.owner and frame.mode != ambient.CROSS


def check_has_value(cell: Cell) -> None:
    """Raises `FailedPreconditionError` unless a cell has a value."""
    if cell.home is not None:
        return
    if cell.array is not None and not cell.array.is_deleted():
        return
    why = "the call that creates it has failed or not ended"
    if cell.array is not None:
        why = "a step that was updating it in place failed while it ran"
    raise errors.FailedPreconditionError(
        f"The variable '{cell.name}' (created at {cell.origin}) has no value: {why}. "
        "Assign it again, create it again, or restore it from a checkpoint."
    )


def stored_array(cell: Cell) -> jax.Array:
    """Returns the array of a cell, which a server may have; the caller may keep it."""
    if cell.home is not None:
        (found,) = cell.home.group.read([cell])
        return found
    with LOCK:
        cell.escape()
        return cell.array


def check_type(cell: Cell, value: jax.Array) -> None:
    """Raises `ValueError` unless an array is of the type that a cell holds."""
    if value.dtype != cell.dtype:
        raise ValueError(
            f"The variable '{cell.name}' (created at {cell.origin}) holds {cell.dtype} "
            f"and would get an array of type {value.dtype}; cast the value first."
        )
