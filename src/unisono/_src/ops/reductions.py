"""Reductions of arrays, and positions and sums along an axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from unisono._src.foundation import dtypes
from unisono._src.ops import axis_functions, kinds
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, Sizes, TensorLike

__all__ = [
    "argmax",
    "argmin",
    "cumsum",
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]

_NARROW_POSITIONS = (
    "The positions are int32 unless JAX has 64-bit types; in TensorFlow int64."
)


@array_function("reduce_sum", "math.reduce_sum")
def reduce_sum(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the sum of elements over axes.

    >>> reduce_sum([[1, 2], [3, 4]], axis=0).tolist()
    [4, 6]
    """
    return axis_functions.reduce(
        "reduce_sum", axis_functions.add_up, input_tensor, axis, keepdims
    )


@array_function("reduce_mean", "math.reduce_mean")
def reduce_mean(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the mean of elements over axes, of their type.

    >>> reduce_mean([1, 2]).item()
    1
    """
    return axis_functions.reduce(
        "reduce_mean", axis_functions.mean, input_tensor, axis, keepdims
    )


@array_function("reduce_prod", "math.reduce_prod")
def reduce_prod(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the product of elements over axes."""
    return axis_functions.reduce(
        "reduce_prod", axis_functions.product, input_tensor, axis, keepdims
    )


@array_function("reduce_max", "math.reduce_max")
def reduce_max(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the largest elements over axes."""
    return axis_functions.reduce(
        "reduce_max", axis_functions.largest, input_tensor, axis, keepdims, kinds.REAL
    )


@array_function("reduce_min", "math.reduce_min")
def reduce_min(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the smallest elements over axes."""
    return axis_functions.reduce(
        "reduce_min", axis_functions.smallest, input_tensor, axis, keepdims, kinds.REAL
    )


@array_function("reduce_any", "math.reduce_any")
def reduce_any(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns whether any element is true, over axes."""
    return axis_functions.reduce(
        "reduce_any", jnp.any, input_tensor, axis, keepdims, kinds.BOOL
    )


@array_function("reduce_all", "math.reduce_all")
def reduce_all(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns whether all elements are true, over axes."""
    return axis_functions.reduce(
        "reduce_all", jnp.all, input_tensor, axis, keepdims, kinds.BOOL
    )


@array_function("reduce_logsumexp", "math.reduce_logsumexp")
def reduce_logsumexp(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the logarithm of the sum of exponentials."""
    return axis_functions.reduce(
        "reduce_logsumexp", jax.nn.logsumexp, input_tensor, axis, keepdims, kinds.FLOAT
    )


@array_function("argmax", "math.argmax", difference=_NARROW_POSITIONS)
def argmax(
    input: TensorLike,
    axis: int | None = None,
    output_type: DType = dtypes.int64,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions of the largest elements along an axis.

    >>> argmax([[1, 3, 2], [6, 5, 4]], axis=1).tolist()
    [1, 0]
    """
    return axis_functions.position("argmax", jnp.argmax, input, axis, output_type)


@array_function("argmin", "math.argmin", difference=_NARROW_POSITIONS)
def argmin(
    input: TensorLike,
    axis: int | None = None,
    output_type: DType = dtypes.int64,
    name: str | None = None,
) -> jax.Array:
    """Returns the positions of the smallest elements along an axis."""
    return axis_functions.position("argmin", jnp.argmin, input, axis, output_type)


@array_function("cumsum", "math.cumsum")
def cumsum(
    x: TensorLike,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns running sums along an axis."""
    return axis_functions.cumulate(
        "cumsum", axis_functions.running_sum, 0, x, axis, exclusive, reverse
    )
