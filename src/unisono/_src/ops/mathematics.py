"""Mathematics that is in ``tf.math`` only."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from unisono._src.foundation import dtypes
from unisono._src.ops import axis_functions, elementwise, kinds, tensors
from unisono._src.ops.axis_functions import Axes
from unisono._src.ops.host.shared_bodies import array_function
from unisono._src.ops.tensors import DType, Sizes, TensorLike

__all__ = [
    "accumulate_n",
    "angle",
    "ceil",
    "conj",
    "count_nonzero",
    "cumprod",
    "cumulative_logsumexp",
    "digamma",
    "divide_no_nan",
    "erf",
    "erfc",
    "erfinv",
    "expm1",
    "floordiv",
    "floormod",
    "imag",
    "is_finite",
    "is_inf",
    "is_nan",
    "is_non_decreasing",
    "is_strictly_increasing",
    "lgamma",
    "log",
    "log1p",
    "log_sigmoid",
    "logical_xor",
    "mod",
    "multiply_no_nan",
    "ndtri",
    "nextafter",
    "polyval",
    "real",
    "reciprocal",
    "reciprocal_no_nan",
    "reduce_euclidean_norm",
    "reduce_std",
    "reduce_variance",
    "rint",
    "rsqrt",
    "squared_difference",
    "xdivy",
    "xlog1py",
    "xlogy",
]


@array_function("math.floordiv", difference=elementwise.ZERO_DIVISOR)
def floordiv(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient of two arrays, rounded down."""
    return elementwise.divide_or_raise("floordiv", jnp.floor_divide, x, y)


@array_function("math.floormod", "math.mod", difference=elementwise.ZERO_DIVISOR)
def floormod(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the remainder, with the sign of the divisor."""
    return elementwise.divide_or_raise("floormod", jnp.mod, x, y)


mod = floormod


@array_function("math.squared_difference")
def squared_difference(
    x: TensorLike, y: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the squares of the differences."""
    return elementwise.apply_binary(
        "squared_difference", elementwise.squared_difference, x, y
    )


@array_function("math.divide_no_nan", difference=elementwise.FLOAT_QUOTIENT)
def divide_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient, which is 0 where `y` is 0."""
    return elementwise.divide("divide_no_nan", x, y, elementwise.divide_no_nan)


@array_function("math.multiply_no_nan")
def multiply_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the product, which is 0 where `y` is 0."""
    return elementwise.apply_binary(
        "multiply_no_nan", elementwise.multiply_no_nan, x, y, kinds.INEXACT
    )


@array_function("math.xdivy")
def xdivy(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quotient, which is 0 where `x` is 0."""
    return elementwise.apply_binary(
        "xdivy", elementwise.times_unless_zero(jnp.reciprocal), x, y, kinds.INEXACT
    )


@array_function("math.xlogy")
def xlogy(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x * log(y), which is 0 where `x` is 0."""
    return elementwise.apply_binary(
        "xlogy", elementwise.times_unless_zero(jnp.log), x, y, kinds.INEXACT
    )


@array_function("math.xlog1py")
def xlog1py(x: TensorLike, y: TensorLike, name: str | None = None) -> jax.Array:
    """Returns x * log(1 + y), which is 0 where `x` is 0."""
    return elementwise.apply_binary(
        "xlog1py", elementwise.times_unless_zero(jnp.log1p), x, y, kinds.INEXACT
    )


@array_function("math.nextafter")
def nextafter(x1: TensorLike, x2: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the next representable number after `x1` in the direction of `x2`."""
    return elementwise.apply_binary("nextafter", jnp.nextafter, x1, x2, kinds.FLOAT)


@array_function("math.accumulate_n")
def accumulate_n(
    inputs: Sequence[TensorLike],
    shape: Sizes | None = None,
    tensor_dtype: DType = None,
    name: str | None = None,
) -> jax.Array:
    """Returns the sum of arrays of equal shape and dtype."""
    return elementwise.add_n("accumulate_n", inputs)


@array_function("math.logical_xor")
def logical_xor(
    x: TensorLike, y: TensorLike, name: str | None = "LogicalXor"
) -> jax.Array:
    """Returns whether exactly one of two elements is true."""
    return elementwise.apply_logical("logical_xor", jnp.logical_xor, x, y)


@array_function("math.rsqrt")
def rsqrt(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the reciprocals of the square roots."""
    return elementwise.apply_unary("rsqrt", jax.lax.rsqrt, x, kinds.INEXACT)


@array_function("math.reciprocal")
def reciprocal(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the reciprocals of the elements."""
    return elementwise.apply_unary("reciprocal", jnp.reciprocal, x, kinds.INEXACT)


@array_function("math.reciprocal_no_nan")
def reciprocal_no_nan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the reciprocals of the elements, and 0 where an element is 0."""
    return elementwise.apply_unary(
        "reciprocal_no_nan", elementwise.reciprocal_no_nan, x, kinds.INEXACT
    )


@array_function("math.expm1")
def expm1(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns exp(x) - 1, accurate even near 0."""
    return elementwise.apply_unary("expm1", jnp.expm1, x, kinds.INEXACT)


@array_function("math.log")
def log(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the natural logarithms."""
    return elementwise.apply_unary("log", jnp.log, x, kinds.INEXACT)


@array_function("math.log1p")
def log1p(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns log(1 + x), accurate even near 0."""
    return elementwise.apply_unary("log1p", jnp.log1p, x, kinds.INEXACT)


@array_function("math.log_sigmoid")
def log_sigmoid(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logarithms of the sigmoid."""
    return elementwise.apply_unary("log_sigmoid", jax.nn.log_sigmoid, x, kinds.FLOAT)


@array_function("math.ceil")
def ceil(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the elements rounded up."""
    return elementwise.apply_unary("ceil", jnp.ceil, x, kinds.FLOAT)


@array_function("math.rint")
def rint(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the nearest integers; halves are rounded to even ones."""
    return elementwise.apply_unary("rint", jnp.rint, x, kinds.FLOAT)


@array_function("math.erf")
def erf(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the error function."""
    return elementwise.apply_unary("erf", jax.scipy.special.erf, x, kinds.FLOAT)


@array_function("math.erfc")
def erfc(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns one minus the error function."""
    return elementwise.apply_unary("erfc", jax.scipy.special.erfc, x, kinds.FLOAT)


@array_function("math.erfinv")
def erfinv(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the inverse error function."""
    return elementwise.apply_unary("erfinv", jax.scipy.special.erfinv, x, kinds.FLOAT)


@array_function("math.ndtri")
def ndtri(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the quantiles of the normal distribution."""
    return elementwise.apply_unary("ndtri", jax.scipy.special.ndtri, x, kinds.FLOAT)


@array_function("math.lgamma")
def lgamma(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the logarithm of the absolute value of the gamma function."""
    return elementwise.apply_unary("lgamma", jax.scipy.special.gammaln, x, kinds.FLOAT)


@array_function("math.digamma")
def digamma(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the derivative of `lgamma`."""
    return elementwise.apply_unary("digamma", jax.scipy.special.digamma, x, kinds.FLOAT)


@array_function("math.is_nan")
def is_nan(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether each element is NaN."""
    return elementwise.apply_unary("is_nan", jnp.isnan, x, kinds.FLOAT)


@array_function("math.is_inf")
def is_inf(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether each element is infinite."""
    return elementwise.apply_unary("is_inf", jnp.isinf, x, kinds.FLOAT)


@array_function("math.is_finite")
def is_finite(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether each element is finite."""
    return elementwise.apply_unary("is_finite", jnp.isfinite, x, kinds.FLOAT)


@array_function("math.conj")
def conj(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the complex conjugates."""
    return elementwise.apply_unary("conj", jnp.conj, x)


@array_function("math.real")
def real(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the real parts."""
    return elementwise.apply_unary("real", jnp.real, input)


@array_function("math.imag")
def imag(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the imaginary parts."""
    return elementwise.apply_unary("imag", jnp.imag, input, kinds.ALL)


@array_function("math.angle")
def angle(input: TensorLike, name: str | None = None) -> jax.Array:
    """Returns the angles of complex numbers."""
    return elementwise.apply_unary("angle", jnp.angle, input, kinds.INEXACT)


@array_function("math.polyval")
def polyval(
    coeffs: Sequence[TensorLike], x: TensorLike, name: str | None = None
) -> jax.Array:
    """Returns the values of a polynomial.

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


@array_function("math.is_non_decreasing")
def is_non_decreasing(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether no element is less than the one before it."""
    return elementwise.is_sorted("is_non_decreasing", jnp.less_equal, x)


@array_function("math.is_strictly_increasing")
def is_strictly_increasing(x: TensorLike, name: str | None = None) -> jax.Array:
    """Returns whether each element is greater than the one before it."""
    return elementwise.is_sorted("is_strictly_increasing", jnp.less, x)


@axis_functions.reduction("math.reduce_euclidean_norm")
def reduce_euclidean_norm(x: jax.Array, axis: Axes, keepdims: bool) -> jax.Array:
    """Returns the square root of the sum of squares."""
    if kinds.kind(x.dtype) == "i":
        wide = axis_functions.add_up(x * x, axis, keepdims).astype(jnp.float32)
        return jnp.sqrt(wide).astype(x.dtype)
    return jnp.sqrt(jnp.sum(jnp.square(jnp.abs(x)), axis, keepdims=keepdims)).astype(
        x.dtype
    )


@array_function("math.reduce_variance")
def reduce_variance(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the mean squared distance from the mean."""
    return axis_functions.variance("reduce_variance", input_tensor, axis, keepdims)


@array_function("math.reduce_std")
def reduce_std(
    input_tensor: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the square root of the variance."""
    return jnp.sqrt(axis_functions.variance("reduce_std", input_tensor, axis, keepdims))


@array_function(
    "math.count_nonzero",
    difference="The counts are int32 unless JAX's 64-bit types are enabled.",
)
def count_nonzero(
    input: TensorLike,
    axis: Sizes | None = None,
    keepdims: bool | None = None,
    dtype: DType = dtypes.int64,
    name: str | None = None,
) -> jax.Array:
    """Returns how many elements are not zero."""
    input = tensors.tensor(input)
    kinds.check("count_nonzero", input.dtype, kinds.ALL)
    axes = axis_functions.find_axes("count_nonzero", axis, input.ndim)
    found = jnp.sum(input != 0, axes, jnp.int32, keepdims=bool(keepdims))
    return found.astype(tensors.canonical_type(dtype))


@array_function("math.cumprod")
def cumprod(
    x: TensorLike,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the cumulative products along an axis."""
    return axis_functions.cumulate(
        "cumprod", axis_functions.running_product, 1, x, axis, exclusive, reverse
    )


@array_function("math.cumulative_logsumexp")
def cumulative_logsumexp(
    x: TensorLike,
    axis: int = 0,
    exclusive: bool = False,
    reverse: bool = False,
    name: str | None = None,
) -> jax.Array:
    """Returns the logarithms of cumulative sums of exponentials."""
    return axis_functions.cumulate(
        "cumulative_logsumexp",
        axis_functions.running_logsumexp,
        -jnp.inf,
        x,
        axis,
        exclusive,
        reverse,
    )
