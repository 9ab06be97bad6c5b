"""Limits elements and norms; also arithmetic that is in ``tf`` only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.ops import elementwise, kinds, kinks, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import Sizes, TensorLike
from unisono._src.values.indexed_slices import IndexedSlices

__all__ = [
    "clip_by_global_norm",
    "clip_by_norm",
    "clip_by_value",
    "complex",
    "realdiv",
    "truncatediv",
    "truncatemod",
]


@array_function("realdiv")
def realdiv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays of floats."""
    return elementwise.apply_binary("realdiv", jnp.true_divide, x, y, kinds.INEXACT)


@array_function("truncatediv", difference=elementwise.ZERO_DIVISOR)
def truncatediv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient, rounded toward zero."""
    return elementwise.divide_or_raise(
        "truncatediv", elementwise.truncate_division, x, y
    )


@array_function("truncatemod", difference=elementwise.ZERO_DIVISOR)
def truncatemod(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the remainder, with the sign of the dividend."""
    return elementwise.divide_or_raise("truncatemod", jnp.fmod, x, y)


@array_function("complex")
def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> jax.Array:
    """Returns complex numbers, given their real and imaginary parts."""
    real, imag = tensors.to_one_type("complex", real, imag)
    if kinds.kind(real.dtype) != "f" or real.dtype.itemsize < 4:
        raise TypeError(
            "real and imag have incorrect types: complex takes float32 or float64, "
            f"received {real.dtype}."
        )
    elementwise.check_shapes("complex", real, imag)
    return jax.lax.complex(*jnp.broadcast_arrays(real, imag))


@array_function("clip_by_value")
def clip_by_value(
    t: TensorLike,
    clip_value_min: TensorLike,
    clip_value_max: TensorLike,
    name: str | None = None,
) -> jax.Array:
    """Returns the elements, limited to a range.

    >>> clip_by_value([-1.0, 0.5, 3.0], 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    t, clip_value_min, clip_value_max = tensors.to_one_type(
        "clip_by_value", t, clip_value_min, clip_value_max
    )
    kinds.check("clip_by_value", t.dtype, kinds.REAL)
    elementwise.check_shapes("clip_by_value", t, clip_value_min, clip_value_max)
    return kinks.minimum(kinks.maximum(t, clip_value_min), clip_value_max)


@array_function("clip_by_norm")
def clip_by_norm(
    t: TensorLike,
    clip_norm: TensorLike,
    axes: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns an array, scaled down if its norm is larger than `clip_norm`."""
    values = elementwise.rows_of(t)
    values, limit = tensors.to_one_type("clip_by_norm", values, clip_norm)
    kinds.check("clip_by_norm", values.dtype, kinds.INEXACT)
    along = None if axes is None else tensors.sizes("clip_by_norm", "axes", axes)
    total = tensors.call(
        "clip_by_norm", jnp.sum, values * values, axis=along, keepdims=True
    )
    # The square root of 0 has no gradient.
    is_positive = total > 0
    safe = jnp.where(is_positive, total, jnp.ones((), total.dtype))
    norm = jnp.where(is_positive, jnp.sqrt(safe), total)
    clipped: Any = (values * limit) / jnp.maximum(norm, limit)
    if isinstance(t, IndexedSlices):
        clipped = IndexedSlices(clipped, t.indices, t.dense_shape)
    made: jax.Array = clipped
    return made


@array_function("clip_by_global_norm")
def clip_by_global_norm(
    t_list: Sequence[TensorLike | None],
    clip_norm: TensorLike,
    use_norm: TensorLike | None = None,
    name: str | None = None,
) -> tuple[list[Any], jax.Array]:
    """Returns arrays, scaled down if their global norm is too large, and the norm.

    None in the list stays None. If the norm is not finite, all elements become NaN.
    """
    norm = elementwise.global_norm("clip_by_global_norm", t_list)
    if use_norm is not None:
        norm = tensors.tensor(use_norm)
    (norm, limit) = tensors.to_one_type("clip_by_global_norm", norm, clip_norm)
    # TensorFlow's formula, with its rounding. For a norm of 0 it gives 1.
    scale = limit * jnp.minimum(1.0 / norm, jnp.ones((), norm.dtype) / limit)
    # It is NaN if the norm is not finite, and so becomes all that it multiplies.
    scale = scale + (norm - norm)
    return [_scale(x, scale) for x in t_list], norm


def _scale(x: TensorLike | None, scale: jax.Array) -> jax.Array | IndexedSlices | None:
    if x is None:
        return None
    if isinstance(x, IndexedSlices):
        values = tensors.tensor(x.values) * scale
        return IndexedSlices(values, x.indices, x.dense_shape)
    x = tensors.tensor(x)
    return x * scale.astype(x.dtype)
