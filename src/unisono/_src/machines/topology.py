"""Arranges replicas and their devices in one mesh, and keeps CPU collectives safe.

A replica is on one device, or spans several *logical devices*. In the second case the
mesh has further axes: one for each prime factor of the number of logical devices, so
that an array can be split in any way that this number allows (docs/decisions/0016).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import final

import jax
import numpy as np
from jax.sharding import (
    Mesh,
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from jax.typing import ArrayLike

from unisono._src.machines import devices

# The name of the mesh axis over which replicas lie, in every program.
AXIS = "replica"


@final
@dataclasses.dataclass(frozen=True)
class Topology:
    """The devices of a strategy, in replica order.

    The layers above ask the topology for devices, never `jax.devices()`.

    Attributes:
        names: one device name per replica, of all workers.
        devices: the first device of each replica, of all workers.
        workers: the number of processes that have the replicas.
        worker: the index of this process among them.
        first: the first replica of this process.
        copies: the number of replicas of this process, which follow one another.
        spans: the logical devices of each replica, where it has more than one.
    """

    names: tuple[str, ...]
    devices: tuple[jax.Device, ...]
    workers: int = 1
    worker: int = 0
    first: int = 0
    copies: int = dataclasses.field(default=0)
    spans: tuple[tuple[jax.Device, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.workers == 1:
            # A frozen dataclass refuses a plain assignment here, too.
            object.__setattr__(self, "copies", len(self.devices))

    @classmethod
    def of(cls, names: Sequence[object]) -> Topology:
        """Returns the topology of the named devices, one replica on each."""
        return cls(*devices.resolve(names))

    @classmethod
    def from_tasks(cls, job_tasks: Sequence[tuple[str, int]], worker: int) -> Topology:
        """Returns the topology of all devices of all processes, in worker order.

        Args:
            job_tasks: the job and task of each worker, in the order of JAX's processes.
            worker: the index of this process among them.
        """
        found: list[jax.Device] = []
        names: list[str] = []
        counts = []
        for process, (job, task) in enumerate(job_tasks):
            # JAX may list devices of several processes in any order; replicas go by
            # worker.
            own = [d for d in jax.devices() if d.process_index == process]
            counts.append(len(own))
            found.extend(own)
            names.extend(devices.names_of(own, job, task))
        first = sum(counts[:worker])
        return cls(
            tuple(names), tuple(found), len(job_tasks), worker, first, counts[worker]
        )

    @functools.cached_property
    def replicas(self) -> int:
        """The number of replicas of all workers."""
        return len(self.devices)

    @functools.cached_property
    def is_spread(self) -> bool:
        """Whether other processes have replicas, too."""
        return self.workers > 1

    @functools.cached_property
    def local(self) -> range:
        """The replicas of this process."""
        return range(self.first, self.first + self.copies)

    @functools.cached_property
    def local_devices(self) -> tuple[jax.Device, ...]:
        """The devices of this process's replicas."""
        return self.devices[self.first : self.first + self.copies]

    @functools.cached_property
    def local_names(self) -> tuple[str, ...]:
        """The names of this process's devices."""
        return self.names[self.first : self.first + self.copies]

    @functools.cached_property
    def own_devices(self) -> tuple[jax.Device, ...]:
        """All devices of this process, replica by replica, with the logical ones."""
        spans = self.spans or tuple((device,) for device in self.devices)
        own = spans[self.first : self.first + self.copies]
        return tuple(device for span in own for device in span)

    @functools.cached_property
    def home(self) -> jax.Device:
        """The first device of this process."""
        return self.devices[self.first]

    def position(self, replica: int | None) -> int:
        """Returns the position of a replica among those of this process.

        Args:
            replica: the replica; None stands for the first of this process.

        Raises:
            IndexError: the replica is in another process.
        """
        place = 0 if replica is None else replica - self.first
        if not 0 <= place < self.copies:
            raise IndexError(
                f"Replica {replica} is on another worker; this one has the replicas "
                f"{self.first} to {self.first + self.copies - 1}."
            )
        return place

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The mesh; its first axis is the replicas, the others the logical devices."""
        found = np.array(self.spans or self.devices, dtype=object)
        sides = self.logical_axes
        shape = (self.replicas, *sides.values())
        return Mesh(found.reshape(shape), (AXIS, *sides))

    @functools.cached_property
    def num_logical_devices(self) -> int:
        """The number of logical devices of a replica."""
        return len(self.spans[0]) if self.spans else 1

    @functools.cached_property
    def logical_axes(self) -> dict[str, int]:
        """The names and sizes of the mesh's axes for logical devices."""
        sides = _prime_factors(self.num_logical_devices)
        return {f"logical_{i}": side for i, side in enumerate(sides)}

    @functools.cached_property
    def is_one_device(self) -> bool:
        """Whether there is one replica on one device."""
        return self.replicas == 1 and self.num_logical_devices == 1

    def partition(self, parts: Sequence[int]) -> PartitionSpec:
        """Returns the layout of an array that logical devices share.

        Args:
            parts: the number of parts along each axis of the array. Their product is
                the number of logical devices, or 1.
        """
        # Each part count takes mesh axes whose sizes are its prime factors; an axis can
        # split one dimension only.
        left = dict(self.logical_axes)
        spec: list[tuple[str, ...] | None] = []
        for count in parts:
            chosen = []
            for side in _prime_factors(count):
                axis = next(name for name, size in left.items() if size == side)
                chosen.append(axis)
                del left[axis]
            spec.append(tuple(chosen) or None)
        return PartitionSpec(*spec)

    @functools.cached_property
    def replicated_sharding(self) -> NamedSharding | SingleDeviceSharding:
        """The sharding of a value that every replica holds whole."""
        if self.is_one_device:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec())

    @functools.cached_property
    def stacked_sharding(self) -> NamedSharding | SingleDeviceSharding:
        """The sharding of an array whose first axis is the replicas."""
        if self.is_one_device:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @functools.cached_property
    def meeting_mesh(self) -> Mesh:
        """A mesh of one device per process, for values that belong to processes."""
        chosen: dict[int, jax.Device] = {}
        for device in self.devices:
            chosen.setdefault(device.process_index, device)
        return Mesh(np.array(list(chosen.values()), dtype=object), ("worker",))

    def spread(self, whole: ArrayLike) -> jax.Array:
        """Returns an array on the devices of all replicas.

        Args:
            whole: the value, which must be the same in all processes.
        """
        if not self.is_spread:
            placed: jax.Array = jax.device_put(whole, self.replicated_sharding)
            return placed
        if isinstance(whole, jax.Array) and not whole.is_fully_addressable:
            return whole
        pieces = jax.device_put([whole] * self.copies, list(self.local_devices))
        return self.assemble(pieces[0].shape, self.replicated_sharding, pieces)

    def stack(self, rows: Sequence[ArrayLike]) -> jax.Array:
        """Returns an array with a leading replica axis, made of this process's rows.

        Args:
            rows: one array per replica of this process, each with a first axis of
                size 1. Rows of other processes must have the same shape and type.
        """
        placed = jax.device_put(list(rows), list(self.local_devices))
        shape = (self.replicas, *placed[0].shape[1:])
        return self.assemble(shape, self.stacked_sharding, placed)

    def assemble(
        self, shape: tuple[int, ...], sharding: Sharding, pieces: Sequence[jax.Array]
    ) -> jax.Array:
        """Returns an array made of pieces, with copies on the logical devices.

        Args:
            shape: the shape of the whole array.
            sharding: how the pieces make up the array.
            pieces: one array on the first device of each replica of this process.
        """
        if self.spans:
            local = self.spans[self.first : self.first + self.copies]
            pairs = [(p, d) for p, own in zip(pieces, local, strict=True) for d in own]
            pieces = jax.device_put([p for p, _ in pairs], [d for _, d in pairs])
        return jax.make_array_from_single_device_arrays(shape, sharding, pieces)

    @functools.cached_property
    def needs_throttle(self) -> bool:
        """Whether steps that nobody waits for could starve XLA's CPU collectives."""
        return not self.is_one_device and self.devices[0].platform == "cpu"


def _prime_factors(number: int) -> list[int]:
    """Returns the prime factors of a number, smallest first.

    >>> _prime_factors(12), _prime_factors(1)
    ([2, 2, 3], [])
    """
    found, factor = [], 2
    while number > 1:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor = factor + 1 if factor <= math.isqrt(number) else max(number, 2)
    return found


@final
class Throttle:
    """Bounds the steps in flight on virtual CPU devices.

    XLA's CPU collectives block a pool thread per participant. If steps are dispatched
    without a bound, participants can take every thread while their partners find none,
    and XLA aborts the process 40 s later. So after each group of steps we wait for a
    result of the group before, which is usually there already. The pool that
    `devices.start` makes is large enough for any number of steps; with it the bound
    saves memory only. See docs/decisions/0005.

    Attributes:
        count: the steps dispatched in the present group. The code that dispatches a
            step counts it, and calls `wait` when the group is full.
        group: the number of steps in a group.
        block: waits for an array; the guard of several workers has a way of its own.
    """

    count = 0
    group = 4
    block: Callable[[jax.Array], object] = staticmethod(jax.block_until_ready)
    _mark: jax.Array | None = None

    def wait(self, results: Sequence[jax.Array], stored: Sequence[jax.Array]) -> None:
        """Waits for the group before this one, and begins another group.

        Args:
            results: the arrays that the last step returned to its caller.
            stored: the arrays that the last step stored; the next step may donate them.
        """
        self.count = 0
        # A small pool, which somebody else has made, allows fewer steps at a time.
        self.group = 16 if devices.has_large_pool() else 4
        oldest, self._mark = self._mark, None
        if results and results[-1].nbytes <= _LARGEST_MARK:
            self._mark = results[-1]
        # Without a small result to remember, wait for the last step itself.
        if oldest is None and self._mark is None:
            oldest = next(iter((*results, *stored)), None)
        if oldest is not None and not oldest.is_deleted():
            # Another thread may donate the array meanwhile, which raises here. The
            # step that made the array is done in that case, too.
            with contextlib.suppress(RuntimeError):
                self.block(oldest)


THROTTLE = Throttle()
# In bytes. A larger result would take too much memory to be kept for the wait alone.
_LARGEST_MARK = 1 << 16
