"""Positions: picking and putting elements, sorting, counting, groups."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_DATA = "data: TensorLike, segment_ids: TensorLike, "
_BOUNDS = (
    "In a compiled function a position that is not there reads as zero, as on "
    "TensorFlow's accelerators; eagerly it is an error."
)
_DROPPED = (
    "In a compiled function a position that is not there is left out, as on "
    "TensorFlow's accelerators; eagerly it is an error."
)
_KNOWN = (
    "It cannot be used in a compiled function, because the size of what it gives "
    "depends on the numbers."
)


def _scatter_row(name: str, summary: str, method: str) -> Name:
    """Returns the row of a change at coordinates."""
    policy = "" if name.endswith("update") else 'bad_indices_policy: str = "", '
    return Name(
        name,
        summary,
        "tensor: TensorLike, indices: TensorLike, updates: TensorLike, "
        f"{policy}name: str | None = None",
        f'indexing.scatter("{name}", "{method}", tensor, indices, updates)',
        difference=_DROPPED,
    )


def _segments(how: str, summary: str) -> tuple[Name, ...]:
    """Returns the rows of a reduction of groups, whose numbers are sorted or not."""
    free = Name(
        f"math.unsorted_segment_{how}",
        f"Returns {summary} of the rows of each segment.",
        f"{_DATA}num_segments: int, name: str | None = None",
        f'sorting.segments("unsorted_segment_{how}", "{how}", data, segment_ids, '
        "num_segments)",
    )
    if how == "sqrt_n":
        return (free,)
    ordered = Name(
        f"math.segment_{how}",
        f"Returns {summary} of the rows of each segment, by sorted numbers.",
        f"{_DATA}name: str | None = None",
        f'sorting.segments("segment_{how}", "{how}", data, segment_ids)',
        difference=f"{_KNOWN} Those whose names begin with `unsorted_` can.",
    )
    return ordered, free


ROWS = (
    Name("gather", "Returns the slices of an array at given positions.",
         "params: TensorLike, indices: TensorLike, validate_indices: object = None, "
         "axis: int | None = None, batch_dims: int = 0, name: str | None = None",
         "tensors.fold_constants(indexing.gather, params, indices, axis, batch_dims)",
         difference=_BOUNDS,
         example=">>> gather([10, 20, 30], [2, 0]).tolist()\n[30, 10]"),
    Name("gather_nd", "Returns the slices of an array at given coordinates.",
         "params: TensorLike, indices: TensorLike, batch_dims: int = 0, "
         'name: str | None = None, bad_indices_policy: str = ""',
         "indexing.gather_nd(params, indices, batch_dims)", difference=_BOUNDS),
    Name("where", "Returns elements of `x` where a condition holds, else of `y`.",
         "condition: TensorLike, x: TensorLike | None = None, "
         "y: TensorLike | None = None, name: str | None = None",
         "indexing.where(condition, x, y)",
         example=">>> where([True, False], 1.0, 0.0).tolist()\n[1.0, 0.0]",
         difference="Without `x` and `y` it gives coordinates, of type int32 unless "
         "JAX has 64-bit types, and cannot be used in a compiled function."),
    Name("boolean_mask", "Returns the elements of an array for which a mask is true.",
         "tensor: TensorLike, mask: TensorLike, axis: int | None = None, "
         'name: str | None = "boolean_mask"',
         "indexing.boolean_mask(tensor, mask, axis)", difference=_KNOWN),
    _scatter_row("tensor_scatter_nd_update",
               "Returns an array with slices at given coordinates replaced.", "set"),
    _scatter_row("tensor_scatter_nd_add",
               "Returns an array with slices added at given coordinates.", "add"),
    _scatter_row("tensor_scatter_nd_max",
               "Returns an array with larger slices put at given coordinates.", "max"),
    _scatter_row("tensor_scatter_nd_min",
               "Returns an array with smaller slices put at given coordinates.", "min"),
    Name("tensor_scatter_nd_sub",
         "Returns an array with slices subtracted at given coordinates.",
         "tensor: TensorLike, indices: TensorLike, updates: TensorLike, "
         'bad_indices_policy: str = "", name: str | None = None',
         "indexing.scatter_sub(tensor, indices, updates)", difference=_DROPPED),
    Name("scatter_nd", "Returns zeros to which slices were added at coordinates.",
         "indices: TensorLike, updates: TensorLike, shape: Sizes, "
         'bad_indices_policy: str = "", name: str | None = None',
         "indexing.scatter_nd(indices, updates, shape)", difference=_DROPPED),
    Name("unique", "Returns the different elements of a vector, and their positions.",
         "x: TensorLike, out_idx: DType = dtypes.int32, name: str | None = None"
         " -> indexing.Unique", "indexing.unique(x, out_idx)", difference=_KNOWN,
         example=">>> unique([5, 5, 7]).y.tolist()\n[5, 7]"),
    Name("unique_with_counts", "Returns the different elements, positions and counts.",
         "x: TensorLike, out_idx: DType = dtypes.int32, name: str | None = None"
         " -> indexing.UniqueWithCounts",
         'indexing.unique_with_counts("unique_with_counts", x, out_idx)',
         difference=_KNOWN),
    Name("dynamic_partition", "Returns the elements of an array in groups.",
         "data: TensorLike, partitions: TensorLike, num_partitions: int, "
         "name: str | None = None -> list[jax.Array]",
         "indexing.dynamic_partition(data, partitions, num_partitions)",
         difference=_KNOWN),
    Name("dynamic_stitch", "Returns slices put together by their positions.",
         "indices: Sequence[TensorLike], data: Sequence[TensorLike], "
         "name: str | None = None", "indexing.dynamic_stitch(indices, data)",
         difference=_KNOWN),
    Name("sort", "Returns the elements in order along an axis.",
         "values: TensorLike, axis: int = -1, direction: str = 'ASCENDING', "
         "name: str | None = None", "sorting.sort(values, axis, direction)"),
    Name("argsort", "Returns the positions that put the elements in order.",
         "values: TensorLike, axis: int = -1, direction: str = 'ASCENDING', "
         "stable: bool = False, name: str | None = None",
         "sorting.argsort(values, axis, direction)"),
    Name("math.top_k", "Returns the largest elements and their positions.",
         "input: TensorLike, k: int = 1, sorted: bool = True, "
         "index_type: DType = dtypes.int32, name: str | None = None -> sorting.TopK",
         "sorting.top_k(input, k, index_type)", also=("nn.top_k",)),
    Name("math.in_top_k", "Returns whether targets are among the best predictions.",
         "targets: TensorLike, predictions: TensorLike, k: int, "
         "name: str | None = None", "sorting.in_top_k(targets, predictions, k)",
         also=("nn.in_top_k",)),
    Name("searchsorted", "Returns where values would be inserted in sorted rows.",
         "sorted_sequence: TensorLike, values: TensorLike, side: str = 'left', "
         "out_type: DType = dtypes.int32, name: str | None = None",
         "sorting.searchsorted(sorted_sequence, values, side, out_type)"),
    Name("math.bincount", "Returns how often each integer occurs.",
         "arr: TensorLike, weights: TensorLike | None = None, "
         "minlength: int | None = None, maxlength: int | None = None, "
         "dtype: DType = dtypes.int32, name: str | None = None, "
         "axis: int | None = None, binary_output: bool = False",
         "sorting.bincount(arr, weights, minlength, maxlength, dtype, axis, "
         "binary_output)",
         difference="In a compiled function it needs `minlength` and `maxlength` of "
         "the same value."),
    Name("math.invert_permutation", "Returns the permutation that undoes another one.",
         "x: TensorLike, name: str | None = None", "sorting.invert_permutation(x)"),
    Name("unravel_index", "Returns the coordinates of positions in memory.",
         "indices: TensorLike, dims: Sizes, name: str | None = None",
         "sorting.unravel_index(indices, dims)"),
    Name("histogram_fixed_width", "Returns the number of values in each of equal bins.",
         "values: TensorLike, value_range: TensorLike, nbins: int = 100, "
         "dtype: DType = dtypes.int32, name: str | None = None",
         "sorting.histogram(values, value_range, nbins, dtype)"),
    Name("histogram_fixed_width_bins", "Returns for each value the number of its bin.",
         "values: TensorLike, value_range: TensorLike, nbins: int = 100, "
         "dtype: DType = dtypes.int32, name: str | None = None",
         "sorting.histogram_bins(values, value_range, nbins, dtype)"),
    Name("math.confusion_matrix", "Returns how often each label got each prediction.",
         "labels: TensorLike, predictions: TensorLike, "
         "num_classes: int | None = None, weights: TensorLike | None = None, "
         "dtype: DType = dtypes.int32, name: str | None = None",
         "sorting.confusion_matrix(labels, predictions, num_classes, weights, dtype)",
         difference="In a compiled function it needs `num_classes`."),
    *_segments("sum", "the sum"),
    *_segments("mean", "the mean"),
    *_segments("prod", "the product"),
    *_segments("max", "the largest elements"),
    *_segments("min", "the smallest elements"),
    *_segments("sqrt_n", "the sum, over the root of the count,"),
)  # fmt: skip
