"""Puts the parts of a step on the devices of their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.foundation import wide_numbers
from unisono._src.input.distribution import steps
from unisono._src.input.plan import cursors, elements, host_buffers
from unisono._src.input.stages import prefetch
from unisono._src.machines.topology import Topology
from unisono._src.values import collectives, distributed

# The number of shapes whose types are remembered.
_SHAPES = 256
# So many steps, and so many bytes of them for each replica, are on their way to
# accelerators, if the user does not ask for more.
_MOST_STEPS = 8
_MOST_BYTES = 1 << 27


@final
# To find shape, type and sharding out anew takes JAX longer than the transfer of a
# small batch takes (decision 0021). So the first array of a kind is made by JAX's
# public functions, and the later ones from its abstract value alone.
class _Transfers:
    """Puts arrays on devices, and remembers what JAX made of arrays like them.

    Args:
        topology: the replicas and their devices.
    """

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._devices = list(topology.own_devices)
        self._types: dict[Any, Any] = {}

    def stack(self, rows: Sequence[np.ndarray]) -> jax.Array:
        """Returns an array with a leading replica axis.

        Args:
            rows: one per replica of this process, each with a first axis of size 1.
        """
        first = rows[0]
        key = (True, first.shape, first.dtype)
        known = self._types.get(key)
        if known is None:
            return self._remember(key, self._topology.stack(rows))
        each = self._topology.num_logical_devices
        # Every logical device of a replica has a copy of the replica's row.
        pieces = [row for row in rows for _ in range(each)] if each > 1 else rows
        return collectives.put_pieces(
            known, self._topology.stacked_sharding, pieces, self._devices
        )

    def replicate(self, x: np.ndarray) -> jax.Array:
        """Returns an array that every replica has; all of them are in this process."""
        key = (False, x.shape, x.dtype)
        known = self._types.get(key)
        where = self._topology.replicated_sharding
        if known is None:
            return self._remember(key, jax.device_put(x, where))
        return collectives.put_pieces(
            known, where, [x] * len(self._devices), self._devices
        )

    def _remember(self, key: object, made: jax.Array) -> jax.Array:
        if len(self._types) >= _SHAPES:
            self._types.clear()
        self._types[key] = made.aval
        return made


@final
class PlacedSteps(cursors.SamePosition):
    """The steps as the program sees them: each value on the device of its replica.

    Args:
        source: the steps to place.
        topology: the replicas and their devices.
        fresh: whether no one else holds the memory of the arrays of a step.
        fetch: whether values go to the devices; else they stay on the host.
    """

    def __init__(
        self, source: cursors.Cursor, topology: Topology, fresh: bool, fetch: bool
    ) -> None:
        super().__init__(source)
        self._topology, self._fresh, self._fetch = topology, fresh, fetch
        self._buffers = host_buffers.Buffers()
        # The type that JAX gives to each NumPy type; asking JAX every time is slow.
        self._types: dict[np.dtype, np.dtype] = {}
        self._transfers = _Transfers(topology)
        # The cuts and the size of the last batch, and how many rows each replica got:
        # most batches are cut alike.
        self._last_cut: tuple[Any, int, int] = (None, -1, 0)

    def read(self, count: int) -> list[Any]:
        """Reads and places the steps one by one.

        A user's function may fill the memory of one step again for the next.

        Raises:
            OverflowError: a number of 64 bits does not fit the type that JAX has.
        """
        found: list[Any] = []
        while len(found) < count:
            block = self._source.read(1)
            if not block:
                break
            try:
                placed = self._place(block[0])
            except OverflowError:
                _check_components(block[0])
                raise
            found.append(steps.Step(placed, None, block[0].units))
        return found

    def units(self, found: Sequence[Any]) -> int:
        """Returns how far the steps move the position in the source."""
        return sum(step.units for step in found)

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets the position in the source."""
        self._source.set_state(state)

    def _place(self, step: steps.Step) -> object:
        """Returns the values of a step, on the devices or on the host."""
        topology = self._topology
        is_split = topology.replicas > 1 and not topology.is_spread
        # The usual case: one batch in equal parts, which become one array across the
        # devices.
        if step.bounds is not None and self._fetch and is_split:
            batch, bounds = step.batch, step.bounds
            first = batch if type(batch) is np.ndarray else next(elements.leaves(batch))
            if (bounds, len(first)) != self._last_cut[:2]:
                size = _even_rows(len(first), bounds)
                self._last_cut = bounds, len(first), size
            size = self._last_cut[2]
            if size and first is batch:
                return self._put_rows(self._to_own_memory(batch), size)
            if size:
                return elements.map_leaves(
                    lambda x: self._put_rows(self._to_own_memory(x), size), batch
                )
        parts = [elements.map_leaves(self._to_own_memory, p) for p in step.parts()]
        if topology.replicas > 1:
            # If nobody knows what the other workers
            # have (None), the parts are put one by one.
            return self._put_parts(parts, not topology.is_spread or bool(step.even))
        if not self._fetch:
            return elements.present(parts[0])
        return elements.map_leaves(self._put_whole, parts[0])

    def _put_whole(self, x: np.ndarray) -> object:
        """Puts an array on the one replica; text stays on the host."""
        if x.dtype.kind == "O":
            return elements.present(x)
        # On all logical devices of the replica, because a program may use each of them.
        return self._transfers.replicate(x)

    def _put_rows(self, x: np.ndarray, size: int) -> distributed.PerReplica:
        """Puts `size` rows on each replica, straight from the batch."""
        if x.dtype.kind == "O":
            return self._put_column(np.split(x, len(x) // size), False)
        rows = x.reshape((len(x) // size, size, *x.shape[1:]))
        whole = self._transfers.stack([rows[i : i + 1] for i in range(len(rows))])
        return self._from_stacked(whole)

    def _put_parts(self, parts: Sequence[Any], even: bool) -> object:
        """Puts one part on each replica of this worker.

        Args:
            parts: one part per local replica.
            even: whether the parts of other workers, if there are any, have the same
                shapes.
        """
        columns = list(zip(*map(elements.leaves, parts), strict=True))
        made = iter([self._put_column(c, even) for c in columns])
        return elements.map_leaves(lambda _: next(made), parts[0])

    def _put_column(self, column: Sequence[Any], even: bool) -> distributed.PerReplica:
        """Puts one component of the parts on the replicas."""
        if not self._fetch or column[0].dtype.kind == "O":
            found = [elements.present(x) for x in column]
            return distributed.PerReplica(found, self._topology)
        # An array across workers needs the same shape on every one of them.
        if even and len({x.shape for x in column}) == 1:
            whole = self._transfers.stack([x[None] for x in column])
            return self._from_stacked(whole)
        # Parts of different shapes cannot be one array, so each is put by itself.
        placed = jax.device_put(list(column), list(self._topology.local_devices))
        return distributed.PerReplica(placed, self._topology)

    def _from_stacked(self, whole: jax.Array) -> distributed.PerReplica:
        return distributed.PerReplica.from_stacked(
            whole, self._topology.replicas, self._topology
        )

    def _to_own_memory(self, x: object) -> np.ndarray:
        """Returns the array in a type that JAX holds and memory that no one changes."""
        array = x if type(x) is np.ndarray else elements.as_array(x)
        if array.dtype.kind == "O":
            return array
        kind = self._types.get(array.dtype)
        if kind is None:
            # Files may hold numbers of the other byte order, which
            # JAX does not take. Without 64-bit types JAX would
            # shorten them, too; here it happens in one copy.
            kind = array.dtype.newbyteorder("=")
            if self._fetch:
                kind = jax.dtypes.canonicalize_dtype(kind)
            self._types[array.dtype] = kind
        if self._fetch and kind != array.dtype:
            wide_numbers.check(array)
        is_fresh = self._fresh and kind == array.dtype
        # A small array is copied by NumPy, which is cheaper than finding a buffer. JAX
        # reads a CPU array in place, so memory that others may change must be copied.
        if array.nbytes < host_buffers.SMALL:
            is_own = is_fresh and array.base is None
            return array if is_own else np.array(array, kind, order="C")
        if is_fresh and host_buffers.is_own(array):
            return array
        return self._buffers.copy(array, kind)


@final
class Accelerators(prefetch.Destination):
    """Devices to which steps are copied while they compute.

    JAX copies an array through memory of its own first, and then to the device when
    that has computed what it was given by then. A step must be under way before the
    ones before it are computed, or the device waits for it (decision 0021).

    Args:
        topology: the replicas and their devices.
    """

    def __init__(self, topology: Topology) -> None:
        self._replicas = topology.replicas

    def has_arrived(self, element: steps.Step) -> bool:
        """Returns whether the values of a step are on the devices."""
        return all(x.is_ready() for x in _arrays(element))

    def room(self, element: steps.Step) -> int:
        """Returns how many steps like this one may be under way."""
        size: int = sum(x.nbytes for x in _arrays(element)) // self._replicas
        return min(_MOST_STEPS, _MOST_BYTES // max(1, size))


def _arrays(step: steps.Step) -> list[Any]:
    leaves: list[Any] = jax.tree.leaves(step.batch)
    return [x for x in leaves if isinstance(x, jax.Array)]


def _check_components(step: steps.Step) -> None:
    """Raises an error that names the component with a number that does not fit."""
    batches = [step.batch] if step.bounds is not None else step.batch
    for batch in batches:
        for path, leaf in elements.paths(batch):
            name = f"the component {path} of a batch" if path else "a batch"
            wide_numbers.check(leaf, f"{name} of a distributed dataset")


def _even_rows(rows: int, bounds: Sequence[tuple[int, int]]) -> int:
    """Returns how many rows each replica gets if all get the same number; else 0."""
    size = bounds[0][1]
    if any(place != (i * size, (i + 1) * size) for i, place in enumerate(bounds)):
        return 0
    return size if len(bounds) * size == rows else 0
