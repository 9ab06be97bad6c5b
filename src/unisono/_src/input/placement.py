"""Putting the parts of a step on the devices of their replicas."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from unisono._src import values
from unisono._src.input import cursors, elements, steps
from unisono._src.topology import Topology


class Placed(cursors.Derived):
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

    def read(self, count: int) -> list[Any]:
        """Read and place."""
        return [
            steps.Step(self._place(step), None, step.units)
            for step in self._source.read(count)
        ]

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
        count = self._topology.replicas
        own = functools.partial(_owned, fresh=self._fresh, fetch=self._fetch)
        if count == 1:
            part = elements.map_leaves(own, step.parts()[0])
            if not self._fetch:
                return elements.present(part)
            return _put_plain(part, self._topology)
        if self._topology.is_spread:
            parts = [elements.map_leaves(own, p) for p in step.parts()]
            return _put_local(parts, self._topology, self._fetch, bool(step.even))
        if step.bounds is None:
            parts = [elements.map_leaves(own, p) for p in step.batch]
            return _put_parts(parts, self._topology, self._fetch)
        batch = elements.map_leaves(own, step.batch)
        sizes = {stop - start for start, stop in step.bounds}
        total = sum(stop - start for start, stop in step.bounds)
        covers = total == elements.length(batch)
        if self._fetch and covers and len(sizes) == 1 and not _has_text(batch):
            return _put_even(batch, sizes.pop(), self._topology)
        parts = [elements.rows(batch, a, b) for a, b in step.bounds]
        return _put_parts(parts, self._topology, self._fetch)


def _owned(x: Any, fresh: bool, fetch: bool) -> np.ndarray:
    """The array in memory that no one else will change, in a type that JAX holds."""
    array = elements.as_array(x)
    if array.dtype.kind == "O":
        return array
    kind = jax.dtypes.canonicalize_dtype(array.dtype)
    if fetch and kind != array.dtype:
        return array.astype(kind)
    return array if fresh and array.base is None else array.copy()


def _has_text(batch: Any) -> bool:
    return any(x.dtype.kind == "O" for x in elements.leaves(batch))


def _put_plain(part: Any, topology: Topology) -> Any:
    def one(x: np.ndarray) -> Any:
        if x.dtype.kind == "O":
            return elements.present(x)
        # On all logical devices of the replica, where a program wants it.
        return jax.device_put(x, topology.replicated)

    return elements.map_leaves(one, part)


def _put_even(batch: Any, size: int, topology: Topology) -> Any:
    """One transfer per device and array, straight from the batch."""
    count = topology.replicas
    where = topology.stacked

    def one(x: np.ndarray) -> values.PerReplica:
        rows = x.reshape((count, size, *x.shape[1:]))
        # Half the time of `jax.device_put`, which asks more questions.
        placed = jax.make_array_from_callback(rows.shape, where, rows.__getitem__)
        return values.PerReplica.from_stacked(placed, count)

    return elements.map_leaves(one, batch)


def _put_parts(parts: Sequence[Any], topology: Topology, fetch: bool) -> Any:
    columns = list(zip(*map(elements.leaves, parts), strict=True))
    made = iter([_put_column(c, topology, fetch) for c in columns])
    return elements.map_leaves(lambda _: next(made), parts[0])


def _put_local(
    parts: Sequence[Any], topology: Topology, fetch: bool, even: bool
) -> Any:
    """The parts of this worker's replicas.

    Args:
        parts: one per local replica.
        topology: the replicas of all workers.
        fetch: whether they go to the devices.
        even: whether the parts of all workers have the same shapes.
    """

    def one(column: Sequence[Any]) -> Any:
        if not fetch or column[0].dtype.kind == "O":
            return values.PerReplica([elements.present(x) for x in column], topology)
        if even:
            whole = topology.stack([x[None] for x in column])
            return values.PerReplica.from_stacked(whole, topology.replicas)
        placed = jax.device_put(list(column), list(topology.local_devices))
        return values.PerReplica(placed, topology)

    columns = list(zip(*map(elements.leaves, parts), strict=True))
    made = iter([one(c) for c in columns])
    return elements.map_leaves(lambda _: next(made), parts[0])


def _put_column(column: Sequence[Any], topology: Topology, fetch: bool) -> Any:
    if not fetch or column[0].dtype.kind == "O":
        return values.PerReplica([elements.present(x) for x in column])
    if len({x.shape for x in column}) == 1:
        rows = [x[None] for x in column]
        placed = jax.device_put(rows, list(topology.devices))
        shape = (len(rows), *column[0].shape)
        whole = topology.assemble(shape, topology.stacked, placed)
        return values.PerReplica.from_stacked(whole, topology.replicas)
    placed = jax.device_put(list(column), list(topology.devices))
    return values.PerReplica(placed, topology)
