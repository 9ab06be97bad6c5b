"""Arithmetic of arrays: the names that ``tf`` and ``tf.math`` share."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.ops import elementwise, kinds, kinks, tensors
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import TensorLike

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "add_n",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "divide",
    "equal",
    "exp",
    "floor",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "not_equal",
    "pow",
    "round",
    "scalar_mul",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "truediv",
]


@array_function("add", "math.add")
def add(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the sum of two arrays; on the host it also concatenates strings.

    >>> add([1, 2], 3).tolist()
    [4, 5]
    """
    allowed = kinds.NUMBERS + kinds.TEXT
    return elementwise.apply_binary("add", jnp.add, x, y, allowed)


@array_function("subtract", "math.subtract")
def subtract(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the difference of two arrays."""
    return elementwise.apply_binary("subtract", jnp.subtract, x, y)


@array_function("multiply", "math.multiply")
def multiply(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the product of two arrays, element by element."""
    return elementwise.apply_binary("multiply", jnp.multiply, x, y)


@array_function("divide", "math.divide", difference=elementwise.FLOAT_QUOTIENT)
def divide(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays; integers are divided as floats.

    >>> divide([1, 2], 2).tolist()
    [0.5, 1.0]
    """
    return elementwise.divide("divide", x, y)


@array_function("truediv", "math.truediv", difference=elementwise.FLOAT_QUOTIENT)
def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays; integers are divided as floats."""
    return elementwise.divide("truediv", x, y)


@array_function(
    "pow",
    "math.pow",
    difference=(
        "In a compiled function a negative power of an integer gives a number; eagerly "
        "it is an error, as in TensorFlow."
    ),
)
def pow(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns `x` raised to the power of `y`, element by element.

    Raises:
        InvalidArgumentError: the exponent of an integer is negative.

    >>> pow([2, 3], 2).tolist()
    [4, 9]
    """
    x, y = tensors.to_one_type("pow", x, y)
    kinds.check("pow", x.dtype, kinds.NUMBERS)
    elementwise.check_shapes("pow", x, y)
    if elementwise.are_known_integers(y) and np.any(np.asarray(y) < 0):
        raise errors.InvalidArgumentError(
            "Integers to negative integer powers are not allowed."
        )
    return kinks.power(x, y)


@array_function("maximum", "math.maximum")
def maximum(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the larger element of each pair."""
    return elementwise.apply_binary("maximum", kinks.maximum, x, y, kinds.REAL)


@array_function("minimum", "math.minimum")
def minimum(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the smaller element of each pair."""
    return elementwise.apply_binary("minimum", kinks.minimum, x, y, kinds.REAL)


@array_function("atan2", "math.atan2")
def atan2(y: TensorLike, x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the angle of the point (x, y)."""
    return elementwise.apply_binary("atan2", jnp.arctan2, y, x, kinds.FLOAT)


@array_function("math.scalar_mul", "scalar_mul")
def scalar_mul(scalar: TensorLike, x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns an array multiplied by a scalar.

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


@array_function("add_n", "math.add_n")
def add_n(inputs: Sequence[TensorLike], name: str | None = None) -> jax.Array:
    """Returns the sum of arrays that have the same shape and dtype.

    >>> add_n([[1, 2], [3, 4], [5, 6]]).tolist()
    [9, 12]
    """
    return elementwise.add_n("add_n", inputs)


@array_function("equal", "math.equal")
def equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether elements are equal.

    >>> equal([1, 2], [1, 3]).tolist()
    [True, False]
    """
    return elementwise.equal("equal", jnp.equal, x, y)


@array_function("not_equal", "math.not_equal")
def not_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether elements differ."""
    return elementwise.equal("not_equal", jnp.not_equal, x, y)


@array_function("less", "math.less")
def less(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether `x` is less than `y`, element by element."""
    return elementwise.apply_binary("less", jnp.less, x, y, kinds.REAL)


@array_function("less_equal", "math.less_equal")
def less_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether `x` is at most `y`, element by element."""
    return elementwise.apply_binary("less_equal", jnp.less_equal, x, y, kinds.REAL)


@array_function("greater", "math.greater")
def greater(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether `x` is greater than `y`, element by element."""
    return elementwise.apply_binary("greater", jnp.greater, x, y, kinds.REAL)


@array_function("greater_equal", "math.greater_equal")
def greater_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether `x` is at least `y`, element by element."""
    return elementwise.apply_binary(
        "greater_equal", jnp.greater_equal, x, y, kinds.REAL
    )


@array_function("logical_and", "math.logical_and")
def logical_and(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logical AND of two arrays, element by element."""
    return elementwise.apply_logical("logical_and", jnp.logical_and, x, y)


@array_function("logical_or", "math.logical_or")
def logical_or(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logical OR of two arrays, element by element."""
    return elementwise.apply_logical("logical_or", jnp.logical_or, x, y)


@array_function("logical_not", "math.logical_not")
def logical_not(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logical NOT of each element."""
    return elementwise.apply_logical("logical_not", jnp.logical_not, x)


@array_function("abs", "math.abs")
def abs(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the absolute values."""
    return elementwise.apply_unary("abs", kinks.abs, x, kinds.SIGNED)


@array_function("negative", "math.negative")
def negative(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements with the opposite sign."""
    return elementwise.apply_unary("negative", jnp.negative, x, kinds.SIGNED)


@array_function("sign", "math.sign")
def sign(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns -1, 0 or 1 for the sign of each element."""
    return elementwise.apply_unary("sign", kinks.sign, x, kinds.SIGNED)


@array_function("square", "math.square")
def square(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the squares."""
    return elementwise.apply_unary("square", jnp.square, x)


@array_function("sqrt", "math.sqrt")
def sqrt(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the square roots.

    >>> sqrt([1.0, 4.0]).tolist()
    [1.0, 2.0]
    """
    return elementwise.apply_unary("sqrt", jnp.sqrt, x, kinds.INEXACT)


@array_function("exp", "math.exp")
def exp(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the exponentials."""
    return elementwise.apply_unary("exp", jnp.exp, x, kinds.INEXACT)


@array_function("floor", "math.floor")
def floor(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements rounded down."""
    return elementwise.apply_unary("floor", jnp.floor, x, kinds.FLOAT)


@array_function("round", "math.round")
def round(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the nearest integers; halves are rounded to even numbers.

    >>> round([0.5, 1.5, 2.4]).tolist()
    [0.0, 2.0, 2.0]
    """
    return elementwise.apply_unary("round", elementwise.round_to_even, x, kinds.REAL)


@array_function("sin", "math.sin")
def sin(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the sine."""
    return elementwise.apply_unary("sin", jnp.sin, x, kinds.INEXACT)


@array_function("cos", "math.cos")
def cos(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the cosine."""
    return elementwise.apply_unary("cos", jnp.cos, x, kinds.INEXACT)


@array_function("tan", "math.tan")
def tan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the tangent."""
    return elementwise.apply_unary("tan", jnp.tan, x, kinds.INEXACT)


@array_function("asin", "math.asin")
def asin(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse sine."""
    return elementwise.apply_unary("asin", jnp.arcsin, x, kinds.INEXACT)


@array_function("acos", "math.acos")
def acos(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse cosine."""
    return elementwise.apply_unary("acos", jnp.arccos, x, kinds.INEXACT)


@array_function("atan", "math.atan")
def atan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse tangent."""
    return elementwise.apply_unary("atan", jnp.arctan, x, kinds.INEXACT)


@array_function("sinh", "math.sinh")
def sinh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the hyperbolic sine."""
    return elementwise.apply_unary("sinh", jnp.sinh, x, kinds.INEXACT)


@array_function("cosh", "math.cosh")
def cosh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the hyperbolic cosine."""
    return elementwise.apply_unary("cosh", jnp.cosh, x, kinds.INEXACT)


@array_function("tanh", "math.tanh", "nn.tanh")
def tanh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the hyperbolic tangent."""
    return elementwise.apply_unary("tanh", jnp.tanh, x, kinds.INEXACT)


@array_function("asinh", "math.asinh")
def asinh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse hyperbolic sine."""
    return elementwise.apply_unary("asinh", jnp.arcsinh, x, kinds.INEXACT)


@array_function("acosh", "math.acosh")
def acosh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse hyperbolic cosine."""
    return elementwise.apply_unary("acosh", jnp.arccosh, x, kinds.INEXACT)


@array_function("atanh", "math.atanh")
def atanh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse hyperbolic tangent."""
    return elementwise.apply_unary("atanh", jnp.arctanh, x, kinds.INEXACT)


@array_function("sigmoid", "math.sigmoid", "nn.sigmoid")
def sigmoid(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns 1 / (1 + exp(-x))."""
    return elementwise.apply_unary("sigmoid", jax.nn.sigmoid, x, kinds.INEXACT)
