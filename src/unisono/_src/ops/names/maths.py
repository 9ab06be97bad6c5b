"""Mathematics: functions of single elements."""
# Written by `python -m tests.architecture.everyday_names` from ops/table.

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from unisono._src.foundation.public_names import publish
from unisono._src.ops import elementwise, kinds
from unisono._src.ops.tensors import TensorLike


def abs(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns absolute values.

    The arguments are those of TensorFlow's ``tf.abs``; `name` has no effect.
    """
    return elementwise.apply_unary("abs", jnp.abs, x, kinds.SIGNED)


def negative(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements with the opposite sign.

    The arguments are those of TensorFlow's ``tf.negative``; `name` has no effect.
    """
    return elementwise.apply_unary("negative", jnp.negative, x, kinds.SIGNED)


def sign(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns -1, 0 or 1 for the sign of each element.

    The arguments are those of TensorFlow's ``tf.sign``; `name` has no effect.
    """
    return elementwise.apply_unary("sign", jnp.sign, x, kinds.SIGNED)


def square(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the squares.

    The arguments are those of TensorFlow's ``tf.square``; `name` has no effect.
    """
    return elementwise.apply_unary("square", jnp.square, x, kinds.NUMBERS)


def sqrt(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the square roots.

    The arguments are those of TensorFlow's ``tf.sqrt``; `name` has no effect.

    >>> sqrt([1.0, 4.0]).tolist()
    [1.0, 2.0]
    """
    return elementwise.apply_unary("sqrt", jnp.sqrt, x, kinds.INEXACT)


def rsqrt(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns one divided by the square roots.

    The arguments are those of TensorFlow's ``tf.math.rsqrt``; `name` has no effect.
    """
    return elementwise.apply_unary("rsqrt", jax.lax.rsqrt, x, kinds.INEXACT)


def reciprocal(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns one divided by the elements.

    The arguments are those of TensorFlow's ``tf.math.reciprocal``; `name` has no
    effect.
    """
    return elementwise.apply_unary("reciprocal", jnp.reciprocal, x, kinds.INEXACT)


def reciprocal_no_nan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns one divided by the elements; 0 for 0.

    The arguments are those of TensorFlow's ``tf.math.reciprocal_no_nan``; `name` has no
    effect.
    """
    return elementwise.apply_unary(
        "reciprocal_no_nan", elementwise.reciprocal_no_nan, x, kinds.INEXACT
    )


def exp(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the exponentials.

    The arguments are those of TensorFlow's ``tf.exp``; `name` has no effect.
    """
    return elementwise.apply_unary("exp", jnp.exp, x, kinds.INEXACT)


def expm1(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns exp(x) - 1, also exact near 0.

    The arguments are those of TensorFlow's ``tf.math.expm1``; `name` has no effect.
    """
    return elementwise.apply_unary("expm1", jnp.expm1, x, kinds.INEXACT)


def log(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the natural logarithms.

    The arguments are those of TensorFlow's ``tf.math.log``; `name` has no effect.
    """
    return elementwise.apply_unary("log", jnp.log, x, kinds.INEXACT)


def log1p(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns log(1 + x), also exact near 0.

    The arguments are those of TensorFlow's ``tf.math.log1p``; `name` has no effect.
    """
    return elementwise.apply_unary("log1p", jnp.log1p, x, kinds.INEXACT)


def log_sigmoid(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logarithms of the sigmoid.

    The arguments are those of TensorFlow's ``tf.math.log_sigmoid``; `name` has no
    effect.
    """
    return elementwise.apply_unary("log_sigmoid", jax.nn.log_sigmoid, x, kinds.FLOAT)


def floor(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements rounded down.

    The arguments are those of TensorFlow's ``tf.floor``; `name` has no effect.
    """
    return elementwise.apply_unary("floor", jnp.floor, x, kinds.FLOAT)


def ceil(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements rounded up.

    The arguments are those of TensorFlow's ``tf.math.ceil``; `name` has no effect.
    """
    return elementwise.apply_unary("ceil", jnp.ceil, x, kinds.FLOAT)


def round(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the nearest whole numbers, halves to even ones.

    The arguments are those of TensorFlow's ``tf.round``; `name` has no effect.

    >>> round([0.5, 1.5, 2.4]).tolist()
    [0.0, 2.0, 2.0]
    """
    return elementwise.apply_unary("round", elementwise.round_to_even, x, kinds.REAL)


def rint(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the nearest whole numbers, halves to even ones.

    The arguments are those of TensorFlow's ``tf.math.rint``; `name` has no effect.
    """
    return elementwise.apply_unary("rint", jnp.rint, x, kinds.FLOAT)


def sin(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the sine.

    The arguments are those of TensorFlow's ``tf.sin``; `name` has no effect.
    """
    return elementwise.apply_unary("sin", jnp.sin, x, kinds.INEXACT)


def cos(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the cosine.

    The arguments are those of TensorFlow's ``tf.cos``; `name` has no effect.
    """
    return elementwise.apply_unary("cos", jnp.cos, x, kinds.INEXACT)


def tan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the tangent.

    The arguments are those of TensorFlow's ``tf.tan``; `name` has no effect.
    """
    return elementwise.apply_unary("tan", jnp.tan, x, kinds.INEXACT)


def asin(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse sine.

    The arguments are those of TensorFlow's ``tf.asin``; `name` has no effect.
    """
    return elementwise.apply_unary("asin", jnp.arcsin, x, kinds.INEXACT)


def acos(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse cosine.

    The arguments are those of TensorFlow's ``tf.acos``; `name` has no effect.
    """
    return elementwise.apply_unary("acos", jnp.arccos, x, kinds.INEXACT)


def atan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse tangent.

    The arguments are those of TensorFlow's ``tf.atan``; `name` has no effect.
    """
    return elementwise.apply_unary("atan", jnp.arctan, x, kinds.INEXACT)


def sinh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the hyperbolic sine.

    The arguments are those of TensorFlow's ``tf.sinh``; `name` has no effect.
    """
    return elementwise.apply_unary("sinh", jnp.sinh, x, kinds.INEXACT)


def cosh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the hyperbolic cosine.

    The arguments are those of TensorFlow's ``tf.cosh``; `name` has no effect.
    """
    return elementwise.apply_unary("cosh", jnp.cosh, x, kinds.INEXACT)


def tanh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the hyperbolic tangent.

    The arguments are those of TensorFlow's ``tf.tanh``; `name` has no effect.
    """
    return elementwise.apply_unary("tanh", jnp.tanh, x, kinds.INEXACT)


def asinh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse hyperbolic sine.

    The arguments are those of TensorFlow's ``tf.asinh``; `name` has no effect.
    """
    return elementwise.apply_unary("asinh", jnp.arcsinh, x, kinds.INEXACT)


def acosh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse hyperbolic cosine.

    The arguments are those of TensorFlow's ``tf.acosh``; `name` has no effect.
    """
    return elementwise.apply_unary("acosh", jnp.arccosh, x, kinds.INEXACT)


def atanh(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse hyperbolic tangent.

    The arguments are those of TensorFlow's ``tf.atanh``; `name` has no effect.
    """
    return elementwise.apply_unary("atanh", jnp.arctanh, x, kinds.INEXACT)


def sigmoid(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns 1 / (1 + exp(-x)).

    The arguments are those of TensorFlow's ``tf.sigmoid``; `name` has no effect.
    """
    return elementwise.apply_unary("sigmoid", jax.nn.sigmoid, x, kinds.INEXACT)


def erf(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the error function.

    The arguments are those of TensorFlow's ``tf.math.erf``; `name` has no effect.
    """
    return elementwise.apply_unary("erf", jax.scipy.special.erf, x, kinds.FLOAT)


def erfc(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns one minus the error function.

    The arguments are those of TensorFlow's ``tf.math.erfc``; `name` has no effect.
    """
    return elementwise.apply_unary("erfc", jax.scipy.special.erfc, x, kinds.FLOAT)


def erfinv(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse error function.

    The arguments are those of TensorFlow's ``tf.math.erfinv``; `name` has no effect.
    """
    return elementwise.apply_unary("erfinv", jax.scipy.special.erfinv, x, kinds.FLOAT)


def ndtri(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quantiles of the normal distribution.

    The arguments are those of TensorFlow's ``tf.math.ndtri``; `name` has no effect.
    """
    return elementwise.apply_unary("ndtri", jax.scipy.special.ndtri, x, kinds.FLOAT)


def lgamma(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logarithm of the absolute gamma function.

    The arguments are those of TensorFlow's ``tf.math.lgamma``; `name` has no effect.
    """
    return elementwise.apply_unary("lgamma", jax.scipy.special.gammaln, x, kinds.FLOAT)


def digamma(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the derivative of `lgamma`.

    The arguments are those of TensorFlow's ``tf.math.digamma``; `name` has no effect.
    """
    return elementwise.apply_unary("digamma", jax.scipy.special.digamma, x, kinds.FLOAT)


def is_nan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns which elements are not a number.

    The arguments are those of TensorFlow's ``tf.math.is_nan``; `name` has no effect.
    """
    return elementwise.apply_unary("is_nan", jnp.isnan, x, kinds.FLOAT)


def is_inf(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns which elements are infinite.

    The arguments are those of TensorFlow's ``tf.math.is_inf``; `name` has no effect.
    """
    return elementwise.apply_unary("is_inf", jnp.isinf, x, kinds.FLOAT)


def is_finite(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns which elements are finite numbers.

    The arguments are those of TensorFlow's ``tf.math.is_finite``; `name` has no effect.
    """
    return elementwise.apply_unary("is_finite", jnp.isfinite, x, kinds.FLOAT)


def conj(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the complex conjugates.

    The arguments are those of TensorFlow's ``tf.math.conj``; `name` has no effect.
    """
    return elementwise.apply_unary("conj", jnp.conj, x, kinds.NUMBERS)


def real(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the real parts.

    The arguments are those of TensorFlow's ``tf.math.real``; `name` has no effect.
    """
    return elementwise.apply_unary("real", jnp.real, input, kinds.NUMBERS)


def imag(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the imaginary parts.

    The arguments are those of TensorFlow's ``tf.math.imag``; `name` has no effect.
    """
    return elementwise.apply_unary("imag", jnp.imag, input, kinds.ALL)


def angle(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the angles of complex numbers.

    The arguments are those of TensorFlow's ``tf.math.angle``; `name` has no effect.
    """
    return elementwise.apply_unary("angle", jnp.angle, input, kinds.INEXACT)


def polyval(
    coeffs: Sequence[TensorLike], x: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the values of a polynomial.

    The arguments are those of TensorFlow's ``tf.math.polyval``; `name` has no effect.
    """
    return elementwise.polyval(coeffs, x)


def is_non_decreasing(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether no element is less than the last.

    The arguments are those of TensorFlow's ``tf.math.is_non_decreasing``; `name` has no
    effect.
    """
    return elementwise.is_sorted("is_non_decreasing", jnp.less_equal, x)


def is_strictly_increasing(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether each element is greater than the last.

    The arguments are those of TensorFlow's ``tf.math.is_strictly_increasing``; `name`
    has no effect.
    """
    return elementwise.is_sorted("is_strictly_increasing", jnp.less, x)


publish(
    "unisono",
    abs,
    negative,
    sign,
    square,
    sqrt,
    exp,
    floor,
    round,
    sin,
    cos,
    tan,
    asin,
    acos,
    atan,
    sinh,
    cosh,
    tanh,
    asinh,
    acosh,
    atanh,
    sigmoid,
)
publish(
    "unisono.math",
    rsqrt,
    reciprocal,
    reciprocal_no_nan,
    expm1,
    log,
    log1p,
    log_sigmoid,
    ceil,
    rint,
    erf,
    erfc,
    erfinv,
    ndtri,
    lgamma,
    digamma,
    is_nan,
    is_inf,
    is_finite,
    conj,
    real,
    imag,
    angle,
    polyval,
    is_non_decreasing,
    is_strictly_increasing,
)
