"""Arithmetic: sums, products, powers, limits and comparisons of arrays."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.foundation.public_names import publish
from unisono._src.ops import elementwise, kinds, tensors
from unisono._src.ops.tensors import DType, Sizes, TensorLike


def add(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the sum of two arrays.

    The arguments are those of TensorFlow's ``tf.add``; `name` has no effect.

    >>> add([1, 2], 3).tolist()
    [4, 5]
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "add", jnp.add, x, y, kinds.NUMBERS
    )


def subtract(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the difference of two arrays.

    The arguments are those of TensorFlow's ``tf.subtract``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "subtract", jnp.subtract, x, y, kinds.NUMBERS
    )


def multiply(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the product of two arrays, element by element.

    The arguments are those of TensorFlow's ``tf.multiply``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "multiply", jnp.multiply, x, y, kinds.NUMBERS
    )


def divide(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays; that of integers is a float.

    The arguments are those of TensorFlow's ``tf.divide``; `name` has no effect.

    The quotient of integers of 32 or 64 bits is float32 unless JAX has 64-bit types; in
    TensorFlow it is float64.

    >>> divide([1, 2], 2).tolist()
    [0.5, 1.0]
    """
    return elementwise.divide("divide", x, y)


def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays; that of integers is a float.

    The arguments are those of TensorFlow's ``tf.truediv``; `name` has no effect.

    The quotient of integers of 32 or 64 bits is float32 unless JAX has 64-bit types; in
    TensorFlow it is float64.
    """
    return elementwise.divide("truediv", x, y)


def realdiv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays of floats.

    The arguments are those of TensorFlow's ``tf.realdiv``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "realdiv", jnp.true_divide, x, y, kinds.INEXACT
    )


def floordiv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays, rounded down.

    The arguments are those of TensorFlow's ``tf.math.floordiv``; `name` has no effect.

    In a compiled function the division of integers by zero gives a number, as
    everywhere in XLA; eagerly it is an error, as in TensorFlow.
    """
    return tensors.fold_constants(
        elementwise.divide_or_raise, "floordiv", jnp.floor_divide, x, y
    )


def floormod(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the remainder, with the sign of the divisor.

    The arguments are those of TensorFlow's ``tf.math.floormod``; `name` has no effect.

    In a compiled function the division of integers by zero gives a number, as
    everywhere in XLA; eagerly it is an error, as in TensorFlow.
    """
    return tensors.fold_constants(
        elementwise.divide_or_raise, "floormod", elementwise.floor_mod, x, y
    )


def truncatediv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient, rounded toward zero.

    The arguments are those of TensorFlow's ``tf.truncatediv``; `name` has no effect.

    In a compiled function the division of integers by zero gives a number, as
    everywhere in XLA; eagerly it is an error, as in TensorFlow.
    """
    return tensors.fold_constants(
        elementwise.divide_or_raise, "truncatediv", elementwise.truncate_division, x, y
    )


def truncatemod(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the remainder, with the sign of the dividend.

    The arguments are those of TensorFlow's ``tf.truncatemod``; `name` has no effect.

    In a compiled function the division of integers by zero gives a number, as
    everywhere in XLA; eagerly it is an error, as in TensorFlow.
    """
    return tensors.fold_constants(
        elementwise.divide_or_raise, "truncatemod", jnp.fmod, x, y
    )


def pow(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns powers: `x` to the exponents `y`.

    The arguments are those of TensorFlow's ``tf.pow``; `name` has no effect.

    In a compiled function an integer with a negative exponent gives a number; eagerly
    it is an error, as in TensorFlow.

    >>> pow([2, 3], 2).tolist()
    [4, 9]
    """
    return elementwise.power("pow", x, y)


def maximum(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the larger element of each pair.

    The arguments are those of TensorFlow's ``tf.maximum``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "maximum", jnp.maximum, x, y, kinds.REAL
    )


def minimum(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the smaller element of each pair.

    The arguments are those of TensorFlow's ``tf.minimum``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "minimum", jnp.minimum, x, y, kinds.REAL
    )


def squared_difference(
    x: TensorLike, y: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the squares of the differences.

    The arguments are those of TensorFlow's ``tf.math.squared_difference``; `name` has
    no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary,
        "squared_difference",
        elementwise.squared_difference,
        x,
        y,
        kinds.NUMBERS,
    )


def divide_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient, which is 0 where `y` is 0.

    The arguments are those of TensorFlow's ``tf.math.divide_no_nan``; `name` has no
    effect.

    The quotient of integers of 32 or 64 bits is float32 unless JAX has 64-bit types; in
    TensorFlow it is float64.
    """
    return elementwise.divide("divide_no_nan", x, y, elementwise.divide_no_nan)


def multiply_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the product, which is 0 where `y` is 0.

    The arguments are those of TensorFlow's ``tf.math.multiply_no_nan``; `name` has no
    effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary,
        "multiply_no_nan",
        elementwise.multiply_no_nan,
        x,
        y,
        kinds.INEXACT,
    )


def xdivy(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient, which is 0 where `x` is 0.

    The arguments are those of TensorFlow's ``tf.math.xdivy``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary,
        "xdivy",
        elementwise.times_unless_zero(jnp.reciprocal),
        x,
        y,
        kinds.INEXACT,
    )


def xlogy(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x * log(y), which is 0 where `x` is 0.

    The arguments are those of TensorFlow's ``tf.math.xlogy``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary,
        "xlogy",
        elementwise.times_unless_zero(jnp.log),
        x,
        y,
        kinds.INEXACT,
    )


def xlog1py(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x * log(1 + y), which is 0 where `x` is 0.

    The arguments are those of TensorFlow's ``tf.math.xlog1py``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary,
        "xlog1py",
        elementwise.times_unless_zero(jnp.log1p),
        x,
        y,
        kinds.INEXACT,
    )


def atan2(y: TensorLike, x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the angle of the point (x, y).

    The arguments are those of TensorFlow's ``tf.atan2``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "atan2", jnp.arctan2, y, x, kinds.FLOAT
    )


def nextafter(x1: TensorLike, x2: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the next number of the type toward `x2`.

    The arguments are those of TensorFlow's ``tf.math.nextafter``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "nextafter", jnp.nextafter, x1, x2, kinds.FLOAT
    )


def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns an array times a number.

    The arguments are those of TensorFlow's ``tf.math.scalar_mul``; `name` has no
    effect.
    """
    return elementwise.scalar_mul(scalar, x)


def add_n(inputs: Sequence[TensorLike], name: str | None = None) -> jax.Array:
    """Returns the sum of arrays of one shape and type.

    The arguments are those of TensorFlow's ``tf.add_n``; `name` has no effect.

    >>> add_n([[1, 2], [3, 4], [5, 6]]).tolist()
    [9, 12]
    """
    return elementwise.add_n("add_n", inputs)


def accumulate_n(
    inputs: Sequence[TensorLike],
    shape: Sizes | None = None,
    tensor_dtype: DType = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the sum of arrays of one shape and type.

    The arguments are those of TensorFlow's ``tf.math.accumulate_n``; `name` has no
    effect.
    """
    return elementwise.add_n("accumulate_n", inputs)


def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> jax.Array:
    """Returns complex numbers of their real and imaginary parts.

    The arguments are those of TensorFlow's ``tf.complex``; `name` has no effect.
    """
    return elementwise.make_complex(real, imag)


def clip_by_value(
    t: TensorLike,
    clip_value_min: TensorLike,
    clip_value_max: TensorLike,
    name: str | None = None,
) -> jax.Array:
    """Returns the elements, limited to a range.

    The arguments are those of TensorFlow's ``tf.clip_by_value``; `name` has no effect.

    >>> clip_by_value([-1.0, 0.5, 3.0], 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    return elementwise.clip_by_value(t, clip_value_min, clip_value_max)


def clip_by_norm(
    t: TensorLike,
    clip_norm: TensorLike,
    axes: Sizes | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns an array scaled down to a norm.

    The arguments are those of TensorFlow's ``tf.clip_by_norm``; `name` has no effect.
    """
    return elementwise.clip_by_norm(t, clip_norm, axes)


def clip_by_global_norm(
    t_list: Sequence[TensorLike | None],
    clip_norm: TensorLike,
    use_norm: TensorLike | None = None,
    name: str | None = None,
) -> tuple[list[Any], jax.Array]:
    """Returns arrays scaled down together, and their norm.

    The arguments are those of TensorFlow's ``tf.clip_by_global_norm``; `name` has no
    effect.
    """
    return elementwise.clip_by_global_norm(t_list, clip_norm, use_norm)


def global_norm(
    t_list: Sequence[TensorLike | None], name: str | None = None
) -> jax.Array:
    """Returns the norm of several arrays taken together.

    The arguments are those of TensorFlow's ``tf.linalg.global_norm``; `name` has no
    effect.
    """
    return elementwise.global_norm("global_norm", t_list)


def equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns which elements are equal.

    The arguments are those of TensorFlow's ``tf.equal``; `name` has no effect.

    >>> equal([1, 2], [1, 3]).tolist()
    [True, False]
    """
    return elementwise.equal("equal", jnp.equal, x, y)


def not_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns which elements differ.

    The arguments are those of TensorFlow's ``tf.not_equal``; `name` has no effect.
    """
    return elementwise.equal("not_equal", jnp.not_equal, x, y)


def less(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where `x` is less than `y`.

    The arguments are those of TensorFlow's ``tf.less``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "less", jnp.less, x, y, kinds.REAL
    )


def less_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where `x` is at most `y`.

    The arguments are those of TensorFlow's ``tf.less_equal``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "less_equal", jnp.less_equal, x, y, kinds.REAL
    )


def greater(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where `x` is greater than `y`.

    The arguments are those of TensorFlow's ``tf.greater``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "greater", jnp.greater, x, y, kinds.REAL
    )


def greater_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where `x` is at least `y`.

    The arguments are those of TensorFlow's ``tf.greater_equal``; `name` has no effect.
    """
    return tensors.fold_constants(
        elementwise.apply_binary, "greater_equal", jnp.greater_equal, x, y, kinds.REAL
    )


def logical_and(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where both are true.

    The arguments are those of TensorFlow's ``tf.logical_and``; `name` has no effect.
    """
    return elementwise.apply_logical("logical_and", jnp.logical_and, x, y)


def logical_or(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where at least one is true.

    The arguments are those of TensorFlow's ``tf.logical_or``; `name` has no effect.
    """
    return elementwise.apply_logical("logical_or", jnp.logical_or, x, y)


def logical_xor(
    x: TensorLike, y: TensorLike, name: str | None = "LogicalXor"
) -> jax.Array:
    """Returns where exactly one of two is true.

    The arguments are those of TensorFlow's ``tf.math.logical_xor``; `name` has no
    effect.
    """
    return elementwise.apply_logical("logical_xor", jnp.logical_xor, x, y)


def logical_not(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns where elements are false.

    The arguments are those of TensorFlow's ``tf.logical_not``; `name` has no effect.
    """
    return elementwise.apply_logical("logical_not", jnp.logical_not, x)


publish(
    "unisono",
    add,
    subtract,
    multiply,
    divide,
    truediv,
    realdiv,
    truncatediv,
    truncatemod,
    pow,
    maximum,
    minimum,
    atan2,
    add_n,
    complex,
    clip_by_value,
    clip_by_norm,
    clip_by_global_norm,
    equal,
    not_equal,
    less,
    less_equal,
    greater,
    greater_equal,
    logical_and,
    logical_or,
    logical_not,
)
publish(
    "unisono.math",
    floordiv,
    floormod,
    squared_difference,
    divide_no_nan,
    multiply_no_nan,
    xdivy,
    xlogy,
    xlog1py,
    nextafter,
    scalar_mul,
    accumulate_n,
    logical_xor,
)
publish("unisono.linalg", global_norm)
