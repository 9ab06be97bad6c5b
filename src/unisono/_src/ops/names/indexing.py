"""Positions: picking and putting elements, sorting, counting, groups."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

from collections.abc import Sequence

import jax

from unisono._src.foundation import dtypes
from unisono._src.foundation.public_names import publish
from unisono._src.ops import indexing, sorting, tensors
from unisono._src.ops.tensors import DType, Sizes, TensorLike


def gather(
    params: TensorLike,
    indices: TensorLike,
    validate_indices: object = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> jax.Array:
    """Returns the slices of an array at given positions.

    The arguments are those of TensorFlow's ``tf.gather``; `name` has no effect.

    In a compiled function a position that is not there reads as zero, as on
    TensorFlow's accelerators; eagerly it is an error.

    >>> gather([10, 20, 30], [2, 0]).tolist()
    [30, 10]
    """
    return tensors.fold_constants(indexing.gather, params, indices, axis, batch_dims)


def gather_nd(
    params: TensorLike,
    indices: TensorLike,
    batch_dims: int = 0,
    name: str | None = None,
    bad_indices_policy: str = "",
) -> jax.Array:
    """Returns the slices of an array at given coordinates.

    The arguments are those of TensorFlow's ``tf.gather_nd``; `name` has no effect.

    In a compiled function a position that is not there reads as zero, as on
    TensorFlow's accelerators; eagerly it is an error.
    """
    return indexing.gather_nd(params, indices, batch_dims)


def where(
    condition: TensorLike,
    x: TensorLike | None = None,
    y: TensorLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns elements of `x` where a condition holds, else of `y`.

    The arguments are those of TensorFlow's ``tf.where``; `name` has no effect.

    Without `x` and `y` it gives coordinates, of type int32 unless JAX has 64-bit types,
    and cannot be used in a compiled function.

    >>> where([True, False], 1.0, 0.0).tolist()
    [1.0, 0.0]
    """
    return indexing.where(condition, x, y)


def boolean_mask(
    tensor: TensorLike,
    mask: TensorLike,
    axis: int | None = None,
    name: str | None = "boolean_mask",
) -> jax.Array:
    """Returns the elements of an array for which a mask is true.

    The arguments are those of TensorFlow's ``tf.boolean_mask``; `name` has no effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers.
    """
    return indexing.boolean_mask(tensor, mask, axis)


def tensor_scatter_nd_update(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    name: str | None = None,
) -> jax.Array:
    """Returns an array with slices at given coordinates replaced.

    The arguments are those of TensorFlow's ``tf.tensor_scatter_nd_update``; `name` has
    no effect.

    In a compiled function a position that is not there is left out, as on TensorFlow's
    accelerators; eagerly it is an error.
    """
    return indexing.scatter("tensor_scatter_nd_update", "set", tensor, indices, updates)


def tensor_scatter_nd_add(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with slices added at given coordinates.

    The arguments are those of TensorFlow's ``tf.tensor_scatter_nd_add``; `name` has no
    effect.

    In a compiled function a position that is not there is left out, as on TensorFlow's
    accelerators; eagerly it is an error.
    """
    return indexing.scatter("tensor_scatter_nd_add", "add", tensor, indices, updates)


def tensor_scatter_nd_max(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with larger slices put at given coordinates.

    The arguments are those of TensorFlow's ``tf.tensor_scatter_nd_max``; `name` has no
    effect.

    In a compiled function a position that is not there is left out, as on TensorFlow's
    accelerators; eagerly it is an error.
    """
    return indexing.scatter("tensor_scatter_nd_max", "max", tensor, indices, updates)


def tensor_scatter_nd_min(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with smaller slices put at given coordinates.

    The arguments are those of TensorFlow's ``tf.tensor_scatter_nd_min``; `name` has no
    effect.

    In a compiled function a position that is not there is left out, as on TensorFlow's
    accelerators; eagerly it is an error.
    """
    return indexing.scatter("tensor_scatter_nd_min", "min", tensor, indices, updates)


def tensor_scatter_nd_sub(
    tensor: TensorLike,
    indices: TensorLike,
    updates: TensorLike,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns an array with slices subtracted at given coordinates.

    The arguments are those of TensorFlow's ``tf.tensor_scatter_nd_sub``; `name` has no
    effect.

    In a compiled function a position that is not there is left out, as on TensorFlow's
    accelerators; eagerly it is an error.
    """
    return indexing.scatter_sub(tensor, indices, updates)


def scatter_nd(
    indices: TensorLike,
    updates: TensorLike,
    shape: Sizes,
    bad_indices_policy: str = "",
    name: str | None = None,
) -> jax.Array:
    """Returns zeros to which slices were added at coordinates.

    The arguments are those of TensorFlow's ``tf.scatter_nd``; `name` has no effect.

    In a compiled function a position that is not there is left out, as on TensorFlow's
    accelerators; eagerly it is an error.
    """
    return indexing.scatter_nd(indices, updates, shape)


def unique(
    x: TensorLike, out_idx: DType = dtypes.int32, name: str | None = None
) -> indexing.Unique:
    """Returns the different elements of a vector, and their positions.

    The arguments are those of TensorFlow's ``tf.unique``; `name` has no effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers.

    >>> unique([5, 5, 7]).y.tolist()
    [5, 7]
    """
    return indexing.unique(x, out_idx)


def unique_with_counts(
    x: TensorLike, out_idx: DType = dtypes.int32, name: str | None = None
) -> indexing.UniqueWithCounts:
    """Returns the different elements, positions and counts.

    The arguments are those of TensorFlow's ``tf.unique_with_counts``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers.
    """
    return indexing.unique_with_counts("unique_with_counts", x, out_idx)


def dynamic_partition(
    data: TensorLike,
    partitions: TensorLike,
    num_partitions: int,
    name: str | None = None,
) -> list[jax.Array]:
    """Returns the elements of an array in groups.

    The arguments are those of TensorFlow's ``tf.dynamic_partition``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers.
    """
    return indexing.dynamic_partition(data, partitions, num_partitions)


def dynamic_stitch(
    indices: Sequence[TensorLike], data: Sequence[TensorLike], name: str | None = None
) -> jax.Array:
    """Returns slices put together by their positions.

    The arguments are those of TensorFlow's ``tf.dynamic_stitch``; `name` has no effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers.
    """
    return indexing.dynamic_stitch(indices, data)


def sort(
    values: TensorLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    name: str | None = None,
) -> jax.Array:
    """Returns the elements in order along an axis.

    The arguments are those of TensorFlow's ``tf.sort``; `name` has no effect.
    """
    return sorting.sort(values, axis, direction)


def argsort(
    values: TensorLike,
    axis: int = -1,
    direction: str = "ASCENDING",
    stable: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions that put the elements in order.

    The arguments are those of TensorFlow's ``tf.argsort``; `name` has no effect.
    """
    return sorting.argsort(values, axis, direction)


def top_k(
    input: TensorLike,
    k: int = 1,
    sorted: bool = True,
    index_type: DType = dtypes.int32,
    name: str | None = None,
) -> sorting.TopK:
    """Returns the largest elements and their positions.

    The arguments are those of TensorFlow's ``tf.math.top_k``; `name` has no effect.
    """
    return sorting.top_k(input, k, index_type)


def in_top_k(
    targets: TensorLike, predictions: TensorLike, k: int, name: str | None = None
) -> jax.Array:
    """Returns whether targets are among the best predictions.

    The arguments are those of TensorFlow's ``tf.math.in_top_k``; `name` has no effect.
    """
    return sorting.in_top_k(targets, predictions, k)


def searchsorted(
    sorted_sequence: TensorLike,
    values: TensorLike,
    side: str = "left",
    out_type: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns where values would be inserted in sorted rows.

    The arguments are those of TensorFlow's ``tf.searchsorted``; `name` has no effect.
    """
    return sorting.searchsorted(sorted_sequence, values, side, out_type)


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

    The arguments are those of TensorFlow's ``tf.math.bincount``; `name` has no effect.

    In a compiled function it needs `minlength` and `maxlength` of the same value.
    """
    return sorting.bincount(
        arr, weights, minlength, maxlength, dtype, axis, binary_output
    )


def invert_permutation(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the permutation that undoes another one.

    The arguments are those of TensorFlow's ``tf.math.invert_permutation``; `name` has
    no effect.
    """
    return sorting.invert_permutation(x)


def unravel_index(
    indices: TensorLike, dims: Sizes, name: str | None = None
) -> jax.Array:
    """Returns the coordinates of positions in memory.

    The arguments are those of TensorFlow's ``tf.unravel_index``; `name` has no effect.
    """
    return sorting.unravel_index(indices, dims)


def histogram_fixed_width(
    values: TensorLike,
    value_range: TensorLike,
    nbins: int = 100,
    dtype: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns the number of values in each of equal bins.

    The arguments are those of TensorFlow's ``tf.histogram_fixed_width``; `name` has no
    effect.
    """
    return sorting.histogram(values, value_range, nbins, dtype)


def histogram_fixed_width_bins(
    values: TensorLike,
    value_range: TensorLike,
    nbins: int = 100,
    dtype: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns for each value the number of its bin.

    The arguments are those of TensorFlow's ``tf.histogram_fixed_width_bins``; `name`
    has no effect.
    """
    return sorting.histogram_bins(values, value_range, nbins, dtype)


def confusion_matrix(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: int | None = None,
    weights: TensorLike | None = None,
    dtype: DType = dtypes.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns how often each label got each prediction.

    The arguments are those of TensorFlow's ``tf.math.confusion_matrix``; `name` has no
    effect.

    In a compiled function it needs `num_classes`.
    """
    return sorting.confusion_matrix(labels, predictions, num_classes, weights, dtype)


def segment_sum(
    data: TensorLike, segment_ids: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the sum of the rows of each segment, by sorted numbers.

    The arguments are those of TensorFlow's ``tf.math.segment_sum``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers. Those whose names begin with `unsorted_` can.
    """
    return sorting.segments("segment_sum", "sum", data, segment_ids)


def unsorted_segment_sum(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: int,
    name: str | None = None,
) -> jax.Array:
    """Returns the sum of the rows of each segment.

    The arguments are those of TensorFlow's ``tf.math.unsorted_segment_sum``; `name` has
    no effect.
    """
    return sorting.segments(
        "unsorted_segment_sum", "sum", data, segment_ids, num_segments
    )


def segment_mean(
    data: TensorLike, segment_ids: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the mean of the rows of each segment, by sorted numbers.

    The arguments are those of TensorFlow's ``tf.math.segment_mean``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers. Those whose names begin with `unsorted_` can.
    """
    return sorting.segments("segment_mean", "mean", data, segment_ids)


def unsorted_segment_mean(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: int,
    name: str | None = None,
) -> jax.Array:
    """Returns the mean of the rows of each segment.

    The arguments are those of TensorFlow's ``tf.math.unsorted_segment_mean``; `name`
    has no effect.
    """
    return sorting.segments(
        "unsorted_segment_mean", "mean", data, segment_ids, num_segments
    )


def segment_prod(
    data: TensorLike, segment_ids: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the product of the rows of each segment, by sorted numbers.

    The arguments are those of TensorFlow's ``tf.math.segment_prod``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers. Those whose names begin with `unsorted_` can.
    """
    return sorting.segments("segment_prod", "prod", data, segment_ids)


def unsorted_segment_prod(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: int,
    name: str | None = None,
) -> jax.Array:
    """Returns the product of the rows of each segment.

    The arguments are those of TensorFlow's ``tf.math.unsorted_segment_prod``; `name`
    has no effect.
    """
    return sorting.segments(
        "unsorted_segment_prod", "prod", data, segment_ids, num_segments
    )


def segment_max(
    data: TensorLike, segment_ids: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the largest elements of the rows of each segment, by sorted numbers.

    The arguments are those of TensorFlow's ``tf.math.segment_max``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers. Those whose names begin with `unsorted_` can.
    """
    return sorting.segments("segment_max", "max", data, segment_ids)


def unsorted_segment_max(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: int,
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements of the rows of each segment.

    The arguments are those of TensorFlow's ``tf.math.unsorted_segment_max``; `name` has
    no effect.
    """
    return sorting.segments(
        "unsorted_segment_max", "max", data, segment_ids, num_segments
    )


def segment_min(
    data: TensorLike, segment_ids: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the smallest elements of the rows of each segment, by sorted numbers.

    The arguments are those of TensorFlow's ``tf.math.segment_min``; `name` has no
    effect.

    It cannot be used in a compiled function, because the size of what it gives depends
    on the numbers. Those whose names begin with `unsorted_` can.
    """
    return sorting.segments("segment_min", "min", data, segment_ids)


def unsorted_segment_min(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: int,
    name: str | None = None,
) -> jax.Array:
    """Returns the smallest elements of the rows of each segment.

    The arguments are those of TensorFlow's ``tf.math.unsorted_segment_min``; `name` has
    no effect.
    """
    return sorting.segments(
        "unsorted_segment_min", "min", data, segment_ids, num_segments
    )


def unsorted_segment_sqrt_n(
    data: TensorLike,
    segment_ids: TensorLike,
    num_segments: int,
    name: str | None = None,
) -> jax.Array:
    """Returns the sum, over the root of the count, of the rows of each segment.

    The arguments are those of TensorFlow's ``tf.math.unsorted_segment_sqrt_n``; `name`
    has no effect.
    """
    return sorting.segments(
        "unsorted_segment_sqrt_n", "sqrt_n", data, segment_ids, num_segments
    )


publish(
    "unisono",
    gather,
    gather_nd,
    where,
    boolean_mask,
    tensor_scatter_nd_update,
    tensor_scatter_nd_add,
    tensor_scatter_nd_max,
    tensor_scatter_nd_min,
    tensor_scatter_nd_sub,
    scatter_nd,
    unique,
    unique_with_counts,
    dynamic_partition,
    dynamic_stitch,
    sort,
    argsort,
    searchsorted,
    unravel_index,
    histogram_fixed_width,
    histogram_fixed_width_bins,
)
publish(
    "unisono.math",
    top_k,
    in_top_k,
    bincount,
    invert_permutation,
    confusion_matrix,
    segment_sum,
    unsorted_segment_sum,
    segment_mean,
    unsorted_segment_mean,
    segment_prod,
    unsorted_segment_prod,
    segment_max,
    unsorted_segment_max,
    segment_min,
    unsorted_segment_min,
    unsorted_segment_sqrt_n,
)
