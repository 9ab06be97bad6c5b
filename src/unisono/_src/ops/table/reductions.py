"""Functions along axes: reductions, running sums, positions."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_REDUCED = (
    "input_tensor: TensorLike, axis: Sizes | None = None, keepdims: bool = False, "
    "name: str | None = None"
)
_CUMULATED = (
    "x: TensorLike, axis: int = 0, exclusive: bool = False, reverse: bool = False, "
    "name: str | None = None"
)


def _reduction(
    name: str,
    summary: str,
    fn: str,
    allowed: str = "NUMBERS",
    *,
    example: str = "",
    only_math: bool = False,
) -> Name:
    """Returns the row of a reduction."""
    call = (
        f'tensors.fold_constants(reductions.reduce, "{name}", {fn}, input_tensor, '
        f"axis, keepdims, kinds.{allowed})"
    )
    path = f"math.{name}" if only_math else name
    also = () if only_math else (f"math.{name}",)
    return Name(path, summary, _REDUCED, call, also=also, example=example)


def _cumulation(
    path: str, summary: str, fn: str, start: str, also: tuple[str, ...] = ()
) -> Name:
    """Returns the row of a running sum or the like."""
    name = path.rpartition(".")[2]
    call = (
        f'reductions.cumulate("{name}", reductions.{fn}, {start}, x, axis, exclusive, '
        "reverse)"
    )
    return Name(path, summary, _CUMULATED, call, also=also)


_INT64 = "The positions are int32 unless JAX has 64-bit types; in TensorFlow int64."

ROWS = (
    _reduction("reduce_sum", "Returns the sum of elements over axes.",
             "reductions.add_up",
             example=">>> reduce_sum([[1, 2], [3, 4]], axis=0).tolist()\n[4, 6]"),
    _reduction("reduce_mean", "Returns the mean of elements over axes, of their type.",
             "reductions.mean", example=">>> reduce_mean([1, 2]).item()\n1"),
    _reduction("reduce_prod", "Returns the product of elements over axes.",
             "reductions.product"),
    _reduction("reduce_max", "Returns the largest elements over axes.",
             "reductions.largest", "REAL"),
    _reduction("reduce_min", "Returns the smallest elements over axes.",
             "reductions.smallest", "REAL"),
    _reduction("reduce_any", "Returns whether any element is true, over axes.",
             "jnp.any", "BOOL"),
    _reduction("reduce_all", "Returns whether all elements are true, over axes.",
             "jnp.all", "BOOL"),
    _reduction("reduce_logsumexp", "Returns the logarithm of the sum of exponentials.",
             "jax.nn.logsumexp", "FLOAT"),
    _reduction("reduce_euclidean_norm", "Returns the root of the sum of squares.",
             "reductions.euclidean_norm", only_math=True),
    Name("math.reduce_variance", "Returns the mean squared distance from the mean.",
         _REDUCED,
         'reductions.variance("reduce_variance", input_tensor, axis, keepdims)'),
    Name("math.reduce_std", "Returns the square root of the variance.", _REDUCED,
         'reductions.deviation("reduce_std", input_tensor, axis, keepdims)'),
    Name("math.count_nonzero", "Returns how many elements are not zero.",
         "input: TensorLike, axis: Sizes | None = None, keepdims: bool | None = None, "
         "dtype: DType = dtypes.int64, name: str | None = None",
         "reductions.count_nonzero(input, axis, keepdims, dtype)",
         difference="The counts are int32 unless JAX has 64-bit types."),
    Name("argmax", "Returns the positions of the largest elements along an axis.",
         "input: TensorLike, axis: int | None = None, "
         "output_type: DType = dtypes.int64, name: str | None = None",
         'reductions.position("argmax", jnp.argmax, input, axis, output_type)',
         also=("math.argmax",), difference=_INT64,
         example=">>> argmax([[1, 3, 2], [6, 5, 4]], axis=1).tolist()\n[1, 0]"),
    Name("argmin", "Returns the positions of the smallest elements along an axis.",
         "input: TensorLike, axis: int | None = None, "
         "output_type: DType = dtypes.int64, name: str | None = None",
         'reductions.position("argmin", jnp.argmin, input, axis, output_type)',
         also=("math.argmin",), difference=_INT64),
    _cumulation("cumsum", "Returns running sums along an axis.", "running_sum", "0",
               ("math.cumsum",)),
    _cumulation("math.cumprod", "Returns running products along an axis.",
               "running_product", "1"),
    _cumulation("math.cumulative_logsumexp",
               "Returns the logarithms of running sums of exponentials.",
               "running_logsumexp", "-jnp.inf"),
)  # fmt: skip
