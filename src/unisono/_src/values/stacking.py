"""Splits arrays of all replicas into one per replica, and puts them together again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from unisono._src.foundation import wide_numbers
from unisono._src.machines.topology import Topology
from unisono._src.values import collectives, jax_tapes

_T = TypeVar("_T")


def split_copies(whole: _T, count: int) -> tuple[int, tuple[_T, ...]]:
    """Returns the first replica of this process, and the copies of its replicas."""
    first, here = 0, count

    def split(x: Any) -> list[Any]:
        nonlocal first, here
        if isinstance(x, jax.Array) and len(x.sharding.device_set) >= count > 1:
            # The library puts arrays on several devices by a `NamedSharding` only.
            mesh = x.sharding.mesh  # type: ignore[attr-defined]
            if not x.is_fully_replicated:
                x = jax.device_put(x, NamedSharding(mesh, PartitionSpec()))
            by_device = {s.device: s.data for s in x.addressable_shards}
            # The mesh has a row for each replica; its first device has the copy.
            order = list(mesh.devices.reshape(count, -1)[:, 0])
            found = [i for i, d in enumerate(order) if d in by_device]
            first, here = found[0], len(found)
            return [collectives.release(by_device[order[i]]) for i in found]
        # On one device, or no array: every replica has the same object.
        return [x] * count

    leaves, treedef = _flatten(whole)
    columns = [split(x) for x in leaves]
    every = (treedef.unflatten([c[i] for c in columns]) for i in range(here))
    return first, tuple(every)


def unstack(stacked: _T, count: int) -> tuple[_T, ...]:
    """Returns the rows of this process, each on its replica's device."""

    def split(x: jax.Array) -> list[jax.Array]:
        if isinstance(x, jax.core.Tracer) or len(x.sharding.device_set) == 1:
            return [x[i] for i in range(count)]
        if x.size == 0:
            return _split_empty(x, count)
        # A row lies on all logical devices of its replica; one shard of it is enough.
        own = [s for s in x.addressable_shards if s.replica_id == 0]
        found = sorted(own, key=lambda s: s.index[0].start or 0)
        pieces = [s.data.reshape(s.data.shape[1:]) for s in found]
        return [collectives.release(p) for p in pieces]

    leaves, treedef = _flatten(stacked)
    columns = [split(x) for x in leaves]
    here = min(map(len, columns), default=count)
    return tuple(treedef.unflatten([c[i] for c in columns]) for i in range(here))


def _split_empty(x: jax.Array, count: int) -> list[jax.Array]:
    """Returns the rows of this process of an array without elements.

    XLA does not split such an array: each device may have all rows.
    """
    pieces = [shard.data for shard in x.addressable_shards]
    logical = len(x.sharding.device_set) // count
    return [collectives.release(p[0]) for p in pieces[::logical]]


def stack(parts: Sequence[_T], topology: Topology) -> _T | None:
    """Returns the parts as arrays with a row per replica; None if they are uneven."""
    flat = [_flatten(p) for p in parts]
    treedef = flat[0][1]
    kinds = None
    if all(f[1] == treedef for f in flat):
        columns = list(zip(*(f[0] for f in flat), strict=True))
        kinds = _kinds(columns)
    if topology.is_spread and not jax_tapes.has_tracer(parts):
        # A worker with uneven values asks too: the others wait for its answer.
        kinds = collectives.common_kinds(treedef, kinds, topology)
    if kinds is None:
        return None
    stacked = [_stack_column(column, topology) for column in columns]
    made: _T = treedef.unflatten(stacked)
    return made


def _kinds(columns: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Returns the shape and type of each column; None if a column has several."""
    numbers = (jax.Array, np.ndarray, np.generic, int, float, bool, complex)
    kinds = []
    for column in columns:
        if not all(isinstance(x, numbers) for x in column):
            return None
        found = {(jnp.shape(x), jnp.result_type(x)) for x in column}
        if len(found) > 1:
            return None
        kinds.append(found.pop())
    return kinds


def _stack_column(column: Sequence[ArrayLike], topology: Topology) -> jax.Array:
    if jax_tapes.has_tracer(column):
        return jnp.stack([jnp.asarray(x) for x in column])
    if topology.is_one_device:
        only = column[0]
        row = only[None] if isinstance(only, jax.Array) else _numpy_row(only)
        placed: jax.Array = jax.device_put(row, topology.stacked_sharding)
        return placed
    rows = [
        x.reshape((1, *x.shape)) if isinstance(x, jax.Array) else _numpy_row(x)
        for x in column
    ]
    return topology.stack(rows)


def _numpy_row(x: ArrayLike) -> np.ndarray:
    """Returns a copy of `x` with a leading axis, in the type that JAX would use."""
    wanted = jax.dtypes.canonicalize_dtype(jnp.result_type(x))
    given = np.asarray(x)
    return np.array(wide_numbers.check(given, "a per-replica value"), wanted)[None]


def _flatten(tree: object) -> tuple[list[Any], Any]:
    # Typed by hand: mypy does not know what jaxlib's structures can do.
    return jax.tree.flatten(tree)
