"""Picks elements by position or by mask, and puts elements in positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import elementwise, kinds, shaping, tensors
from unisono._src.values import jax_tapes


def _positions(name: str, indices: Any) -> jax.Array:
    """Returns positions as an array of integers."""
    found = tensors.tensor(indices)
    kinds.check(name, found.dtype, kinds.INTEGER)
    return found


def check_bounds(name: str, indices: Any, size: Any, low: int = 0) -> None:
    """Raises `InvalidArgumentError` unless known positions are from `low` to `size`."""
    # In a program positions are not known yet, and accelerators do not check them, as
    # in TensorFlow.
    if jax_tapes.is_traced(indices):
        return
    known = np.asarray(indices)
    wrong = (known < low) | (known >= np.asarray(size))
    if wrong.any():
        where = tuple(int(i[0]) for i in np.nonzero(wrong))
        limit = np.broadcast_to(np.asarray(size), known.shape)[where]
        raise errors.InvalidArgumentError(
            f"indices{list(where)} = {known[where]} is not in [0, {limit}) in {name}."
        )


def _guard(indices: jax.Array, size: int) -> jax.Array:
    """Returns positions that JAX would not count from the end."""
    if not jax_tapes.is_traced(indices):
        return indices  # They were checked.
    # `size` is behind the end, where the modes "fill" and "drop" take effect.
    return jnp.where(indices < 0, size, indices)


def gather(params: Any, indices: Any, axis: Any, batch_dims: Any) -> jax.Array:
    """Returns the slices of an array at given positions along an axis.

    Raises:
        InvalidArgumentError: a known position is not in the array.
    """
    found = tensors.tensor(params)
    places = _positions("gather", indices)
    batch = tensors.require_known("gather", "batch_dims", batch_dims)
    batch = batch + places.ndim if batch < 0 else batch
    along = batch if axis is None else axis
    along = shaping.find_axis("gather", along, found.ndim)
    if batch > along or found.shape[:batch] != places.shape[:batch]:
        raise errors.InvalidArgumentError(
            f"gather: the first {batch} axes of params {list(found.shape)} and indices "
            f"{list(places.shape)} must be equal, and axis {along} after them."
        )
    check_bounds("gather", places, found.shape[along])

    places = _guard(places, found.shape[along])

    def take(x: jax.Array, i: jax.Array) -> jax.Array:
        # TensorFlow's accelerators give zeros for positions that are not there.
        return jnp.take(x, i, axis=along - batch, mode="fill", fill_value=0)

    # Each batch axis is mapped over, so that `take` sees one element of the batch.
    for _ in range(batch):
        take = jax.vmap(take)
    return take(found, places)


def gather_nd(params: Any, indices: Any, batch_dims: Any) -> jax.Array:
    """Returns the slices of an array at given coordinates.

    Raises:
        InvalidArgumentError: known coordinates are not in the array.
    """
    found = tensors.tensor(params)
    places = _positions("gather_nd", indices)
    batch = tensors.require_known("gather_nd", "batch_dims", batch_dims)
    depth = places.shape[-1] if places.ndim else 0
    if not places.ndim or depth > found.ndim - batch:
        raise errors.InvalidArgumentError(
            f"gather_nd: indices of shape {list(places.shape)} have more coordinates "
            f"than params of shape {list(found.shape)} have axes."
        )
    check_bounds("gather_nd", places, found.shape[batch : batch + depth])

    def take(x: jax.Array, i: jax.Array) -> jax.Array:
        key = tuple(_guard(i[..., k], x.shape[k]) for k in range(depth))
        # Without coordinates each position means the whole array.
        if not key:
            return jnp.broadcast_to(x, (*i.shape[:-1], *x.shape))
        return x.at[key].get(mode="fill", fill_value=0)

    for _ in range(batch):
        take = jax.vmap(take)
    return take(found, places)


def where(condition: Any, x: Any, y: Any) -> jax.Array:
    """Returns elements of `x` where a condition holds, and of `y` elsewhere.

    Without both, it returns the coordinates of the true elements.

    Raises:
        ValueError: only one of `x` and `y` is given.
        TypeError: without them in a compiled function, which needs a known size.
    """
    if (x is None) != (y is None):
        raise ValueError("x and y must both be non-None or both be None.")
    if x is None:
        found = tensors.tensor(condition)
        _check_known("where", "where(condition, x, y)", found)
        coordinates = np.argwhere(np.asarray(found))
        return jnp.asarray(coordinates.astype(tensors.canonical_type(dtypes.int64)))
    mask = elementwise.as_bools("where", condition)
    x, y = tensors.to_one_type("where", x, y)
    elementwise.check_shapes("where", mask, x, y)
    return jnp.where(mask, x, y)


def _check_known(name: str, instead: str, *arrays: Any) -> None:
    """Raises if the size of a result would depend on numbers that are not known."""
    if any(map(jax_tapes.is_traced, arrays)):
        raise TypeError(
            f"The size of what {name} gives depends on numbers that a compiled "
            f"function computes, and XLA needs sizes that are known. Use {instead}, or "
            f"call {name} outside the function."
        )


def boolean_mask(tensor: Any, mask: Any, axis: Any) -> jax.Array:
    """Returns the elements of an array for which a mask is true.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: in a compiled function, which needs a known size.
    """
    found = tensors.tensor(tensor)
    flags = tensors.tensor(mask)
    along = 0 if axis is None else shaping.find_axis("boolean_mask", axis, found.ndim)
    if not flags.ndim:
        raise ValueError("mask cannot be scalar.")
    if found.shape[along : along + flags.ndim] != flags.shape:
        raise ValueError(
            f"Shapes {found.shape[along : along + flags.ndim]} and {flags.shape} are "
            "incompatible in boolean_mask."
        )
    _check_known("boolean_mask", "unisono.where with zeros", flags)
    # Positions on the host: their number is the size of the result.
    key = (slice(None),) * along + np.nonzero(np.asarray(flags))
    return found[key]


def scatter(
    name: str, method: str, tensor: Any, indices: Any, updates: Any
) -> jax.Array:
    """Returns an array with slices at given coordinates changed.

    Args:
        name: the name that the program calls.
        method: what happens to the old elements: "set", "add", "min" or "max".
        tensor: the array.
        indices: the coordinates, along the last axis.
        updates: the new slices.

    Raises:
        InvalidArgumentError: shapes do not fit, or a known position is not there.
    """
    found, rows = tensors.to_one_type(name, tensor, updates)
    found = jnp.asarray(found)
    places = _positions(name, indices)
    depth = places.shape[-1] if places.ndim else 0
    wanted = (*places.shape[:-1], *found.shape[depth:])
    if not places.ndim or depth > found.ndim or rows.shape != wanted:
        raise errors.InvalidArgumentError(
            f"{name}: updates for indices of shape {list(places.shape)} in an array of "
            f"shape {list(found.shape)} have shape {list(wanted)}, received "
            f"{list(rows.shape)}."
        )
    check_bounds(name, places, found.shape[:depth])
    key = tuple(_guard(places[..., k], found.shape[k]) for k in range(depth))
    change: Callable[..., jax.Array] = getattr(found.at[key], method)
    # As TensorFlow's accelerators do with positions that are not there.
    return change(rows, mode="drop")


def scatter_sub(tensor: Any, indices: Any, updates: Any) -> jax.Array:
    """Returns an array with slices at given coordinates reduced."""
    found, rows = tensors.to_one_type("tensor_scatter_nd_sub", tensor, updates)
    return scatter("tensor_scatter_nd_sub", "add", found, indices, -rows)


def scatter_nd(indices: Any, updates: Any, shape: Any) -> jax.Array:
    """Returns zeros of a shape to which slices were added at given coordinates."""
    rows = tensors.tensor(updates)
    sizes = tensors.sizes("scatter_nd", "shape", shape)
    zeros = jnp.zeros(sizes, rows.dtype)
    # The sum of bools is "or"; JAX does not add them.
    if rows.dtype == dtypes.bool:
        return scatter("scatter_nd", "max", zeros, indices, rows)
    return scatter("scatter_nd", "add", zeros, indices, rows)


@final
class Unique(NamedTuple):
    """The different elements of an array, and where each of its elements is in them.

    Attributes:
        y: the different elements, in the order of their first occurrence.
        idx: for each element its position in `y`.
    """

    y: jax.Array
    idx: jax.Array


@final
class UniqueWithCounts(NamedTuple):
    """The different elements of an array, their positions, and how often each occurs.

    Attributes:
        y: the different elements, in the order of their first occurrence.
        idx: for each element its position in `y`.
        count: for each element of `y` how often it occurs.
    """

    y: jax.Array
    idx: jax.Array
    # A tuple has a method of this name; TensorFlow's result has this field, too.
    count: jax.Array  # type: ignore[assignment]


def unique_with_counts(name: str, x: Any, out_idx: Any) -> UniqueWithCounts:
    """Returns the different elements of a vector, their positions and counts.

    Raises:
        InvalidArgumentError: `x` is not a vector.
        TypeError: in a compiled function, which needs a known size.
    """
    found = tensors.tensor(x)
    _check_known(name, "jnp.unique with `size`", found)
    if found.ndim != 1:
        raise errors.InvalidArgumentError(
            f"{name} expects a 1D vector, received the shape {list(found.shape)}."
        )
    values, first, idx, count = np.unique(
        np.asarray(found), return_index=True, return_inverse=True, return_counts=True
    )
    # NumPy sorts the elements; TensorFlow has them by their first occurrence.
    order = np.argsort(first, kind="stable")
    # `idx` points into NumPy's order; `place` leads on from there to TensorFlow's.
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    dtype = tensors.canonical_type(out_idx)
    return UniqueWithCounts(
        jnp.asarray(values[order]),
        jnp.asarray(place[idx].astype(dtype)),
        jnp.asarray(count[order].astype(dtype)),
    )


def unique(x: Any, out_idx: Any) -> Unique:
    """Returns the different elements of a vector, and their positions."""
    return Unique(*unique_with_counts("unique", x, out_idx)[:2])


def dynamic_partition(data: Any, partitions: Any, num: Any) -> list[jax.Array]:
    """Returns the elements of an array in groups, by the number of the group.

    Raises:
        TypeError: in a compiled function, which needs known sizes.
    """
    found = tensors.tensor(data)
    groups = _positions("dynamic_partition", partitions)
    _check_known("dynamic_partition", "unisono.math.unsorted_segment_sum", groups)
    check_bounds("dynamic_partition", groups, num)
    known = np.asarray(groups)
    if found.shape[: known.ndim] != known.shape:
        raise errors.InvalidArgumentError(
            f"dynamic_partition: data of shape {list(found.shape)} must begin with the "
            f"shape {list(known.shape)} of partitions."
        )
    return [found[np.nonzero(known == i)] for i in range(num)]


def dynamic_stitch(indices: Any, data: Any) -> jax.Array:
    """Returns one array of slices that each have a position in it."""
    places = [_positions("dynamic_stitch", i) for i in indices]
    parts = tensors.to_one_type("dynamic_stitch", *data)
    _check_known("dynamic_stitch", "unisono.scatter_nd", *places)
    rank = places[0].ndim
    rest = parts[0].shape[rank:]
    flat = np.concatenate([np.asarray(i).reshape(-1) for i in places])
    rows = jnp.concatenate([jnp.reshape(x, (-1, *rest)) for x in parts])
    size = int(flat.max(initial=-1)) + 1
    # The last of several slices for one position counts.
    last = {int(place): k for k, place in enumerate(flat)}
    made = jnp.zeros((size, *rest), rows.dtype)
    return made.at[np.array([*last], int)].set(rows[np.array([*last.values()], int)])
