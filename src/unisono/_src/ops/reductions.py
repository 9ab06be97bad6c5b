"""Reductions of arrays, and positions and sums along an axis."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes
from unisono._src.ops import axis_functions, kinds
from unisono._src.ops.axis_functions import Axes
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, TensorLike

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
    "The result is int32 unless JAX's 64-bit types are enabled; in TensorFlow it is "
    "int64."
)


@axis_functions.reduction("reduce_sum", "math.reduce_sum")
def reduce_sum(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the sum of elements over axes.

    >>> reduce_sum([[1, 2], [3, 4]], axis=0).tolist()
    [4, 6]
    """
    return axis_functions.add_up(x, axis, keepdims)


@axis_functions.reduction("reduce_mean", "math.reduce_mean")
def reduce_mean(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the mean of elements over axes, in the dtype of the elements.

    >>> reduce_mean([1, 2]).item()
    1
    """
    return axis_functions.mean(x, axis, keepdims)


@axis_functions.reduction("reduce_prod", "math.reduce_prod")
def reduce_prod(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the product of elements over axes."""
    return axis_functions.multiply(x, axis, keepdims)


@axis_functions.reduction("reduce_max", "math.reduce_max", allowed=kinds.REAL)
def reduce_max(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the largest elements over axes."""
    return jnp.max(x, axis, keepdims=keepdims, initial=_bound(x.dtype, -1))


@axis_functions.reduction("reduce_min", "math.reduce_min", allowed=kinds.REAL)
def reduce_min(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the smallest elements over axes."""
    return jnp.min(x, axis, keepdims=keepdims, initial=_bound(x.dtype, 1))


@axis_functions.reduction("reduce_any", "math.reduce_any", allowed=kinds.BOOL)
def reduce_any(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns whether any element is true, over axes."""
    return jnp.any(x, axis, keepdims=keepdims)


@axis_functions.reduction("reduce_all", "math.reduce_all", allowed=kinds.BOOL)
def reduce_all(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns whether all elements are true, over axes."""
    return jnp.all(x, axis, keepdims=keepdims)


@axis_functions.reduction(
    "reduce_logsumexp", "math.reduce_logsumexp", allowed=kinds.FLOAT
)
def reduce_logsumexp(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the logarithm of the sum of exponentials over axes."""
    return jax.nn.logsumexp(x, axis, keepdims=keepdims)


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
    """Returns the cumulative sums along an axis."""
    return axis_functions.cumulate(
        "cumsum", axis_functions.running_sum, 0, x, axis, exclusive, reverse
    )


def _bound(dtype: np.dtype, sign: int) -> np.ndarray:
    if kinds.kind(dtype) == "f":
        return np.asarray(sign * np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(limits.max if sign > 0 else limits.min, dtype)
