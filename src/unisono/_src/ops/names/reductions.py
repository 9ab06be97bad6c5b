"""Functions along axes: reductions, running sums, positions."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

import jax
import jax.numpy as jnp

from unisono._src.foundation import dtypes
from unisono._src.foundation.public_names import publish
from unisono._src.ops import kinds, reductions, tensors
from unisono._src.ops.tensors import DType, Sizes, TensorLike


def reduce_sum(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the sum of elements over axes.

    The arguments are those of TensorFlow's ``tf.reduce_sum``; `name` has no effect.

    >>> reduce_sum([[1, 2], [3, 4]], axis=0).tolist()
    [4, 6]
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_sum",
        reductions.add_up,
        input_tensor,
        axis,
        keepdims,
        kinds.NUMBERS,
    )


def reduce_mean(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the mean of elements over axes, of their type.

    The arguments are those of TensorFlow's ``tf.reduce_mean``; `name` has no effect.

    >>> reduce_mean([1, 2]).item()
    1
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_mean",
        reductions.mean,
        input_tensor,
        axis,
        keepdims,
        kinds.NUMBERS,
    )


def reduce_prod(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the product of elements over axes.

    The arguments are those of TensorFlow's ``tf.reduce_prod``; `name` has no effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_prod",
        reductions.product,
        input_tensor,
        axis,
        keepdims,
        kinds.NUMBERS,
    )


def reduce_max(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements over axes.

    The arguments are those of TensorFlow's ``tf.reduce_max``; `name` has no effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_max",
        reductions.largest,
        input_tensor,
        axis,
        keepdims,
        kinds.REAL,
    )


def reduce_min(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the smallest elements over axes.

    The arguments are those of TensorFlow's ``tf.reduce_min``; `name` has no effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_min",
        reductions.smallest,
        input_tensor,
        axis,
        keepdims,
        kinds.REAL,
    )


def reduce_any(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns whether any element is true, over axes.

    The arguments are those of TensorFlow's ``tf.reduce_any``; `name` has no effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_any",
        jnp.any,
        input_tensor,
        axis,
        keepdims,
        kinds.BOOL,
    )


def reduce_all(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns whether all elements are true, over axes.

    The arguments are those of TensorFlow's ``tf.reduce_all``; `name` has no effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_all",
        jnp.all,
        input_tensor,
        axis,
        keepdims,
        kinds.BOOL,
    )


def reduce_logsumexp(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the logarithm of the sum of exponentials.

    The arguments are those of TensorFlow's ``tf.reduce_logsumexp``; `name` has no
    effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_logsumexp",
        jax.nn.logsumexp,
        input_tensor,
        axis,
        keepdims,
        kinds.FLOAT,
    )


def reduce_euclidean_norm(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the root of the sum of squares.

    The arguments are those of TensorFlow's ``tf.math.reduce_euclidean_norm``; `name`
    has no effect.
    """
    return tensors.fold_constants(
        reductions.reduce,
        "reduce_euclidean_norm",
        reductions.euclidean_norm,
        input_tensor,
        axis,
        keepdims,
        kinds.NUMBERS,
    )


def reduce_variance(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the mean squared distance from the mean.

    The arguments are those of TensorFlow's ``tf.math.reduce_variance``; `name` has no
    effect.
    """
    return reductions.variance("reduce_variance", input_tensor, axis, keepdims)


def reduce_std(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the square root of the variance.

    The arguments are those of TensorFlow's ``tf.math.reduce_std``; `name` has no
    effect.
    """
    return reductions.deviation("reduce_std", input_tensor, axis, keepdims)


def count_nonzero(
    input: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool | None = None,
    dtype: DType = dtypes.int64,
    name: str | None = None,
) -> jax.Array:
    """Returns how many elements are not zero.

    The arguments are those of TensorFlow's ``tf.math.count_nonzero``; `name` has no
    effect.

    The counts are int32 unless JAX has 64-bit types.
    """
    return reductions.count_nonzero(input, axis, keepdims, dtype)


def argmax(
    input: TensorLike,
    axis: int | None = None,
    output_type: DType = dtypes.int64,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions of the largest elements along an axis.

    The arguments are those of TensorFlow's ``tf.argmax``; `name` has no effect.

    The positions are int32 unless JAX has 64-bit types; in TensorFlow int64.

    >>> argmax([[1, 3, 2], [6, 5, 4]], axis=1).tolist()
    [1, 0]
    """
    return reductions.position("argmax", jnp.argmax, input, axis, output_type)


def argmin(
    input: TensorLike,
    axis: int | None = None,
    output_type: DType = dtypes.int64,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions of the smallest elements along an axis.

    The arguments are those of TensorFlow's ``tf.argmin``; `name` has no effect.

    The positions are int32 unless JAX has 64-bit types; in TensorFlow int64.
    """
    return reductions.position("argmin", jnp.argmin, input, axis, output_type)


def cumsum(
    x: TensorLike,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns running sums along an axis.

    The arguments are those of TensorFlow's ``tf.cumsum``; `name` has no effect.
    """
    return reductions.cumulate(
        "cumsum", reductions.running_sum, 0, x, axis, exclusive, reverse
    )


def cumprod(
    x: TensorLike,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns running products along an axis.

    The arguments are those of TensorFlow's ``tf.math.cumprod``; `name` has no effect.
    """
    return reductions.cumulate(
        "cumprod", reductions.running_product, 1, x, axis, exclusive, reverse
    )


def cumulative_logsumexp(
    x: TensorLike,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the logarithms of running sums of exponentials.

    The arguments are those of TensorFlow's ``tf.math.cumulative_logsumexp``; `name` has
    no effect.
    """
    return reductions.cumulate(
        "cumulative_logsumexp",
        reductions.running_logsumexp,
        -jnp.inf,
        x,
        axis,
        exclusive,
        reverse,
    )


publish(
    "unisono",
    reduce_sum,
    reduce_mean,
    reduce_prod,
    reduce_max,
    reduce_min,
    reduce_any,
    reduce_all,
    reduce_logsumexp,
    argmax,
    argmin,
    cumsum,
)
publish(
    "unisono.math",
    reduce_euclidean_norm,
    reduce_variance,
    reduce_std,
    count_nonzero,
    cumprod,
    cumulative_logsumexp,
)
