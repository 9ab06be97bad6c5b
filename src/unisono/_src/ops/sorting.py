"""Sorts elements, searches in them and counts them."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import axis_functions, kinds, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, Sizes, TensorLike
from unisono._src.values import jax_tapes

__all__ = [
    "argsort",
    "histogram_fixed_width",
    "histogram_fixed_width_bins",
    "searchsorted",
    "sort",
    "unravel_index",
]


@array_function("sort")
def sort(
    values: TensorLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    name: str | None = None,
) -> jax.Array:
    """Returns the elements sorted along an axis."""
    found = tensors.tensor(values)
    kinds.check("sort", found.dtype, kinds.REAL)
    along = axis_functions.find_axis("sort", axis, found.ndim)
    return jnp.sort(found, along, descending=_is_descending(direction))


@array_function("argsort")
def argsort(
    values: TensorLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions that sort the elements along an axis."""
    found = tensors.tensor(values)
    kinds.check("argsort", found.dtype, kinds.REAL)
    along = axis_functions.find_axis("argsort", axis, found.ndim)
    order = jnp.argsort(found, along, descending=_is_descending(direction), stable=True)
    return order.astype(jnp.int32)


@array_function("searchsorted")
def searchsorted(
    sorted_sequence: TensorLike,
    values: TensorLike,
    side: str = "left",
    out_type: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions at which to insert values into sorted rows.

    Raises:
        ValueError: `side` is neither "left" nor "right".
    """
    if side not in ("left", "right"):
        raise ValueError(
            f"Argument `side` must be either 'right' or 'left'. Received: {side!r}."
        )
    rows, wanted = tensors.to_one_type("searchsorted", sorted_sequence, values)
    if math.prod(rows.shape[:-1]) != math.prod(wanted.shape[:-1]):
        raise errors.InvalidArgumentError(
            f"searchsorted: the shapes {list(rows.shape)} and {list(wanted.shape)} "
            "must be equal but for the last axis."
        )

    def search(a: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.searchsorted(a, v, side=side)

    # One row at a time: JAX searches in one sorted vector.
    found = jax.vmap(search)(
        jnp.reshape(rows, (-1, rows.shape[-1])),
        jnp.reshape(wanted, (-1, wanted.shape[-1])),
    )
    return found.reshape(wanted.shape).astype(tensors.canonical_type(out_type))


@array_function("unravel_index")
def unravel_index(
    indices: TensorLike, dims: Sizes, name: str | None = None
) -> jax.Array:
    """Returns the coordinates of flat positions in an array of a given shape."""
    places = tensors.tensor(indices)
    sizes = tensors.sizes("unravel_index", "dims", dims)
    axis_functions.check_bounds("unravel_index", places, int(np.prod(sizes)))
    return jnp.stack(jnp.unravel_index(places, sizes)).astype(places.dtype)


@array_function("histogram_fixed_width")
def histogram_fixed_width(
    values: TensorLike,
    value_range: TensorLike,
    nbins: int = 100,
    dtype: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns the number of values in each of `nbins` equally wide bins."""
    bins = histogram_fixed_width_bins(values, value_range, nbins, dtypes.int32).reshape(
        -1
    )
    counts = jnp.zeros(nbins, jnp.int32).at[bins].add(1)
    return counts.astype(tensors.canonical_type(dtype))


@array_function("histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: TensorLike,
    value_range: TensorLike,
    nbins: int = 100,
    dtype: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns the index of the bin of each value.

    Raises:
        InvalidArgumentError: `nbins` is not positive, or the range is empty.
    """
    found, ends = tensors.to_one_type("histogram_fixed_width", values, value_range)
    kinds.check("histogram_fixed_width", found.dtype, kinds.REAL)
    count = tensors.require_known("histogram_fixed_width", "nbins", nbins)
    if count < 1:
        raise errors.InvalidArgumentError(f"nbins must be positive, received {count}.")
    low, high = ends[0], ends[1]
    if not jax_tapes.is_traced(low) and not bool(low < high):
        raise errors.InvalidArgumentError(
            f"value_range must be increasing, received [{low}, {high}]."
        )
    place = (found - low) / (high - low) * count
    bins = jnp.clip(jnp.floor(place), 0, count - 1)
    return bins.astype(tensors.canonical_type(dtype))


def _is_descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(
            "Argument `direction` should be one of 'ASCENDING' or 'DESCENDING'. "
            f"Received: {direction!r}."
        )
    return bool(direction == "DESCENDING")
