"""Cells that hold variable values, and the frames through which they are reached.

Every read and write of a variable goes through the current frame: the cell's own
array when eager, a tracer while a program is being made. A *whole* is what a cell
stores (one array; for sync-on-read cells with a leading replica axis), a *copy* is
what one replica sees of it.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import itertools
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from unisono._src.foundation import ambient, errors
from unisono._src.machines import partition, transfers
from unisono._src.machines.topology import Topology
from unisono._src.state import trace_versions
from unisono._src.values import collectives
from unisono._src.workers import eager_exchange


class Policy(enum.Enum):
    """Where the value of a variable is kept."""

    PLAIN = "one copy"
    MIRRORED = "mirrored"
    ON_READ = "per replica"
    CENTRAL = "central"


@final
@dataclasses.dataclass(frozen=True)
class Placement:
    """What a strategy's scope says about variables made in it."""

    strategy: Any
    topology: Topology
    kind: Policy
    parameter_device: jax.Device
    parameter_name: str
    # Mirrored variables of so many elements are cut over the devices; None: none are.
    split_above: int | None = None


@final
class Clock:
    """Counts events that let an array escape from its cell.

    A compiled step donates the arrays of the variables it writes. An array that
    someone else may hold is copied first; a program looks for such arrays only when
    this count has moved since it looked last.
    """

    escapes = 0


# Held from taking arrays out of cells to putting new ones in: a step that runs in
# another thread donates what it takes. Nobody waits for it in a single thread, and a
# signal handler may look at variables while it is held.
LOCK = threading.RLock()
_serial = itertools.count()
_live: weakref.WeakSet[Cell] = weakref.WeakSet()


@final
class Cell:
    """The storage of one variable.

    Attributes:
        array: what is stored; None before the first value.
        copies: how many replicas have a copy.
        drafts: of a cell that is cut, what replicas that take turns have written.
        escaped: whether someone else may hold the array.
        is_everywhere: whether all devices of the topology hold the array, or a part.
        is_replicated: whether every replica's device holds the array.
        is_spread: whether other processes hold copies too.
        is_stacked: whether the array has a leading replica axis.
        is_suspect: whether copies were written one by one, and may differ.
        sharding: where the array belongs; None for anywhere.
        split: how it is cut over devices, or None.
        stored_shape: the shape of the array.
    """

    __slots__ = (
        "__weakref__", "array", "copies", "drafts", "dtype", "escaped",
        "is_everywhere", "is_replicated", "is_spread", "is_stacked", "is_suspect",
        "name", "origin", "parameter_device", "policy", "serial", "shape", "sharding",
        "split", "stored_shape", "topology",
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
        self.split = _split(policy, shape, dtype, placement)
        # Constants that follow from these: every read and write asks for some of them.
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
        with LOCK:
            _live.add(self)

    def escape(self) -> None:
        """Note that the stored array may be held by someone else."""
        self.escaped = True
        Clock.escapes += 1

    def store(self, array: jax.Array, is_fresh: bool = False) -> None:
        """Replace the stored array; unless it is fresh, others may hold it too."""
        trace_versions.EAGER.changed()
        self.array = self._placed(array)
        self.drafts, self.is_suspect = {}, False
        if not is_fresh:
            self.escape()

    def _placed(self, array: Any) -> Any:
        sharding, topology = self.sharding, self.topology
        if sharding is None:
            return array
        # A host array is addressable, too.
        if not (self.is_spread and getattr(array, "is_fully_addressable", True)):
            return jax.device_put(array, sharding)
        if self.is_stacked:
            return topology.stack([array[i : i + 1] for i in topology.local])
        return topology.spread(array)

    def begin(self, value: Any) -> None:
        """Store the first value, of the variable's own shape, on all copies.

        Workers may have computed different ones: that of worker 0 counts.
        """
        if self.is_spread:
            point = f"creation of variable '{self.name}'"
            value = eager_exchange.first(
                self.topology, point, collectives.own_copy(value)
            )
        if self.split is not None:
            self.store(partition.put(value, self.sharding), is_fresh=True)
            return
        array = jnp.array(value, copy=True)
        if self.is_stacked:
            array = jnp.broadcast_to(array, self.stored_shape)
        self.store(array, is_fresh=True)

    def gathered(self, index: int | None) -> jax.Array:
        """What replica `index` sees of a cell that is cut, on that replica's device."""
        topology = self.topology
        here = topology.first + topology.position(index)
        if here in self.drafts:
            draft: jax.Array = self.drafts[here]
            return draft
        asked = topology.spans[here] if topology.spans else topology.devices
        target = topology.devices[here]
        return partition.gather_parts(self.array, self.split, asked, target)

    def settle(self) -> bool:
        """Store what replicas have written in turn, if it is the same everywhere."""
        device, every = self.topology.home, self.topology.local
        first, *others = (jax.device_put(self.gathered(i), device) for i in every)
        is_float = bool(jnp.issubdtype(self.dtype, jnp.inexact))
        same = (jnp.array_equal(first, o, equal_nan=is_float) for o in others)
        if not all(map(bool, same)):
            return False
        self.store(partition.put(first, self.sharding), is_fresh=True)
        return True

    def store_copies(self, one: jax.Array) -> list[jax.Array]:
        """Store an array of one device on all replicas; return each one's copy.

        Only for a replicated cell of this process alone that has a value already.
        """
        if trace_versions.EAGER.has_read:
            trace_versions.EAGER.changed()
        own = self.topology.own_devices
        array = transfers.put(self.array.aval, self.sharding, [one] * len(own), own)
        self.array, self.is_suspect = array, False
        self.escape()
        return [
            collectives.release(x) for x in collectives.shards(array, self.topology)
        ]

    def duplicate(self) -> jax.Array:
        """A copy of the stored array."""
        if not self.is_spread:
            return jnp.copy(self.array)
        pieces = [jnp.copy(s.data) for s in self.array.addressable_shards]
        return jax.make_array_from_single_device_arrays(
            self.stored_shape, self.sharding, pieces
        )


def _is_on_all(cell: Cell) -> bool:
    """Whether every replica's device holds what an uncut cell stores."""
    if cell.copies == 1 and cell.topology is not None and cell.topology.spans:
        return cell.policy in (Policy.MIRRORED, Policy.ON_READ)
    return cell.policy is Policy.MIRRORED and cell.copies > 1


def _sharding(cell: Cell) -> Any:
    """Where the array of a cell belongs, or None for anywhere."""
    if cell.topology is None:
        return None
    if cell.split is not None:
        return partition.sharding(cell.topology, cell.split)
    if cell.is_stacked:
        return cell.topology.stacked
    if cell.is_replicated:
        return cell.topology.replicated
    return jax.sharding.SingleDeviceSharding(cell.parameter_device)


def _split(policy: Policy, shape: Any, dtype: Any, placement: Any) -> Any:
    if policy is not Policy.MIRRORED or placement.split_above is None:
        return None
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return None
    return partition.choose(placement.topology, placement.split_above, shape)


def live_cells() -> list[Cell]:
    """Every cell that a program could reach, oldest first."""
    with LOCK:
        found = list(_live)
    return sorted((c for c in found if c.array is not None), key=lambda c: c.serial)


class StateFrame(abc.ABC):
    """Reads and writes cells; abstract.

    Attributes:
        traces: JAX's traces whose values may be written here, innermost first.
        is_compiled: whether a program is being made.
        versions: what keeps JAX's caches apart from variables.
    """

    traces: tuple[Any, ...] = ()
    is_compiled = False
    versions = trace_versions.NONE

    @abc.abstractmethod
    def whole(self, cell: Cell) -> jax.Array:
        """What the cell stores."""

    @abc.abstractmethod
    def copy(self, cell: Cell, index: int | None) -> jax.Array:
        """What replica `index` sees of the cell."""

    @abc.abstractmethod
    def set_whole(self, cell: Cell, value: Any) -> None:
        """Replace what the cell stores."""

    @abc.abstractmethod
    def set_copy(self, cell: Cell, index: int | None, value: Any) -> None:
        """Replace what replica `index` sees."""

    @abc.abstractmethod
    def create(self, cell: Cell, value: Any) -> None:
        """Give a new cell its first value, as one replica sees it."""

    def assigned(self, cell: Cell, value: Any) -> None:  # noqa: B027
        """Take note of a value that was written through another frame."""

    def settle(self, cell: Cell) -> None:  # noqa: B027
        """Let copies that were written while they are updated as one count."""

    def cells(self) -> Iterable[Cell]:
        """The cells whose values this frame could give."""
        raise NotImplementedError

    def note_topology(self, topology: Topology) -> None:
        """Note whose devices the program runs on."""
        raise NotImplementedError


def check_there(cell: Cell) -> None:
    """Raise unless a cell has a value."""
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
    """Cells' own arrays."""

    def whole(self, cell: Cell) -> Any:
        """What the cell stores."""
        if not collectives.is_clean():
            trace_versions.check_reading((), self.versions, cell.name)
        with LOCK:
            check_there(cell)
            if cell.drafts and not cell.settle():
                raise errors.diverging(cell.name, cell.origin)
            cell.escape()
            return cell.array

    def copy(self, cell: Cell, index: int | None) -> Any:
        """What replica `index` sees of the cell, on that replica's device."""
        if cell.split is not None:
            trace_versions.check_reading((), self.versions, cell.name)
            with LOCK:
                check_there(cell)
                return collectives.release(cell.gathered(index))
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
        """Replace what the cell stores."""
        check_level(cell, value, ())
        cell.store(value)

    def set_copy(self, cell: Cell, index: int | None, value: Any) -> None:
        """Replace the copy on one replica's device; the others stay."""
        check_level(cell, value, ())
        if not cell.is_everywhere:
            cell.store(value)
            return
        if cell.split is not None:
            cell.drafts[cell.topology.first if index is None else index] = value
            cell.is_suspect = True
            trace_versions.EAGER.changed()
            cell.escape()
            return
        pieces = list(collectives.shards(cell.array, cell.topology))
        here = cell.topology.position(index)
        shape = pieces[here].shape
        device = cell.topology.local_devices[here]
        pieces[here] = jax.device_put(jnp.reshape(value, shape), device)
        cell.array = cell.topology.assemble(cell.stored_shape, cell.sharding, pieces)
        cell.is_suspect = cell.is_replicated
        trace_versions.EAGER.changed()
        cell.escape()

    def create(self, cell: Cell, value: Any) -> None:
        """Store the first value on all copies."""
        check_level(cell, value, ())
        cell.begin(value)


EAGER = EagerFrame()


@final
class FunctionFrame(StateFrame):
    """The values of cells in a program being traced, as seen from outside replicas."""

    is_compiled = True

    def __init__(
        self,
        cells: Sequence[Cell],
        tracers: Sequence[Any],
        found: trace_versions.Versions = trace_versions.NONE,
    ) -> None:
        self.versions = found
        self.values: dict[Cell, Any] = dict(zip(cells, tracers, strict=True))
        self.inputs = dict(self.values)
        self.written: dict[Cell, None] = {}
        self.created: dict[Cell, Any] = {}
        self.topology: Topology | None = None
        self.is_late = False
        self.feeds: Any = None
        self.pending: dict[Cell, dict[int, Any]] = {}
        self.traces = (jnp.zeros(())._trace,)  # type: ignore[attr-defined]

    def whole(self, cell: Cell) -> Any:
        """What the cell stores."""
        trace_versions.check_reading(self.traces, self.versions, cell.name)
        if cell in self.pending:
            raise errors.diverging(cell.name, cell.origin)
        if cell not in self.values:
            # Made by another thread, or by code that ran outside this trace. For now
            # it is a constant; another trace will find it among its inputs.
            check_there(cell)
            self.values[cell] = cell.array
            self.is_late = True
        return self.values[cell]

    def copy(self, cell: Cell, index: int | None) -> Any:
        """What replica `index` sees of the cell."""
        written = self.pending.get(cell, {})
        if index in written:
            return written[index]
        whole = self.values[cell] if written else self.whole(cell)
        if cell.is_stacked:
            return whole[index or 0]
        # Replicas that take turns each get an object of their own: one object for all
        # would count as one value, not as one per replica.
        return jnp.copy(whole) if index else whole

    def set_whole(self, cell: Cell, value: Any) -> None:
        """Replace what the cell stores."""
        check_level(cell, value, self.traces)
        self.versions.advance()
        self.values[cell] = value
        self.written[cell] = None

    def set_copy(self, cell: Cell, index: int | None, value: Any) -> None:
        """Replace what replica `index` sees."""
        if cell.is_stacked:
            value = self.whole(cell).at[index or 0].set(value)
        elif cell.is_replicated or cell.split is not None:
            # Copy by copy; it counts when all of them have been written.
            self.pending.setdefault(cell, {})[index or 0] = value
            if ambient.current().updating is not cell:
                self.settle(cell)
            return
        self.set_whole(cell, value)

    def settle(self, cell: Cell) -> None:
        """Let copies count if all of them have been written."""
        if len(self.pending.get(cell, ())) == cell.copies:
            self.set_whole(cell, self.pending.pop(cell)[0])

    def finish(self) -> None:
        """Raise if some copies of a mirrored variable were written and others not."""
        for cell in self.pending:
            raise errors.diverging(cell.name, cell.origin)

    def create(self, cell: Cell, value: Any) -> None:
        """Remember the first value; it is stored when the program has run."""
        value = jnp.asarray(value)
        check_level(cell, value, self.traces)
        if cell.is_stacked:
            value = jnp.broadcast_to(value, cell.stored_shape)
        self.values[cell] = self.created[cell] = value

    def cells(self) -> Iterable[Cell]:
        """All cells of the program so far."""
        return self.values

    def note_topology(self, topology: Topology) -> None:
        """Note whose devices the program runs on."""
        self.topology = topology


def frame() -> StateFrame:
    """The frame that reads and writes go through now."""
    return ambient.current().state or EAGER


def peek(cell: Cell) -> Any:
    """The first copy, for a look that keeps no reference to it."""
    source = frame()
    if source.is_compiled or cell.array is None:
        # A program being made may have assigned the cell before.
        return source.copy(cell, 0)
    if not (cell.is_stacked or cell.is_replicated):
        return cell.array
    piece = collectives.shards(cell.array, cell.topology)[0]
    return collectives.release(piece.reshape(cell.shape))


def without_gradient(value: Any) -> Any:
    """`value` as the code around a gradient sees it: assigned values carry none."""
    if isinstance(value, jax.core.Tracer):
        return jax.lax.stop_gradient(value)
    return value


def check_level(cell: Cell, value: Any, traces: tuple[Any, ...]) -> None:
    """Raise if the running code, or `value`, is in a body that JAX transforms apart.

    Args:
        cell: the cell that would be written.
        value: the new value.
        traces: the traces of the frame; none when eager.
    """
    if collectives.is_clean() and not isinstance(value, jax.core.Tracer):
        return
    where = collectives.base_trace()
    is_here = collectives.is_eager(where) or any(where is t for t in traces)
    if is_here and not isinstance(value, jax.core.Tracer):
        return
    if is_here and any(value._trace is t for t in traces):
        return
    body = "a function given to jax.lax.scan, cond, while_loop, jax.checkpoint or vmap"
    if not traces:
        body = f"{body}, or jax.jit itself (use unisono.function instead)"
    raise RuntimeError(
        f"The variable '{cell.name}' (created at {cell.origin}) was assigned inside "
        f"{body}. Its new value exists only in that body and would leak out of it. "
        "Return the value from the body and assign it afterwards."
    )
