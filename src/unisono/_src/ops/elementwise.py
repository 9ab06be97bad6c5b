"""Applies functions of JAX to elements, after the checks that TensorFlow makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors
from unisono._src.ops import kinds, tensors
from unisono._src.ops.tensors import TensorLike
from unisono._src.values import jax_tapes
from unisono._src.values.indexed_slices import IndexedSlices

FLOAT_QUOTIENT = (
    "The quotient of 32-bit or 64-bit integers is float32 unless JAX's 64-bit types "
    "are enabled; in TensorFlow it is float64."
)
ZERO_DIVISOR = (
    "In a compiled function the division of an integer by zero gives a number, as "
    "everywhere in XLA; eagerly it is an error, as in TensorFlow."
)


_Function = Callable[..., jax.Array]


def apply_unary(
    name: str, fn: _Function, x: TensorLike, allowed: str = kinds.NUMBERS
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


@tensors.folds_constants
def apply_binary(
    name: str, fn: _Function, x: TensorLike, y: TensorLike, allowed: str = kinds.NUMBERS
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


def check_shapes(name: str, *arrays: jax.Array) -> None:
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


def apply_logical(name: str, fn: _Function, *values: TensorLike) -> jax.Array:
    """Applies a logical function to arrays of bools."""
    found = [as_bools(name, x) for x in values]
    check_shapes(name, *found)
    return fn(*found)


def as_bools(name: str, x: object) -> jax.Array:
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


def divide(
    name: str, x: TensorLike, y: TensorLike, fn: _Function | None = None
) -> jax.Array:
    """Returns the quotient; that of integers is a float.

    Args:
        name: the name that the program calls.
        x: array-like.
        y: array-like.
        fn: the function that divides floats, if it is another.

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
    return jnp.true_divide(x, y) if fn is None else fn(x, y)


@tensors.folds_constants
def divide_or_raise(
    name: str, fn: _Function, x: TensorLike, y: TensorLike
) -> jax.Array:
    """Returns a quotient or remainder; that of integers by zero is an error eagerly."""
    x, y = tensors.to_one_type(name, x, y)
    kinds.check(name, x.dtype, kinds.REAL)
    check_shapes(name, x, y)
    if are_known_integers(y) and not np.all(np.asarray(y)):
        raise errors.InvalidArgumentError(f"Integer division by zero in {name}.")
    return fn(x, y)


def truncate_division(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the quotient rounded toward zero."""
    if kinds.kind(x.dtype) == "i":
        # XLA's division of integers rounds toward zero; Python's rounds down.
        return jax.lax.div(*jnp.broadcast_arrays(x, y))
    return jnp.trunc(x / y)


def are_known_integers(x: jax.Array) -> bool:
    return kinds.kind(x.dtype) == "i" and not jax_tapes.is_traced(x)


def equal(name: str, fn: _Function, x: TensorLike, y: TensorLike) -> jax.Array:
    """Returns whether elements are equal, or differ."""
    x, y = tensors.to_one_type(name, x, y)
    check_shapes(name, x, y)
    return fn(x, y)


def add_n(name: str, inputs: Sequence[TensorLike]) -> jax.Array:
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
    dtype = found[0].dtype
    total = jnp.asarray(found[0], jnp.float32 if kinds.is_half(dtype) else dtype)
    for x in found[1:]:
        total = total + x
    return total.astype(dtype)


def multiply_no_nan(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the product, which is 0 where `y` is 0."""
    # The product of a zero that is not a constant: as in TensorFlow the gradient of
    # `y` is `x` there, too.
    safe = jnp.where((y == 0) & ~jnp.isfinite(x), jnp.zeros((), x.dtype), x)
    return safe * y


def divide_no_nan(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the quotient, which is 0 where `y` is 0."""
    # The gradient must not see the division by zero.
    is_zero = y == 0
    safe = jnp.where(is_zero, jnp.ones((), x.dtype), y)
    return jnp.where(is_zero, jnp.zeros((), x.dtype), x / safe)


def times_unless_zero(fn: _Function) -> _Function:
    """Returns the function ``x * fn(y)`` that is 0 where `x` is 0."""

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        is_zero = x == 0
        one = jnp.ones((), x.dtype)
        safe = jnp.where(is_zero, one, y)
        return jnp.where(is_zero, jnp.zeros((), x.dtype), x * fn(safe))

    return product


def round_to_even(x: jax.Array) -> jax.Array:
    """Returns the nearest whole numbers, halves to even ones."""
    return x if kinds.kind(x.dtype) == "i" else jnp.round(x)


def squared_difference(x: jax.Array, y: jax.Array) -> jax.Array:
    """Returns the squares of the differences."""
    return jnp.square(x - y)


def reciprocal_no_nan(x: jax.Array) -> jax.Array:
    """Returns one divided by the elements; 0 for 0."""
    return divide_no_nan(jnp.ones_like(x), x)


def is_sorted(name: str, compare: _Function, x: TensorLike) -> jax.Array:
    """Returns whether each pair of neighbours, in the order of memory, is in order."""
    x = tensors.tensor(x)
    kinds.check(name, x.dtype, kinds.REAL)
    flat = x.reshape(-1)
    return jnp.all(compare(flat[:-1], flat[1:]))


def global_norm(name: str, t_list: object) -> jax.Array:
    """Returns the square root of the sum of all squares in several arrays.

    Raises:
        TypeError: `t_list` is not a sequence.
    """
    if not isinstance(t_list, (list, tuple)):
        raise TypeError(
            f"`t_list` should be a sequence of tensors. Received {type(t_list)}."
        )
    found = [rows_of(x) for x in t_list if x is not None]
    for x in found:
        kinds.check(name, x.dtype, kinds.INEXACT)
    # TensorFlow adds up `l2_loss`, which is half of each sum; so the rounding is alike.
    halves = jnp.stack([jnp.sum(jnp.square(jnp.abs(x))) / 2 for x in found])
    return jnp.sqrt(jnp.sum(halves) * 2)


def rows_of(x: object) -> jax.Array:
    """Returns the array of a value; of `IndexedSlices` their rows only."""
    return tensors.tensor(x.values if isinstance(x, IndexedSlices) else x)
