"""Cells, which hold the values of variables, and frames, which read and write them.

Every read and write of a variable goes through the current frame. The eager frame uses
the cell's own array, the frame of a program being made uses a tracer. The *whole* of a
cell is the array that it stores, with a leading replica axis if the variable is
sync-on-read; a *copy* is the value that one replica sees. See docs/decisions/0003.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, errors
from unisono._src.machines import partition
from unisono._src.machines.topology import Topology
from unisono._src.state import rows as rows_lib
from unisono._src.state import trace_versions
from unisono._src.state.servers import Change, Home, ServerGroup
from unisono._src.values import collectives, jax_tapes, jax_traces
from unisono._src.workers import eager_exchange


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
        split_above: the number of elements from which a mirrored variable is cut over
            the devices; None if none is.
        ops: the program's own `CrossDeviceOps`; None leaves it to XLA how values of
            replicas are combined.
        servers: the parameter servers that keep variables; None if none do.
    """

    strategy: Any
    topology: Topology
    kind: Policy
    parameter_device: jax.Device
    parameter_name: str
    split_above: int | None = None
    ops: Any = None
    servers: ServerGroup | None = None


@final
class Clock:
    """Counts how often an array has escaped from its cell.

    A compiled step donates the arrays of the variables that it writes. It copies an
    array first if someone else may hold it. A program looks for such arrays only if
    this count has changed since it looked last.
    """

    escapes = 0


# Held from taking arrays out of cells to putting new ones in: a step in another thread
# donates the arrays it takes, and they must not be read meanwhile. It is reentrant
# because a signal handler may read variables while its own thread holds the lock.
LOCK = threading.RLock()
_serial = itertools.count()
# Weak, so that a variable that nobody holds frees its memory. Used under the lock: a
# set must not grow while another thread iterates over it.
_live: weakref.WeakSet[Cell] = weakref.WeakSet()


@final
class Cell:
    """The storage of one variable.

    Attributes:
        array: the stored array; None before the first value.
        copies: how many replicas have a copy.
        drafts: for a cell that is cut, the values that replicas have written in turn,
            by replica; not stored yet.
        escaped: whether someone else may hold the array.
        home: where parameter servers have the value; None if it is here, in `array`.
        is_everywhere: whether each device of the topology holds the array or a part.
        is_replicated: whether each replica's device holds all of the array.
        is_spread: whether other processes hold copies too.
        is_stacked: whether the array has a leading replica axis.
        is_suspect: whether copies were written one by one, and may differ.
        origin: file and line of the code that made the variable, for messages.
        serial: a number that is larger for cells made later.
        sharding: where the array belongs; None for anywhere.
        split: how the array is cut over devices, or None.
        stored_shape: the shape of the array.
    """

    __slots__ = (
        "__weakref__", "aggregation", "array", "copies", "drafts", "dtype", "escaped",
        "home", "is_everywhere", "is_replicated", "is_spread", "is_stacked",
        "is_suspect", "name", "origin", "owner", "parameter_device", "policy", "serial",
        "shape", "sharding", "split", "stored_shape", "topology",
    )  # fmt: skip

    def __init__(
        self,
        policy: Policy,
        shape: tuple[int, ...],
        dtype: Any,
        placement: Placement | None,
        name: str,
        origin: str,
    ) -> None:
        self.policy = policy
        self.shape = shape
        self.dtype = dtype
        self.topology: Any = placement.topology if placement else None
        self.parameter_device = placement.parameter_device if placement else None
        self.copies = placement.topology.replicas if placement else 1
        self.name = name
        self.origin = origin
        # Set by the variable: how values that replicas assign become one, and the
        # strategy in whose scope it was made.
        self.aggregation: Any = None
        self.owner: Any = None
        self.split = _choose_split(policy, shape, dtype, placement)
        # Attributes, not properties: every read and write asks for some of them.
        self.is_stacked = policy is Policy.ON_READ and self.copies > 1
        self.is_replicated = self.split is None and _is_on_all(self)
        self.is_everywhere = (
            self.is_stacked or self.is_replicated or self.split is not None
        )
        spread = self.topology is not None and self.topology.is_spread
        self.is_spread = self.is_everywhere and spread
        self.stored_shape = (self.copies, *shape) if self.is_stacked else shape
        self.sharding = _sharding(self)
        self.drafts: dict[int, Any] = {}
        self.array: Any = None
        self.escaped = False
        self.is_suspect = False
        self.serial = next(_serial)
        self.home: Home | None = None
        if policy is Policy.SERVER and placement is not None and placement.servers:
            self.home = placement.servers.place(self)
        with LOCK:
            _live.add(self)

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
        self.array = self._place(array)
        self.drafts, self.is_suspect = {}, False
        if not is_fresh:
            self.escape()

    def _place(self, array: Any) -> Any:
        """Returns the array where the cell keeps it."""
        sharding, topology = self.sharding, self.topology
        if sharding is None:
            return array
        # With several workers `device_put` gets global arrays only. The topology places
        # this process's own arrays, among them those of NumPy, shard by shard.
        if not (self.is_spread and getattr(array, "is_fully_addressable", True)):
            return jax.device_put(array, sharding)
        if self.is_stacked:
            return topology.stack([array[i : i + 1] for i in topology.local])
        return topology.spread(array)

    def begin(self, value: Any) -> None:
        """Stores the first value in all copies.

        Workers may have computed different ones; all of them take that of worker 0.

        Args:
            value: an array of the variable's own shape.
        """
        if self.home is not None:
            self.home.group.create(self, value)
            return
        if self.is_spread:
            point = f"creation of variable '{self.name}'"
            value = eager_exchange.broadcast_first(
                self.topology, point, collectives.own_copy(value)
            )
        if self.split is not None:
            self.store(partition.put(value, self.sharding), is_fresh=True)
            return
        # The caller may hold the array, and a step would donate it.
        array = jnp.array(value, copy=True)
        if self.is_stacked:
            array = jnp.broadcast_to(array, self.stored_shape)
        self.store(array, is_fresh=True)

    def gather(self, index: int | None) -> jax.Array:
        """Returns the value of a cell that is cut, gathered on one replica's device.

        Args:
            index: the replica; None for the first one of this process.
        """
        topology = self.topology
        here = topology.first + topology.position(index)
        if here in self.drafts:
            draft: jax.Array = self.drafts[here]
            return draft
        asked = topology.spans[here] if topology.spans else topology.devices
        target = topology.devices[here]
        return partition.gather_parts(self.array, self.split, asked, target)

    def settle(self) -> bool:
        """Stores the value that replicas have written in turn, if all wrote the same.

        Returns:
            Whether they did.
        """
        device, every = self.topology.home, self.topology.local
        first, *others = (jax.device_put(self.gather(i), device) for i in every)
        is_float = bool(jnp.issubdtype(self.dtype, jnp.inexact))
        same = (jnp.array_equal(first, o, equal_nan=is_float) for o in others)
        if not all(map(bool, same)):
            return False
        self.store(partition.put(first, self.sharding), is_fresh=True)
        return True

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

    def duplicate(self) -> jax.Array:
        """Returns a copy of the stored array."""
        if not self.is_spread:
            return jnp.copy(self.array)
        # Shard by shard: a program for all shards would need the other workers.
        pieces = [jnp.copy(s.data) for s in self.array.addressable_shards]
        return jax.make_array_from_single_device_arrays(
            self.stored_shape, self.sharding, pieces
        )


def _is_on_all(cell: Cell) -> bool:
    """Whether each replica's device holds all of an uncut cell's array."""
    # A single replica may consist of several logical devices (docs/decisions/0016).
    if cell.copies == 1 and cell.topology is not None and cell.topology.spans:
        return cell.policy in (Policy.MIRRORED, Policy.ON_READ)
    return cell.policy is Policy.MIRRORED and cell.copies > 1


def _sharding(cell: Cell) -> Any:
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


def _choose_split(policy: Policy, shape: Any, dtype: Any, placement: Any) -> Any:
    """Returns how an array is cut over the devices, or None if it is not."""
    if policy is not Policy.MIRRORED or placement.split_above is None:
        return None
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return None
    return partition.choose(placement.topology, placement.split_above, shape)


def live_cells() -> list[Cell]:
    """Returns every cell that has a value, oldest first."""
    with LOCK:
        found = list(_live)
    known = (c for c in found if c.array is not None or c.home is not None)
    return sorted(known, key=lambda c: c.serial)


class StateFrame(abc.ABC):
    """Reads and writes cells; abstract.

    Attributes:
        traces: JAX's traces whose values may be written here, innermost first.
        is_compiled: whether a program is being made.
        has_worker_parts: whether that program differs between workers, by design.
        versions: the versions under which JAX caches bodies that read variables.
    """

    traces: tuple[Any, ...] = ()
    is_compiled = False
    has_worker_parts = False
    versions = trace_versions.NONE

    @abc.abstractmethod
    def whole(self, cell: Cell) -> jax.Array:
        """Returns the array that the cell stores."""

    @abc.abstractmethod
    def copy(self, cell: Cell, index: int | None) -> jax.Array:
        """Returns the value that replica `index` sees; None for the first one here."""

    @abc.abstractmethod
    def set_whole(self, cell: Cell, value: Any) -> None:
        """Replaces the array that the cell stores."""

    @abc.abstractmethod
    def set_copy(self, cell: Cell, index: int | None, value: Any) -> None:
        """Replaces the value that replica `index` sees; None for the first one here."""

    @abc.abstractmethod
    def create(self, cell: Cell, value: Any) -> None:
        """Gives a new cell its first value, of the variable's own shape."""

    @abc.abstractmethod
    def rows(self, cell: Cell, rows: Any) -> jax.Array:
        """Returns some rows of the array that the cell stores."""

    @abc.abstractmethod
    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Changes cells that parameter servers keep.

        Args:
            change: what the servers do.
            compute: returns the new values, as far as they are known here.
        """

    def note_assignment(self, cell: Cell, value: Any) -> None:  # noqa: B027
        """Notes a value that was written through another frame."""

    def settle(self, cell: Cell) -> None:  # noqa: B027
        """Stores the copies of a cell that were updated one by one, if all were."""

    def cells(self) -> Iterable[Cell]:
        """Returns the cells whose values this frame has."""
        raise NotImplementedError

    def note_topology(self, topology: Topology) -> None:
        """Notes the devices that the program runs on."""
        raise NotImplementedError


def check_has_value(cell: Cell) -> None:
    """Raises `FailedPreconditionError` unless a cell has a value."""
    if cell.home is not None:
        return
    if cell.array is not None and not cell.array.is_deleted():
        return
    why = "the call that was creating it failed"
    if cell.array is not None:
        why = "a step that was updating it in place failed while it ran"
    raise errors.FailedPreconditionError(
        f"The variable '{cell.name}' (created at {cell.origin}) has no value: {why}. "
        "Assign it again, create it again, or restore it from a checkpoint."
    )


@final
class EagerFrame(StateFrame):
    """Reads and writes the cells' own arrays."""

    def whole(self, cell: Cell) -> Any:
        """Returns the array that the cell stores; the caller may keep it."""
        # A short question first: nearly all reads are outside JAX's transformations.
        if not jax_traces.is_clean():
            trace_versions.check_reading((), self.versions, cell.name)
        if cell.home is not None:
            return cell.home.group.read([cell])[0]
        with LOCK:
            check_has_value(cell)
            if cell.drafts and not cell.settle():
                raise errors.diverging_copies_error(cell.name, cell.origin)
            cell.escape()
            return cell.array

    def copy(self, cell: Cell, index: int | None) -> Any:
        """Returns the value that replica `index` sees, on that replica's device."""
        if cell.split is not None:
            trace_versions.check_reading((), self.versions, cell.name)
            with LOCK:
                check_has_value(cell)
                return collectives.release(cell.gather(index))
        array = self.whole(cell)
        if cell.is_stacked:
            here = cell.topology.position(index)
            piece = collectives.shards(array, cell.topology)[here]
            return collectives.release(piece.reshape(cell.shape))
        if cell.is_replicated:
            here = cell.topology.position(index)
            return collectives.release(collectives.shards(array, cell.topology)[here])
        if cell.policy is Policy.CENTRAL and cell.copies > 1:
            return collectives.place(array, cell.topology.devices[index or 0])
        return array

    def set_whole(self, cell: Cell, value: Any) -> None:
        """Replaces the array that the cell stores."""
        check_level(cell, value, ())
        if cell.home is not None:
            self.change(Change((cell,), "assign", (value,)), lambda: [value])
        else:
            cell.store(value)

    def set_copy(self, cell: Cell, index: int | None, value: Any) -> None:
        """Replaces the copy on one replica's device; the others stay as they are."""
        check_level(cell, value, ())
        if not cell.is_everywhere:
            self.set_whole(cell, value)
            return
        if cell.split is not None:
            # The parts on the devices are replaced by `settle`, if all drafts agree.
            cell.drafts[cell.topology.first if index is None else index] = value
            cell.is_suspect = True
            trace_versions.EAGER.note_change()
            cell.escape()
            return
        pieces = list(collectives.shards(cell.array, cell.topology))
        here = cell.topology.position(index)
        shape = pieces[here].shape
        device = cell.topology.local_devices[here]
        pieces[here] = jax.device_put(jnp.reshape(value, shape), device)
        cell.array = cell.topology.assemble(cell.stored_shape, cell.sharding, pieces)
        # The other copies should follow; until a check they may differ.
        cell.is_suspect = cell.is_replicated
        trace_versions.EAGER.note_change()
        cell.escape()

    def create(self, cell: Cell, value: Any) -> None:
        """Stores the first value in all copies."""
        check_level(cell, value, ())
        cell.begin(value)

    def rows(self, cell: Cell, rows: Any) -> jax.Array:
        """Returns some rows; of a cell on a server, only these are fetched."""
        found: jax.Array
        if cell.home is None or isinstance(rows, jax.core.Tracer):
            found = rows_lib.take(self.whole(cell), rows)
        else:
            found = cell.home.group.read_rows(cell, rows)
        return found

    def change(self, change: Change, compute: Callable[[], Sequence[Any]]) -> None:
        """Lets servers change cells, and waits until they have."""
        for operand in change.operands:
            check_operand(change.cells[0], operand, ())
        trace_versions.EAGER.note_change()
        change.cells[0].home.group.apply([change])


EAGER = EagerFrame()


def frame() -> StateFrame:
    """Returns the frame that reads and writes go through now."""
    return ambient.current().state or EAGER


def note_worker_parts() -> None:
    """Notes that the program being traced differs between workers, by design."""
    source: Any = frame()
    while source is not None:
        source.has_worker_parts = True
        source = getattr(source, "parent", None)


def has_value(cell: Cell) -> bool:
    """Whether a cell has a value: a stored one, or one that the program will store."""
    if cell.home is not None:
        return True
    if cell.array is not None:
        return not cell.array.is_deleted()
    source: Any = frame()
    while source is not None:
        if cell in getattr(source, "created", ()):
            return True
        source = getattr(source, "parent", None)
    return False


def peek(cell: Cell) -> Any:
    """Returns the first copy, for callers that do not keep it.

    Unlike a read it does not count as an escape: the next step may donate the array.
    """
    source = frame()
    if cell.home is not None and not source.is_compiled:
        return stored_array(cell)
    if source.is_compiled or cell.array is None:
        # A program being made may have assigned the cell already.
        return source.copy(cell, 0)
    if not (cell.is_stacked or cell.is_replicated):
        return cell.array
    piece = collectives.shards(cell.array, cell.topology)[0]
    return collectives.release(piece.reshape(cell.shape))


def stored_array(cell: Cell) -> Any:
    """Returns the array of a cell, which a server may have."""
    return cell.array if cell.home is None else cell.home.group.read([cell])[0]


def strip_gradient(value: Any) -> Any:
    """Returns `value` without its gradient; assigned values carry none."""
    if not isinstance(value, jax.core.Tracer):
        return value
    value = jax_tapes.lower(value)
    return jax.lax.stop_gradient(value) if isinstance(value, jax.core.Tracer) else value


def check_type(cell: Cell, value: Any) -> None:
    """Raises `ValueError` unless an array is of the type that a cell holds."""
    if value.dtype != cell.dtype:
        raise ValueError(
            f"The variable '{cell.name}' (created at {cell.origin}) holds {cell.dtype} "
            f"and would get an array of type {value.dtype}; cast the value first."
        )


def check_level(cell: Cell, value: Any, traces: tuple[Any, ...]) -> None:
    """Raises if an array must not be written to a cell.

    Args:
        cell: the cell that would be written.
        value: the new value.
        traces: the traces of the frame; none when eager.

    Raises:
        RuntimeError: the running code is in a body that JAX traces by itself, or
            `value` comes from one.
        ValueError: `value` is not of the type that the cell holds.
    """
    check_type(cell, value)
    check_operand(cell, value, traces)


def check_operand(cell: Cell, value: Any, traces: tuple[Any, ...]) -> None:
    """Raises `RuntimeError` if an array must not be used to change a cell.

    Takes the same as `check_level`, but for the type of `value`.
    """
    if jax_traces.is_clean() and not isinstance(value, jax.core.Tracer):
        return
    where = jax_traces.base_trace()
    is_here = jax_traces.is_eager(where) or any(where is t for t in traces)
    if is_here and not isinstance(value, jax.core.Tracer):
        return
    # Like `is_clean`, an attribute that JAX does not make public.
    if is_here and any(value._trace is t for t in traces):  # noqa: SLF001
        return
    body = "a function given to jax.lax.scan, cond, while_loop, jax.checkpoint or vmap"
    if not traces:
        body = f"{body}, or jax.jit itself (use unisono.function instead)"
    raise RuntimeError(
        f"The variable '{cell.name}' (created at {cell.origin}) was assigned inside "
        f"{body}. Its new value exists only in that body and would leak out of it. "
        "Return the value from the body and assign it afterwards."
    )
