"""Replicas and their devices as one mesh, and the safety of CPU collectives.

A replica is on one device, or spans several *logical devices*. Then the mesh has more
axes than the replicas': one for each prime factor of their number, so that an array can
be split any way that their number allows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from unisono._src.machines import devices

AXIS = "replica"


@final
@dataclasses.dataclass(frozen=True)
class Topology:
    """The devices of a strategy, in replica order.

    Everything downstream asks the topology, never `jax.devices()`.

    Attributes:
        names: one device name per replica, of all workers.
        devices: the first device of each replica, of all workers.
        workers: how many processes the replicas are spread over.
        worker: which of them this one is, from 0.
        first: the first replica of this process.
        copies: how many replicas, one after the other, are in this process.
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
            object.__setattr__(self, "copies", len(self.devices))

    @classmethod
    def of(cls, names: Sequence[object]) -> Topology:
        """The topology over the named devices."""
        return cls(*devices.resolve(names))

    @classmethod
    def over_workers(
        cls, job_tasks: Sequence[tuple[str, int]], worker: int
    ) -> Topology:
        """The topology over all devices of all processes, in the order of workers.

        Args:
            job_tasks: job and task of each worker, in the order of JAX's processes.
            worker: which of them this process is.
        """
        found: list[jax.Device] = []
        names: list[str] = []
        counts = []
        for process, (job, task) in enumerate(job_tasks):
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
        """How many replicas there are, over all workers."""
        return len(self.devices)

    @functools.cached_property
    def is_spread(self) -> bool:
        """Whether there are replicas in other processes."""
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
        """All devices of this process, logical ones too, replica by replica."""
        spans = self.spans or tuple((device,) for device in self.devices)
        own = spans[self.first : self.first + self.copies]
        return tuple(device for span in own for device in span)

    @functools.cached_property
    def home(self) -> jax.Device:
        """The first device of this process."""
        return self.devices[self.first]

    def position(self, replica: int | None) -> int:
        """Where a replica stands among those of this process; the first for None.

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
        """The mesh whose first axis is the replicas; others are of logical devices."""
        found = np.array(self.spans or self.devices, dtype=object)
        sides = self.logical_axes
        shape = (self.replicas, *sides.values())
        return Mesh(found.reshape(shape), (AXIS, *sides))

    @functools.cached_property
    def logical(self) -> int:
        """How many logical devices a replica has."""
        return len(self.spans[0]) if self.spans else 1

    @functools.cached_property
    def logical_axes(self) -> dict[str, int]:
        """Names and sizes of the mesh's axes for logical devices."""
        sides = _primes(self.logical)
        return {f"logical_{i}": side for i, side in enumerate(sides)}

    @functools.cached_property
    def is_one_device(self) -> bool:
        """Whether there is one replica on one device."""
        return self.replicas == 1 and self.logical == 1

    def partition(self, parts: Sequence[int]) -> PartitionSpec:
        """How an array is cut into so many parts along each of its axes.

        Args:
            parts: their product is the number of logical devices, or 1.
        """
        left = dict(self.logical_axes)
        spec: list[Any] = []
        for count in parts:
            chosen = []
            for side in _primes(count):
                axis = next(name for name, size in left.items() if size == side)
                chosen.append(axis)
                del left[axis]
            spec.append(tuple(chosen) or None)
        return PartitionSpec(*spec)

    @functools.cached_property
    def replicated(self) -> Any:
        """Sharding of a value that every replica holds whole."""
        if self.is_one_device:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec())

    @functools.cached_property
    def stacked(self) -> Any:
        """Sharding of an array whose first axis is the replicas."""
        if self.is_one_device:
            return SingleDeviceSharding(self.devices[0])
        return NamedSharding(self.mesh, PartitionSpec(AXIS))

    @functools.cached_property
    def meeting_mesh(self) -> Mesh:
        """One device of each process, for values that belong to processes."""
        chosen: dict[int, jax.Device] = {}
        for device in self.devices:
            chosen.setdefault(device.process_index, device)
        return Mesh(np.array(list(chosen.values()), dtype=object), ("worker",))

    def spread(self, whole: Any) -> Any:
        """An array on all replicas' devices, made of this process's value of it."""
        if not self.is_spread:
            return jax.device_put(whole, self.replicated)
        if isinstance(whole, jax.Array) and not whole.is_fully_addressable:
            return whole
        pieces = jax.device_put([whole] * self.copies, list(self.local_devices))
        return self.assemble(pieces[0].shape, self.replicated, pieces)

    def stack(self, rows: Sequence[Any]) -> Any:
        """An array with a leading replica axis, made of this process's rows of it.

        Args:
            rows: one array per replica of this process, each with a first axis of
                size 1. Rows of other processes must have the same shape and type.
        """
        placed = jax.device_put(list(rows), list(self.local_devices))
        shape = (self.replicas, *placed[0].shape[1:])
        return self.assemble(shape, self.stacked, placed)

    def assemble(
        self, shape: tuple[int, ...], sharding: Any, pieces: Sequence[jax.Array]
    ) -> jax.Array:
        """An array made of the pieces on the first device of each replica here."""
        if self.spans:
            local = self.spans[self.first : self.first + self.copies]
            pairs = [(p, d) for p, own in zip(pieces, local, strict=True) for d in own]
            pieces = jax.device_put([p for p, _ in pairs], [d for _, d in pairs])
        return jax.make_array_from_single_device_arrays(shape, sharding, pieces)

    @functools.cached_property
    def needs_throttle(self) -> bool:
        """Whether un-awaited steps could starve XLA's CPU collectives."""
        return not self.is_one_device and self.devices[0].platform == "cpu"


def _primes(number: int) -> list[int]:
    """The prime factors of a number, smallest first.

    >>> _primes(12), _primes(1)
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

    XLA's CPU collectives block a pool thread per participant. Steps dispatched
    without end would take every thread for participants whose partners find none,
    and XLA aborts the process 40 s later. So after each group of steps we wait for a
    result of the group before, which is there as a rule. The pool that `devices.start`
    makes is large enough for steps without end; then the bound is for memory.

    Attributes:
        count: steps dispatched in the present group. Whoever dispatches one counts it
            and calls `wait` when the group is full.
        group: how many steps make a group.
    """

    count = 0
    group = 4
    _mark: jax.Array | None = None

    def wait(self, results: Sequence[jax.Array], stored: Sequence[jax.Array]) -> None:
        """Begin another group.

        Args:
            results: arrays that the last step gives to its caller.
            stored: arrays that the next step may take over.
        """
        self.count = 0
        self.group = 16 if devices.pool_is_large() else 4
        oldest, self._mark = self._mark, None
        if results and results[-1].nbytes <= _LARGEST_MARK:
            self._mark = results[-1]
        if oldest is None and self._mark is None:
            oldest = next(iter((*results, *stored)), None)
        if oldest is not None and not oldest.is_deleted():
            # If another thread donates the array meanwhile, its step is done as well.
            with contextlib.suppress(RuntimeError):
                oldest.block_until_ready()


THROTTLE = Throttle()
# Larger results are not kept only to be waited for.
_LARGEST_MARK = 1 << 16
