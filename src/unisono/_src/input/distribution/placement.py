"""Putting the parts of a step on the devices of their replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np

from unisono._src.input.distribution import steps
from unisono._src.input.plan import cursors, elements, host_buffers
from unisono._src.machines import transfers
from unisono._src.machines.topology import Topology
from unisono._src.values import distributed


@final
class Placed(cursors.OfSource):
    """Steps as the program sees them: each value on its replica's device.

    Args:
        source: gives steps.
        topology: the replicas and their devices.
        fresh: whether the arrays of a step are in memory that no one else has.
        fetch: whether values go to the devices, or stay on the host.
    """

    def __init__(
        self, source: cursors.Cursor, topology: Topology, fresh: bool, fetch: bool
    ) -> None:
        super().__init__(source)
        self._topology, self._fresh, self._fetch = topology, fresh, fetch
        self._buffers = host_buffers.Buffers()
        # What JAX makes of the types of NumPy.
        self._types: dict[np.dtype, np.dtype] = {}
        self._transfers = transfers.Transfers(topology)
        # The cuts and the size of the batch before, and how many rows each got.
        self._seen: tuple[Any, int, int] = (None, -1, 0)

    def read(self, count: int) -> list[Any]:
        """Read and place, one by one: a function may use the memory of a step again."""
        found: list[Any] = []
        while len(found) < count:
            block = self._source.read(1)
            if not block:
                break
            found.append(steps.Step(self._place(block[0]), None, block[0].units))
        return found

    def skip(self, count: int) -> int:
        """In the units of the source."""
        return self._source.skip(count)

    def units(self, found: Sequence[Any]) -> int:
        """Those of the source."""
        return sum(step.units for step in found)

    def get_state(self) -> dict[str, Any]:
        """The position in the source."""
        return self._source.get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Set the position in the source."""
        self._source.set_state(state)

    def _place(self, step: steps.Step) -> Any:
        topology = self._topology
        is_split = topology.replicas > 1 and not topology.is_spread
        if step.bounds is not None and self._fetch and is_split:
            batch, bounds = step.batch, step.bounds
            first = batch if type(batch) is np.ndarray else next(elements.leaves(batch))
            if (bounds, len(first)) != self._seen[:2]:
                size = _even_rows(len(first), bounds)
                self._seen = bounds, len(first), size
            size = self._seen[2]
            if size and first is batch:
                return self._put_rows(self._owned(batch), size)
            if size:
                return elements.map_leaves(
                    lambda x: self._put_rows(self._owned(x), size), batch
                )
        parts = [elements.map_leaves(self._owned, p) for p in step.parts()]
        if topology.replicas > 1:
            return self._put_parts(parts, not topology.is_spread or bool(step.even))
        if not self._fetch:
            return elements.present(parts[0])
        return elements.map_leaves(self._put_whole, parts[0])

    def _put_whole(self, x: np.ndarray) -> Any:
        if x.dtype.kind == "O":
            return elements.present(x)
        # On all logical devices of the replica, where a program wants it.
        return self._transfers.replicate(x)

    def _put_rows(self, x: np.ndarray, size: int) -> distributed.PerReplica:
        """So many rows for each replica, straight from the batch."""
        if x.dtype.kind == "O":
            return self._put_column(np.split(x, len(x) // size), False)
        rows = x.reshape((len(x) // size, size, *x.shape[1:]))
        whole = self._transfers.stack([rows[i : i + 1] for i in range(len(rows))])
        return distributed.PerReplica.from_stacked(whole, self._topology.replicas)

    def _put_parts(self, parts: Sequence[Any], even: bool) -> Any:
        """One part for each replica of this worker.

        Args:
            parts: one per local replica.
            even: whether those of other workers have the same shapes, if there are any.
        """
        columns = list(zip(*map(elements.leaves, parts), strict=True))
        made = iter([self._put_column(c, even) for c in columns])
        return elements.map_leaves(lambda _: next(made), parts[0])

    def _put_column(self, column: Sequence[Any], even: bool) -> distributed.PerReplica:
        if not self._fetch or column[0].dtype.kind == "O":
            found = [elements.present(x) for x in column]
            return distributed.PerReplica(found, self._topology)
        if even and len({x.shape for x in column}) == 1:
            whole = self._transfers.stack([x[None] for x in column])
            return distributed.PerReplica.from_stacked(whole, self._topology.replicas)
        placed = jax.device_put(list(column), list(self._topology.local_devices))
        return distributed.PerReplica(placed, self._topology)

    def _owned(self, x: Any) -> np.ndarray:
        """The array in memory that no one else will change, in a type JAX holds."""
        array = x if type(x) is np.ndarray else elements.as_array(x)
        if array.dtype.kind == "O":
            return array
        kind = self._types.get(array.dtype)
        if kind is None:
            kind = array.dtype.newbyteorder("=")
            if self._fetch:
                kind = jax.dtypes.canonicalize_dtype(kind)
            self._types[array.dtype] = kind
        is_fresh = self._fresh and kind == array.dtype
        if array.nbytes < host_buffers.SMALL:
            is_own = is_fresh and array.base is None
            return array if is_own else np.array(array, kind, order="C")
        if is_fresh and host_buffers.is_own(array):
            return array
        return self._buffers.copy(array, kind)


def _even_rows(rows: int, bounds: Sequence[tuple[int, int]]) -> int:
    """How many rows each replica gets, if all get as many and none is left; else 0."""
    size = bounds[0][1]
    if any(place != (i * size, (i + 1) * size) for i, place in enumerate(bounds)):
        return 0
    return size if len(bounds) * size == rows else 0
