"""Functions of single elements that TensorFlow has and `jax.numpy` lacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import kinds, tensors
from unisono._src.values import jax_tapes
from unisono._src.values.indexed_slices import IndexedSlices

_Function = Callable[..., jax.Array]


def apply_unary(
    name: str, fn: _Function, x: Any, allowed: str = kinds.NUMBERS
) -> jax.Array:
    """Applies a function to each element.

    Args:
        name: the name that the program calls.
        fn: the function of JAX.
        x: array-like.
        allowed: the kinds of elements that it takes.

    Raises:
        InvalidArgumentError: the elements are of another kind.
    """
    x = tensors.tensor(x)
    kinds.check(name, x.dtype, allowed)
    return fn(x)


def apply_binary(
    name: str, fn: _Function, x: Any, y: Any, allowed: str = kinds.NUMBERS
) -> jax.Array:
    """Applies a function to the elements of two arrays of one type.

    Args:
        name: the name that the program calls.
        fn: the function of JAX.
        x: array-like.
        y: array-like.
        allowed: the kinds of elements that it takes.

    Raises:
        InvalidArgumentError: types or shapes do not fit together.
        TypeError: a number does not fit the type of the other array.
    """
    x, y = tensors.to_one_type(name, x, y)
    kinds.check(name, x.dtype, allowed)
    check_shapes(name, x, y)
    return fn(x, y)


def check_shapes(name: str, *arrays: Any) -> None:
    """Raises `InvalidArgumentError` unless arrays can be broadcast together."""
    # The most frequent cases, without a search: one shape, and scalars.
    if len({x.shape for x in arrays if x.shape}) <= 1:
        return
    try:
        jnp.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError:
        shapes = " vs. ".join(str(list(x.shape)) for x in arrays)
        raise errors.InvalidArgumentError(
            f"Incompatible shapes: {shapes} in {name}."
        ) from None


def apply_logical(name: str, fn: _Function, *values: Any) -> jax.Array:
    """Applies a logical function to arrays of bools."""
    found = [as_bools(name, x) for x in values]
    check_shapes(name, *found)
    return fn(*found)


def as_bools(name: str, x: Any) -> jax.Array:
    """Returns an array of bools.

    Raises:
        InvalidArgumentError: it is an array of another type.
        TypeError: it is a number, or a list, of another type.
    """
    x = tensors.unwrap(x)
    if isinstance(x, jax.Array) or tensors.has_arrays(x):
        found = tensors.tensor(x)
        kinds.check(name, found.dtype, kinds.BOOL)
        return found
    return tensors.tensor(x, dtypes.bool)


def divide(name: str, x: Any, y: Any, fn: _Function = jnp.true_divide) -> jax.Array:
    """Returns the quotient; that of integers is a float.

    Args:
        name: the name that the program calls.
        x: array-like.
        y: array-like.
        fn: the function of JAX that divides floats.

    Raises:
        TypeError: the arrays are of different types.
    """
    try:
        x, y = tensors.to_one_type(name, x, y)
    except errors.InvalidArgumentError as error:
        raise TypeError(str(error)) from None
    kinds.check(name, x.dtype, kinds.NUMBERS)
    if kinds.kind(x.dtype) == "i":
        # TensorFlow divides small integers as float32, others as float64.
        wide = tensors.canonical_type(
            dtypes.float32 if x.dtype.itemsize <= 2 else dtypes.float64
        )
        x, y = x.astype(wide), y.astype(wide)
    check_shapes(name, x, y)
    return fn(x, y)


def divide_or_raise(name: str, fn: _Function, x: Any, y: Any) -> jax.Array:
    """Returns a quotient or remainder; that of integers by zero is an error eagerly."""
    x, y = tensors.to_one_type(name, x, y)
    kinds.check(name, x.dtype, kinds.REAL)
    check_shapes(name, x, y)
    if _are_known_integers(y) and not np.all(np.asarray(y)):
        raise errors.InvalidArgumentError(f"Integer division by zero in {name}.")
    return fn(x, y)


def truncate_division(x: Any, y: Any) -> jax.Array:
    """Returns the quotient rounded toward zero."""
    if kinds.kind(x.dtype) == "i":
        # XLA's division of integers rounds toward zero; Python's rounds down.
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    return jnp.trunc(x / y)


def floor_mod(x: Any, y: Any) -> jax.Array:
    """Returns the remainder with the sign of the divisor."""
    return jnp.mod(x, y)


def power(name: str, x: Any, y: Any) -> jax.Array:
    """Returns a power of each element.

    Raises:
        InvalidArgumentError: an integer would get a negative exponent.
    """
    x, y = tensors.to_one_type(name, x, y)
    kinds.check(name, x.dtype, kinds.NUMBERS)
    check_shapes(name, x, y)
    if _are_known_integers(y) and np.any(np.asarray(y) < 0):
        raise errors.InvalidArgumentError(
            "Integers to negative integer powers are not allowed."
        )
    return jnp.power(x, y)


def _are_known_integers(x: Any) -> bool:
    return kinds.kind(x.dtype) == "i" and not jax_tapes.is_traced(x)


def equal(name: str, fn: _Function, x: Any, y: Any) -> jax.Array:
    """Returns whether elements are equal, or differ."""
    x, y = tensors.to_one_type(name, x, y)
    check_shapes(name, x, y)
    return fn(x, y)


def clip_by_value(t: Any, low: Any, high: Any) -> jax.Array:
    """Returns the elements, those beyond two bounds replaced by the bounds."""
    t, low, high = tensors.to_one_type("clip_by_value", t, low, high)
    kinds.check("clip_by_value", t.dtype, kinds.REAL)
    check_shapes("clip_by_value", t, low, high)
    return jnp.minimum(jnp.maximum(t, low), high)


def add_n(name: str, inputs: Sequence[Any]) -> jax.Array:
    """Returns the sum of arrays of one shape and type.

    Raises:
        ValueError: there are none.
        InvalidArgumentError: their shapes or types differ.
    """
    values = list(inputs)
    if not values:
        raise ValueError(
            "Inputs must be an iterable of at least one Tensor/IndexedSlices with the "
            "same dtype and shape."
        )
    found = tensors.to_one_type(name, *values)
    kinds.check(name, found[0].dtype, kinds.NUMBERS)
    if len({x.shape for x in found}) > 1:
        shapes = ", ".join(str(list(x.shape)) for x in found)
        raise errors.InvalidArgumentError(
            f"{name} takes arrays of one shape, received {shapes}."
        )
    total = jnp.asarray(found[0])
    for x in found[1:]:
        total = total + x
    return total


def scalar_mul(scalar: Any, x: Any) -> jax.Array:
    """Returns an array times a number.

    Raises:
        ValueError: `scalar` is not a scalar.
    """
    x = tensors.tensor(x)
    (_, factor) = tensors.to_one_type("scalar_mul", x, scalar)
    if factor.ndim:
        raise ValueError(
            "The input scalar must be a 0-D value. Received shape "
            f"{tuple(factor.shape)}."
        )
    return jnp.multiply(x, factor)


def multiply_no_nan(x: Any, y: Any) -> jax.Array:
    """Returns the product, which is 0 where `y` is 0."""
    return jnp.where(y == 0, jnp.zeros((), x.dtype), x * y)


def divide_no_nan(x: Any, y: Any) -> jax.Array:
    """Returns the quotient, which is 0 where `y` is 0."""
    # The gradient must not see the division by zero.
    is_zero = y == 0
    safe = jnp.where(is_zero, jnp.ones((), x.dtype), y)
    return jnp.where(is_zero, jnp.zeros((), x.dtype), x / safe)


def times_unless_zero(fn: _Function) -> _Function:
    """Returns the function ``x * fn(y)`` that is 0 where `x` is 0."""

    def product(x: Any, y: Any) -> jax.Array:
        is_zero = x == 0
        one = jnp.ones((), x.dtype)
        safe = jnp.where(is_zero, one, y)
        return jnp.where(is_zero, jnp.zeros((), x.dtype), x * fn(safe))

    return product


def make_complex(real: Any, imag: Any) -> jax.Array:
    """Returns complex numbers of their real and imaginary parts."""
    real, imag = tensors.to_one_type("complex", real, imag)
    if kinds.kind(real.dtype) != "f" or real.dtype.itemsize < 4:
        raise TypeError(
            "real and imag have incorrect types: complex takes float32 or float64, "
            f"received {real.dtype}."
        )
    check_shapes("complex", real, imag)
    return jax.lax.complex(*jnp.broadcast_arrays(real, imag))


def round_to_even(x: Any) -> jax.Array:
    """Returns the nearest whole numbers, halves to even ones."""
    return x if kinds.kind(x.dtype) == "i" else jnp.round(x)


def global_norm(name: str, t_list: Any) -> jax.Array:
    """Returns the square root of the sum of all squares in several arrays.

    Raises:
        TypeError: `t_list` is not a sequence.
    """
    if not isinstance(t_list, (list, tuple)):
        raise TypeError(
            f"`t_list` should be a sequence of tensors. Received {type(t_list)}."
        )
    found = [_rows(x) for x in t_list if x is not None]
    for x in found:
        kinds.check(name, x.dtype, kinds.INEXACT)
    # TensorFlow adds up `l2_loss`, which is half of each sum; so the rounding is alike.
    halves = jnp.stack([jnp.sum(jnp.square(jnp.abs(x))) / 2 for x in found])
    return jnp.sqrt(jnp.sum(halves) * 2)


def _rows(x: Any) -> jax.Array:
    """Returns the array of a value; of `IndexedSlices` their rows only."""
    return tensors.tensor(getattr(x, "values", x) if _is_sparse(x) else x)


def _is_sparse(x: Any) -> bool:
    return isinstance(x, IndexedSlices)


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any
) -> tuple[list[Any], jax.Array]:
    """Returns arrays scaled down to a common norm, and the norm that they had.

    None stays None. If the norm is not finite, all elements become NaN.
    """
    norm = global_norm("clip_by_global_norm", t_list)
    if use_norm is not None:
        norm = tensors.tensor(use_norm)
    (norm, limit) = tensors.to_one_type("clip_by_global_norm", norm, clip_norm)
    # TensorFlow's formula, with its rounding. For a norm of 0 it gives 1.
    scale = limit * jnp.minimum(1.0 / norm, jnp.ones((), norm.dtype) / limit)
    # It is NaN if the norm is not finite, and so becomes all that it multiplies.
    scale = scale + (norm - norm)
    return [_scale(x, scale) for x in t_list], norm


def _scale(x: Any, scale: jax.Array) -> Any:
    if x is None:
        return None
    if _is_sparse(x):
        values = tensors.tensor(x.values) * scale
        return IndexedSlices(values, x.indices, x.dense_shape)
    x = tensors.tensor(x)
    return x * scale.astype(x.dtype)


def clip_by_norm(t: Any, clip_norm: Any, axes: Any) -> jax.Array:
    """Returns an array scaled down to a norm, where its own is larger."""
    values = _rows(t)
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
    if _is_sparse(t):
        clipped = IndexedSlices(clipped, t.indices, t.dense_shape)
    made: jax.Array = clipped
    return made


def squared_difference(x: Any, y: Any) -> jax.Array:
    """Returns the squares of the differences."""
    return jnp.square(x - y)


def reciprocal_no_nan(x: Any) -> jax.Array:
    """Returns one divided by the elements; 0 for 0."""
    return divide_no_nan(jnp.ones_like(x), x)


def is_sorted(name: str, compare: _Function, x: Any) -> jax.Array:
    """Returns whether each pair of neighbours, in the order of memory, is in order."""
    x = tensors.tensor(x)
    kinds.check(name, x.dtype, kinds.REAL)
    flat = x.reshape(-1)
    return jnp.all(compare(flat[:-1], flat[1:]))


def polyval(coeffs: Any, x: Any) -> jax.Array:
    """Returns the values of a polynomial, whose highest coefficient comes first.

    Raises:
        ValueError: `coeffs` is not a list.
    """
    if not isinstance(coeffs, (list, tuple)):
        raise ValueError(
            f"Argument coeffs must be list type. Received type {type(coeffs)}."
        )
    found = tensors.tensor(x)
    if not coeffs:
        return jnp.zeros_like(found)
    total = tensors.to_one_type("polyval", found, coeffs[0])[1]
    for factor in coeffs[1:]:
        total = tensors.to_one_type("polyval", found, factor)[1] + total * found
    return jnp.asarray(total)
