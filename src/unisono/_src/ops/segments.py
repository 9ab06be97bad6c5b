"""Counts elements, and combines the rows of segments: names of ``tf.math``."""

from __future__ import annotations

from typing import NamedTuple, Protocol, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import axis_functions, elementwise, kinds, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, TensorLike
from unisono._src.values import jax_tapes, row_positions

__all__ = [
    "bincount",
    "confusion_matrix",
    "in_top_k",
    "invert_permutation",
    "segment_max",
    "segment_mean",
    "segment_min",
    "segment_prod",
    "segment_sum",
    "top_k",
    "unsorted_segment_max",
    "unsorted_segment_mean",
    "unsorted_segment_min",
    "unsorted_segment_prod",
    "unsorted_segment_sqrt_n",
    "unsorted_segment_sum",
]

_ENDS = ("max", "min")
_REDUCTIONS = ("sum", "prod", *_ENDS)

_NEEDS_SIZE = (
    "It cannot be used in a compiled function, because the size of the result depends "
    "on the data; use the function whose name begins with `unsorted_`."
)


@final
class TopK(NamedTuple):
    """The largest elements along the last axis, and their positions.

    Attributes:
        values: the elements, the largest first.
        indices: for each its position.
    """

    values: jax.Array
    indices: jax.Array


@array_function("math.top_k", "nn.top_k")
def top_k(
    input: TensorLike,
    k: int = 1,
    sorted: bool = True,
    index_type: DType = dtypes.int32,
    name: str | None = None,
) -> TopK:
    """Returns the `k` largest elements along the last axis, and their positions.

    Raises:
        InvalidArgumentError: the last axis has fewer than `k` elements.
    """
    found = tensors.tensor(input)
    kinds.check("top_k", found.dtype, kinds.REAL)
    count = tensors.require_known("top_k", "k", k)
    if not found.ndim or not 0 <= count <= found.shape[-1]:
        raise errors.InvalidArgumentError(
            f"top_k: input must have at least k columns, received k = {count} and the "
            f"shape {list(found.shape)}."
        )
    values, indices = jax.lax.top_k(found, count)
    return TopK(values, indices.astype(tensors.canonical_type(index_type)))


@array_function("math.in_top_k", "nn.in_top_k")
def in_top_k(
    targets: TensorLike, predictions: TensorLike, k: int, name: str | None = None
) -> jax.Array:
    """Returns whether each target is among the `k` best predictions of its row.

    A target that ties with the last of them counts. One whose prediction is not finite
    does not.
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


@array_function(
    "math.bincount",
    difference=(
        "In a compiled function it needs `minlength` and `maxlength`, with the same "
        "value."
    ),
)
def bincount(
    arr: TensorLike,
    weights: TensorLike | None = None,
    minlength: int | None = None,
    maxlength: int | None = None,
    dtype: DType = dtypes.int32,
    name: str | None = None,
    axis: int | None = None,
    binary_output: bool = False,
) -> jax.Array:
    """Returns how often each integer occurs.

    Raises:
        TypeError: a compiled function calls it without `maxlength` and `minlength`.
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

    def count(values: jax.Array, w: jax.Array | None) -> jax.Array:
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


@array_function("math.invert_permutation")
def invert_permutation(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse of a permutation."""
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


@array_function(
    "math.confusion_matrix",
    difference="In a compiled function it needs `num_classes`.",
)
def confusion_matrix(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: int | None = None,
    weights: TensorLike | None = None,
    dtype: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns how often each class was predicted for each label."""
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
        axis_functions.check_bounds("confusion_matrix", x, size)
    amounts = jnp.ones(truth.shape, wanted)
    if weights is not None:
        amounts = tensors.tensor(weights).astype(wanted)
    cells = jnp.zeros((size, size), wanted)
    chosen = cells.at[truth.reshape(-1), guess.reshape(-1)]
    return chosen.add(amounts.reshape(-1), **row_positions.LEAVE_OUT)


def _bins(found: jax.Array, minlength: int | None, maxlength: int | None) -> int:
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


def _reduce_segments(
    name: str, how: str, data: TensorLike, ids: TensorLike, num: int | None = None
) -> jax.Array:
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
    if how not in _ENDS and kinds.is_half(rows.dtype):
        wide = _reduce_segments(name, how, rows.astype(jnp.float32), places, num)
        return wide.astype(rows.dtype)
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
    axis_functions.check_bounds(name, places, count, low=np.iinfo(np.int32).min)
    if how in _REDUCTIONS:
        made = getattr(jax.ops, f"segment_{how}")(rows, flat, count)
        return _fill_empty(made, how, flat, num is None) if how in _ENDS else made
    total = jax.ops.segment_sum(rows, flat, count)
    amount = jax.ops.segment_sum(jnp.ones(flat.shape, rows.dtype), flat, count)
    # A segment without rows has the sum 0, and so the mean 0.
    amount = jnp.maximum(amount, 1).reshape(-1, *[1] * len(rest))
    if how == "sqrt_n":
        return total / jnp.sqrt(amount)
    # TensorFlow's `segment_mean` keeps the type of integers; the unsorted one does not.
    if num is None and jnp.issubdtype(rows.dtype, jnp.integer):
        return elementwise.truncate_division(total, amount)
    return elementwise.divide(name, total, amount)


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


class SegmentFunction(Protocol):
    """A function that combines the rows of segments by sorted numbers."""

    def __call__(
        self, data: TensorLike, segment_ids: TensorLike, name: str | None = None
    ) -> jax.Array:
        """Returns a row for each segment."""


class UnsortedSegmentFunction(Protocol):
    """A function that combines the rows of segments."""

    def __call__(
        self,
        data: TensorLike,
        segment_ids: TensorLike,
        num_segments: int,
        name: str | None = None,
    ) -> jax.Array:
        """Returns a row for each segment."""


_TOLD = {
    "sum": "the sum",
    "mean": "the mean",
    "prod": "the product",
    "max": "the largest elements",
    "min": "the smallest elements",
    "sqrt_n": "the sum, divided by the square root of the count,",
}


def _by_sorted_numbers(how: str) -> SegmentFunction:
    """Returns the function that combines segments in one way, by sorted numbers."""

    def combine(
        data: TensorLike, segment_ids: TensorLike, name: str | None = None
    ) -> jax.Array:
        return _reduce_segments(f"segment_{how}", how, data, segment_ids)

    told = f"Returns {_TOLD[how]} of the rows of each segment; the ids must be sorted."
    combine.__doc__ = told
    return array_function(f"math.segment_{how}", difference=_NEEDS_SIZE)(combine)


def _by_numbers(how: str) -> UnsortedSegmentFunction:
    """Returns the function that combines segments in one way."""
    called = f"unsorted_segment_{how}"

    def combine(
        data: TensorLike,
        segment_ids: TensorLike,
        num_segments: int,
        name: str | None = None,
    ) -> jax.Array:
        return _reduce_segments(called, how, data, segment_ids, num_segments)

    combine.__doc__ = f"Returns {_TOLD[how]} of the rows of each segment."
    return array_function(f"math.{called}")(combine)


segment_sum = _by_sorted_numbers("sum")
segment_mean = _by_sorted_numbers("mean")
segment_prod = _by_sorted_numbers("prod")
segment_max = _by_sorted_numbers("max")
segment_min = _by_sorted_numbers("min")
unsorted_segment_sum = _by_numbers("sum")
unsorted_segment_mean = _by_numbers("mean")
unsorted_segment_prod = _by_numbers("prod")
unsorted_segment_max = _by_numbers("max")
unsorted_segment_min = _by_numbers("min")
unsorted_segment_sqrt_n = _by_numbers("sqrt_n")
