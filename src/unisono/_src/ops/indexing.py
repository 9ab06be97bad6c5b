"""Picks elements by position or by mask, and puts elements in positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import axis_functions, elementwise, kinds, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, Sizes, TensorLike
from unisono._src.values import jax_tapes

__all__ = [
    "boolean_mask",
    "dynamic_partition",
    "dynamic_stitch",
    "gather",
    "gather_nd",
    "scatter_nd",
    "tensor_scatter_nd_add",
    "tensor_scatter_nd_max",
    "tensor_scatter_nd_min",
    "tensor_scatter_nd_sub",
    "tensor_scatter_nd_update",
    "unique",
    "unique_with_counts",
    "where",
]

_READS_ZERO = (
    "In a compiled function an index out of range reads zero, as on TensorFlow's "
    "accelerators; eagerly it is an error."
)
_NOT_COMPILED = (
    "It cannot be used in a compiled function, because the size of the result depends "
    "on the data."
)
_LEFT_OUT = (
    "In a compiled function an update at an index out of range is ignored, as on "
    "TensorFlow's accelerators; eagerly it is an error."
)


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


@array_function("gather", difference=_READS_ZERO)
@tensors.folds_constants
def gather(
    params: TensorLike,
    indices: TensorLike,
    validate_indices: object = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> jax.Array:
    """Returns the slices of an array at the given indices.

    Raises:
        InvalidArgumentError: an index whose value is known is out of range.

    >>> gather([10, 20, 30], [2, 0]).tolist()
    [30, 10]
    """
    found = tensors.tensor(params)
    places = _positions("gather", indices)
    batch = tensors.require_known("gather", "batch_dims", batch_dims)
    batch = batch + places.ndim if batch < 0 else batch
    along = batch if axis is None else axis
    along = axis_functions.find_axis("gather", along, found.ndim)
    if batch > along or found.shape[:batch] != places.shape[:batch]:
        raise errors.InvalidArgumentError(
            f"gather: the first {batch} axes of params {list(found.shape)} and indices "
            f"{list(places.shape)} must be equal, and axis {along} after them."
        )
    axis_functions.check_bounds("gather", places, found.shape[along])

    places = _guard(places, found.shape[along])

    def take(x: jax.Array, i: jax.Array) -> jax.Array:
        # TensorFlow's accelerators give zeros for positions that are not there.
        return jnp.take(x, i, axis=along - batch, mode="fill", fill_value=0)

    # Each batch axis is mapped over, so that `take` sees one element of the batch.
    for _ in range(batch):
        take = jax.vmap(take)
    return take(found, places)


@array_function("gather_nd", difference=_READS_ZERO)
def gather_nd(
    params: TensorLike,
    indices: TensorLike,
    batch_dims: int = 0,
    name: str | None = None,
    bad_indices_policy: str = "",
) -> jax.Array:
    """Returns the slices of an array at the given coordinates.

    Raises:
        InvalidArgumentError: coordinates whose values are known are out of range.
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
    axis_functions.check_bounds("gather_nd", places, found.shape[batch : batch + depth])

    def take(x: jax.Array, i: jax.Array) -> jax.Array:
        key = tuple(_guard(i[..., k], x.shape[k]) for k in range(depth))
        # Without coordinates each position means the whole array.
        if not key:
            return jnp.broadcast_to(x, (*i.shape[:-1], *x.shape))
        return x.at[key].get(mode="fill", fill_value=0)

    for _ in range(batch):
        take = jax.vmap(take)
    return take(found, places)


@array_function(
    "where",
    difference=(
        "Without `x` and `y` it returns coordinates, which are int32 unless JAX's "
        "64-bit types are enabled, and it cannot be used in a compiled function."
    ),
)
def where(
    condition: TensorLike,
    x: TensorLike | None = None,
    y: TensorLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns elements of `x` where a condition is true, and of `y` elsewhere.

    Without `x` and `y`, it returns the coordinates of the true elements.

    Raises:
        ValueError: only one of `x` and `y` is given.
        TypeError: neither is given in a compiled function, where the size of the result
            must be known.

    >>> where([True, False], 1.0, 0.0).tolist()
    [1.0, 0.0]
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


@array_function("boolean_mask", difference=_NOT_COMPILED)
def boolean_mask(
    tensor: TensorLike,
    mask: TensorLike,
    axis: int | None = None,
    name: str | None = "boolean_mask",
) -> jax.Array:
    """Returns the elements of an array for which a mask is true.

    Raises:
        ValueError: the shapes do not match.
        TypeError: it is called in a compiled function, where the size of the result
            must be known.
    """
    found = tensors.tensor(tensor)
    flags = tensors.tensor(mask)
    along = (
        0
        if axis is None
        else axis_functions.find_axis("boolean_mask", axis, found.ndim)
    )
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


@array_function("tensor_scatter_nd_update", difference=_LEFT_OUT)
def tensor_scatter_nd_update(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with the slices at the given coordinates replaced."""
    return _scatter("tensor_scatter_nd_update", "set", tensor, indices, updates)


@array_function("tensor_scatter_nd_add", difference=_LEFT_OUT)
def tensor_scatter_nd_add(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with slices added at the given coordinates."""
    return _scatter("tensor_scatter_nd_add", "add", tensor, indices, updates)


@array_function("tensor_scatter_nd_max", difference=_LEFT_OUT)
def tensor_scatter_nd_max(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with the larger of old and new values at given coordinates."""
    return _scatter("tensor_scatter_nd_max", "max", tensor, indices, updates)


@array_function("tensor_scatter_nd_min", difference=_LEFT_OUT)
def tensor_scatter_nd_min(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with the smaller of old and new values at given coordinates."""
    return _scatter("tensor_scatter_nd_min", "min", tensor, indices, updates)


@array_function("tensor_scatter_nd_sub", difference=_LEFT_OUT)
def tensor_scatter_nd_sub(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with slices subtracted at the given coordinates."""
    found, rows = tensors.to_one_type("tensor_scatter_nd_sub", tensor, updates)
    return _scatter("tensor_scatter_nd_sub", "add", found, indices, -rows)


@array_function("scatter_nd", difference=_LEFT_OUT)
def scatter_nd(
    indices: TensorLike,
    updates: TensorLike,
    shape: Sizes,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array of zeros with slices added at the given coordinates."""
    rows = tensors.tensor(updates)
    sizes = tensors.sizes("scatter_nd", "shape", shape)
    zeros = jnp.zeros(sizes, rows.dtype)
    # The sum of bools is "or"; JAX does not add them.
    if rows.dtype == dtypes.bool:
        return _scatter("scatter_nd", "max", zeros, indices, rows)
    return _scatter("scatter_nd", "add", zeros, indices, rows)


@array_function("unique", difference=_NOT_COMPILED)
def unique(
    x: TensorLike, out_idx: DType = dtypes.int32, name: str | None = None
) -> Unique:
    """Returns the distinct elements `y` of a vector, and each element's index in `y`.

    >>> unique([5, 5, 7]).y.tolist()
    [5, 7]
    """
    return Unique(*_unique("unique", x, out_idx)[:2])


@array_function("unique_with_counts", difference=_NOT_COMPILED)
def unique_with_counts(
    x: TensorLike, out_idx: DType = dtypes.int32, name: str | None = None
) -> UniqueWithCounts:
    """Returns the distinct elements of a vector, with indices and counts."""
    return _unique("unique_with_counts", x, out_idx)


@array_function("dynamic_partition", difference=_NOT_COMPILED)
def dynamic_partition(
    data: TensorLike,
    partitions: TensorLike,
    num_partitions: int,
    name: str | None = None,
) -> list[jax.Array]:
    """Returns a list of arrays, one for each partition of the elements.

    Raises:
        TypeError: it is called in a compiled function, where the sizes of the results
            must be known.
    """
    found = tensors.tensor(data)
    groups = _positions("dynamic_partition", partitions)
    _check_known("dynamic_partition", "unisono.math.unsorted_segment_sum", groups)
    axis_functions.check_bounds("dynamic_partition", groups, num_partitions)
    known = np.asarray(groups)
    if found.shape[: known.ndim] != known.shape:
        raise errors.InvalidArgumentError(
            f"dynamic_partition: data of shape {list(found.shape)} must begin with the "
            f"shape {list(known.shape)} of partitions."
        )
    return [found[np.nonzero(known == i)] for i in range(num_partitions)]


@array_function("dynamic_stitch", difference=_NOT_COMPILED)
def dynamic_stitch(
    indices: Sequence[TensorLike], data: Sequence[TensorLike], name: str | None = None
) -> jax.Array:
    """Returns one array with slices placed at the given indices."""
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


def _positions(name: str, indices: TensorLike) -> jax.Array:
    """Returns positions as an array of integers."""
    found = tensors.tensor(indices)
    kinds.check(name, found.dtype, kinds.INTEGER)
    return found


def _guard(indices: jax.Array, size: int) -> jax.Array:
    """Returns positions that JAX would not count from the end."""
    if not jax_tapes.is_traced(indices):
        return indices  # They were checked.
    # `size` is behind the end, where the modes "fill" and "drop" take effect.
    return jnp.where(indices < 0, size, indices)


def _check_known(name: str, instead: str, *arrays: jax.Array) -> None:
    """Raises if the size of a result would depend on numbers that are not known."""
    if any(map(jax_tapes.is_traced, arrays)):
        raise TypeError(
            f"The size of what {name} gives depends on numbers that a compiled "
            f"function computes, and XLA needs sizes that are known. Use {instead}, or "
            f"call {name} outside the function."
        )


def _scatter(
    name: str, method: str, tensor: TensorLike, indices: TensorLike, updates: TensorLike
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
    axis_functions.check_bounds(name, places, found.shape[:depth])
    key = tuple(_guard(places[..., k], found.shape[k]) for k in range(depth))
    change: Callable[..., jax.Array] = getattr(found.at[key], method)
    # As TensorFlow's accelerators do with positions that are not there.
    return change(rows, mode="drop")


def _unique(name: str, x: TensorLike, out_idx: DType) -> UniqueWithCounts:
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
