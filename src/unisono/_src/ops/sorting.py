"""Sorts, searches and counts elements."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import indexing, kinds, shaping, tensors
from unisono._src.values import jax_tapes, row_positions


def _is_descending(direction: Any) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(
            "Argument `direction` should be one of 'ASCENDING' or 'DESCENDING'. "
            f"Received: {direction!r}."
        )
    return bool(direction == "DESCENDING")


def sort(values: Any, axis: Any, direction: Any) -> jax.Array:
    """Returns the elements in order along an axis."""
    found = tensors.tensor(values)
    kinds.check("sort", found.dtype, kinds.REAL)
    along = shaping.find_axis("sort", axis, found.ndim)
    return jnp.sort(found, along, descending=_is_descending(direction))


def argsort(values: Any, axis: Any, direction: Any) -> jax.Array:
    """Returns the positions that put the elements in order along an axis."""
    found = tensors.tensor(values)
    kinds.check("argsort", found.dtype, kinds.REAL)
    along = shaping.find_axis("argsort", axis, found.ndim)
    order = jnp.argsort(found, along, descending=_is_descending(direction), stable=True)
    return order.astype(jnp.int32)


@final
class TopK(NamedTuple):
    """The largest elements along the last axis, and their positions.

    Attributes:
        values: the elements, the largest first.
        indices: for each its position.
    """

    values: jax.Array
    indices: jax.Array


def top_k(x: Any, k: Any, index_type: Any) -> TopK:
    """Returns the largest elements along the last axis, and their positions.

    Raises:
        InvalidArgumentError: there are fewer than `k`.
    """
    found = tensors.tensor(x)
    kinds.check("top_k", found.dtype, kinds.REAL)
    count = tensors.require_known("top_k", "k", k)
    if not found.ndim or not 0 <= count <= found.shape[-1]:
        raise errors.InvalidArgumentError(
            f"top_k: input must have at least k columns, received k = {count} and the "
            f"shape {list(found.shape)}."
        )
    values, indices = jax.lax.top_k(found, count)
    return TopK(values, indices.astype(tensors.canonical_type(index_type)))


def in_top_k(targets: Any, predictions: Any, k: Any) -> jax.Array:
    """Returns whether each target is among the `k` largest predictions.

    Targets that are tied with the last of them count; those without a finite
    prediction do not.
    """
    scores = tensors.tensor(predictions)
    classes = tensors.tensor(targets)
    if scores.ndim != 2 or classes.shape != scores.shape[:1]:
        raise errors.InvalidArgumentError(
            f"in_top_k takes predictions of two axes and a target for each row, "
            f"received {list(scores.shape)} and {list(classes.shape)}."
        )
    # A target that is no class gets NaN, which no score is larger than.
    own = jnp.take_along_axis(scores, classes[:, None], 1, mode="fill")
    larger = jnp.sum(scores > own, 1)
    is_there = (classes >= 0) & (classes < scores.shape[1])
    is_finite = jnp.isfinite(own[:, 0]) & jnp.all(
        jnp.isfinite(scores) | (scores <= own), 1
    )
    return (larger < tensors.tensor(k)) & is_there & is_finite


def searchsorted(
    sorted_sequence: Any, values: Any, side: Any, out_type: Any
) -> jax.Array:
    """Returns where values would be inserted in sorted rows.

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

    def search(a: Any, v: Any) -> jax.Array:
        return jnp.searchsorted(a, v, side=side)

    # One row at a time: JAX searches in one sorted vector.
    found = jax.vmap(search)(
        jnp.reshape(rows, (-1, rows.shape[-1])),
        jnp.reshape(wanted, (-1, wanted.shape[-1])),
    )
    return found.reshape(wanted.shape).astype(tensors.canonical_type(out_type))


def bincount(
    arr: Any,
    weights: Any,
    minlength: Any,
    maxlength: Any,
    dtype: Any,
    axis: Any,
    binary_output: Any,
) -> jax.Array:
    """Returns how often each integer occurs, or the sums of their weights.

    Raises:
        TypeError: in a compiled function without `maxlength` and `minlength`.
    """
    found = tensors.tensor(arr)
    kinds.check("bincount", found.dtype, kinds.REAL)
    if not jax_tapes.is_traced(found):
        found = tensors.tensor(np.asarray(found).astype(np.int32))
    found = found.astype(jnp.int32)
    if axis not in (None, 0, -1) or (axis == -1 and found.ndim not in (1, 2)):
        raise ValueError(f"Unsupported value for argument axis={axis}. Only 0 and -1 "
                         "are currently supported.")  # fmt: skip
    size = _bins(found, minlength, maxlength)
    factors = None if weights is None else tensors.tensor(weights)
    wanted = tensors.canonical_type(dtype) if factors is None else factors.dtype
    if axis != -1 or found.ndim == 1:
        found = found.reshape(-1)
        factors = None if factors is None else factors.reshape(-1)

    def count(values: jax.Array, w: Any) -> jax.Array:
        amounts = jnp.ones(values.shape, wanted) if w is None else w
        zeros = jnp.zeros(size, wanted)
        # Negative positions would count from the end.
        places = jnp.where(values < 0, size, values)
        if binary_output:
            return zeros.at[places].set(1, mode="drop")
        return zeros.at[places].add(amounts, mode="drop")

    if found.ndim == 2:
        return jax.vmap(count)(found, factors)
    return count(found, factors)


def _bins(found: jax.Array, minlength: Any, maxlength: Any) -> int:
    """Returns the number of bins."""
    given = {"minlength": minlength, "maxlength": maxlength}
    low, high = (
        None if x is None else tensors.require_known("bincount", what, x)
        for what, x in given.items()
    )
    if jax_tapes.is_traced(found):
        if low is None or low != high:
            raise TypeError(
                "bincount in a compiled function needs minlength and maxlength of the "
                "same value: the size of its result must be known when the program is "
                "compiled."
            )
        return int(low)
    known = np.asarray(found)
    if known.size and known.min() < 0:
        raise errors.InvalidArgumentError("Input arr must be non-negative in bincount.")
    size = max(int(known.max(initial=-1)) + 1, low or 0)
    return size if high is None else min(size, high)


def invert_permutation(x: Any) -> jax.Array:
    """Returns the permutation that undoes another one."""
    found = tensors.tensor(x)
    kinds.check("invert_permutation", found.dtype, kinds.INTEGER)
    if found.ndim != 1:
        raise errors.InvalidArgumentError(
            f"invert_permutation expects a 1D vector, received {list(found.shape)}."
        )
    is_known = not jax_tapes.is_traced(found)
    if is_known and sorted(np.asarray(found).tolist()) != [*range(found.size)]:
        raise errors.InvalidArgumentError(
            f"invert_permutation takes the numbers from 0 to {found.size - 1} in "
            "some order."
        )
    places = jnp.arange(found.size, dtype=found.dtype)
    zeros = jnp.zeros_like(found)
    return zeros.at[found].set(places, **row_positions.LEAVE_OUT)


def unravel_index(indices: Any, dims: Any) -> jax.Array:
    """Returns the coordinates of positions in memory, one row for each axis."""
    places = tensors.tensor(indices)
    sizes = tensors.sizes("unravel_index", "dims", dims)
    indexing.check_bounds("unravel_index", places, int(np.prod(sizes)))
    return jnp.stack(jnp.unravel_index(places, sizes)).astype(places.dtype)


def histogram_bins(values: Any, value_range: Any, nbins: Any, dtype: Any) -> jax.Array:
    """Returns each value's bin; values beyond the range are in the outermost bins.

    Raises:
        InvalidArgumentError: there is no bin, or the range is empty.
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


def histogram(values: Any, value_range: Any, nbins: Any, dtype: Any) -> jax.Array:
    """Returns the number of values in each of a number of equal bins."""
    bins = histogram_bins(values, value_range, nbins, dtypes.int32).reshape(-1)
    counts = jnp.zeros(nbins, jnp.int32).at[bins].add(1)
    return counts.astype(tensors.canonical_type(dtype))


def confusion_matrix(
    labels: Any, predictions: Any, num_classes: Any, weights: Any, dtype: Any
) -> jax.Array:
    """Returns how often each label, a row, got each prediction, a column."""
    truth, guess = (tensors.tensor(x) for x in (labels, predictions))
    if num_classes is None:
        if jax_tapes.is_traced(truth) or jax_tapes.is_traced(guess):
            raise TypeError(
                "confusion_matrix needs num_classes in a compiled function."
            )
        known = [int(np.asarray(x).max(initial=-1)) for x in (truth, guess)]
        num_classes = max(known) + 1
    size = tensors.require_known("confusion_matrix", "num_classes", num_classes)
    wanted = tensors.canonical_type(dtype)
    for x in (truth, guess):
        indexing.check_bounds("confusion_matrix", x, size)
    amounts = jnp.ones(truth.shape, wanted)
    if weights is not None:
        amounts = tensors.tensor(weights).astype(wanted)
    cells = jnp.zeros((size, size), wanted)
    chosen = cells.at[truth.reshape(-1), guess.reshape(-1)]
    return chosen.add(amounts.reshape(-1), **row_positions.LEAVE_OUT)


_SEGMENTS = {
    "sum": jax.ops.segment_sum,
    "prod": jax.ops.segment_prod,
    "max": jax.ops.segment_max,
    "min": jax.ops.segment_min,
}
_ENDS = ("max", "min")


def segments(name: str, how: str, data: Any, ids: Any, num: Any = None) -> jax.Array:
    """Returns a reduction of the rows of each segment.

    Args:
        name: the name that the program calls.
        how: "sum", "prod", "max", "min", "mean" or "sqrt_n".
        data: the rows.
        ids: the number of each row.
        num: how many numbers there are. Without it, the numbers are sorted, and their
            largest one tells.

    Raises:
        TypeError: without `num` in a compiled function, which needs a known size.
        InvalidArgumentError: numbers are not sorted, or shapes do not fit.
    """
    rows, places = tensors.tensor(data), tensors.tensor(ids)
    kinds.check(name, rows.dtype, kinds.NUMBERS)
    kinds.check(name, places.dtype, kinds.INTEGER)
    if rows.shape[: places.ndim] != places.shape:
        raise errors.InvalidArgumentError(
            f"{name}: data of shape {list(rows.shape)} must begin with the shape "
            f"{list(places.shape)} of segment_ids."
        )
    size = _count_segments(name, places) if num is None else num
    count = tensors.require_known(name, "num_segments", size)
    rest = rows.shape[places.ndim :]
    rows, flat = rows.reshape(-1, *rest), places.reshape(-1)
    if how == "sqrt_n":
        kinds.check(name, rows.dtype, kinds.INEXACT)
    # Rows with a negative number are left out, but a number may not be too large: JAX
    # would leave out that row, too, and TensorFlow raises.
    indexing.check_bounds(name, places, count, low=np.iinfo(np.int32).min)
    if how in _SEGMENTS:
        made = _SEGMENTS[how](rows, flat, count)
        return _fill_empty(made, how, flat, num is None) if how in _ENDS else made
    total = jax.ops.segment_sum(rows, flat, count)
    amount = jax.ops.segment_sum(jnp.ones(flat.shape, rows.dtype), flat, count)
    # A segment without rows has the sum 0, and so the mean 0.
    amount = jnp.maximum(amount, 1).reshape(-1, *[1] * len(rest))
    if how == "sqrt_n":
        return total / jnp.sqrt(amount)
    mean = total / amount
    # TensorFlow's `segment_mean` keeps the type of integers; the unsorted one does not.
    return mean.astype(rows.dtype) if num is None else mean


def _count_segments(name: str, ids: jax.Array) -> int:
    """Returns the number of segments of sorted numbers."""
    if jax_tapes.is_traced(ids):
        raise TypeError(
            f"{name} in a compiled function has no known size; use "
            f"unisono.math.unsorted_{name}, which takes num_segments."
        )
    known = np.asarray(ids)
    if known.ndim != 1 or np.any(np.diff(known) < 0) or np.any(known < 0):
        raise errors.InvalidArgumentError(f"segment ids are not increasing in {name}.")
    return int(known.max(initial=-1)) + 1


def _fill_empty(
    made: jax.Array, how: str, ids: jax.Array, is_sorted: bool
) -> jax.Array:
    """Returns the ends of segments: those without rows are 0, or the type's limit."""
    # For a segment without rows JAX has infinity, and TensorFlow the type's limit, or 0
    # where the numbers are sorted.
    sizes = jax.ops.segment_sum(jnp.ones(ids.shape, jnp.int32), ids, made.shape[0])
    is_empty = (sizes == 0).reshape(-1, *[1] * (made.ndim - 1))
    limits = kinds.limits(made.dtype)
    filler = 0 if is_sorted else (limits.min if how == "max" else limits.max)
    return jnp.where(is_empty, jnp.asarray(filler, made.dtype), made)
