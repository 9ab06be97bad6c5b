"""Mathematics: functions of single elements."""

from __future__ import annotations

from unisono._src.ops.table.name import Name

_X = "x: TensorLike, name: str | None = None"
_XY = "x: TensorLike, y: TensorLike, name: str | None = None"
_AX = "a: TensorLike, x: TensorLike, name: str | None = None"


def _one(
    path: str,
    summary: str,
    fn: str,
    allowed: str = "NUMBERS",
    *,
    signature: str = _X,
    also: tuple[str, ...] = (),
    example: str = "",
) -> Name:
    """Returns the row of a function of one array."""
    name, argument = path.rpartition(".")[2], signature.partition(":")[0]
    call = f'elementwise.unary("{name}", {fn}, {argument}, kinds.{allowed})'
    return Name(path, summary, signature, call, also=also, example=example)


def _two(
    path: str,
    summary: str,
    fn: str,
    allowed: str = "NUMBERS",
    *,
    signature: str = _XY,
    also: tuple[str, ...] = (),
    example: str = "",
    difference: str = "",
) -> Name:
    """Returns the row of a function of two arrays of one type."""
    name = path.rpartition(".")[2]
    x, y = (part.partition(":")[0].strip() for part in signature.split(",")[:2])
    call = f'elementwise.binary, "{name}", {fn}, {x}, {y}, kinds.{allowed}'
    return Name(
        path, summary, signature, f"tensors.fold({call})", also=also, example=example,
        difference=difference,
    )  # fmt: skip


def _whole(path: str, summary: str, fn: str, also: tuple[str, ...] = ()) -> Name:
    """Returns the row of a division of whole numbers."""
    name = path.rpartition(".")[2]
    return Name(
        path,
        summary,
        _XY,
        f'tensors.fold(elementwise.whole_division, "{name}", {fn}, x, y)',
        also=also,
        difference="In a compiled function the division of integers by zero gives a "
        "number, as everywhere in XLA; eagerly it is an error, as in TensorFlow.",
    )


def _math(*names: str) -> tuple[str, ...]:
    return tuple(f"math.{name}" for name in names)


_FLOAT64 = (
    "The quotient of integers of 32 or 64 bits is float32 unless JAX has 64-bit types; "
    "in TensorFlow it is float64."
)

ARITHMETIC = (
    _two("add", "Returns the sum of two arrays.", "jnp.add", also=_math("add"),
         example=">>> add([1, 2], 3).tolist()\n[4, 5]"),
    _two("subtract", "Returns the difference of two arrays.", "jnp.subtract",
         also=_math("subtract")),
    _two("multiply", "Returns the product of two arrays, element by element.",
         "jnp.multiply", also=_math("multiply")),
    Name("divide", "Returns the quotient of two arrays; that of integers is a float.",
         _XY, 'elementwise.divide("divide", x, y)', also=_math("divide"),
         example=">>> divide([1, 2], 2).tolist()\n[0.5, 1.0]", difference=_FLOAT64),
    Name("truediv", "Returns the quotient of two arrays; that of integers is a float.",
         _XY, 'elementwise.divide("truediv", x, y)', also=_math("truediv"),
         difference=_FLOAT64),
    _two("realdiv", "Returns the quotient of two arrays of floats.", "jnp.true_divide",
         "INEXACT"),
    _whole("math.floordiv", "Returns the quotient of two arrays, rounded down.",
           "jnp.floor_divide"),
    _whole("math.floormod", "Returns the remainder, with the sign of the divisor.",
           "elementwise.floor_mod", _math("mod")),
    _whole("truncatediv", "Returns the quotient, rounded toward zero.",
           "elementwise.truncate_division"),
    _whole("truncatemod", "Returns the remainder, with the sign of the dividend.",
           "jnp.fmod"),
    Name("pow", "Returns powers: `x` to the exponents `y`.", _XY,
         'elementwise.power("pow", x, y)', also=_math("pow"),
         example=">>> pow([2, 3], 2).tolist()\n[4, 9]",
         difference="In a compiled function an integer with a negative exponent gives "
         "a number; eagerly it is an error, as in TensorFlow."),
    _two("maximum", "Returns the larger element of each pair.", "jnp.maximum", "REAL",
         also=_math("maximum")),
    _two("minimum", "Returns the smaller element of each pair.", "jnp.minimum", "REAL",
         also=_math("minimum")),
    _two("math.squared_difference", "Returns the squares of the differences.",
         "elementwise.squared_difference"),
    Name("math.divide_no_nan", "Returns the quotient, which is 0 where `y` is 0.", _XY,
         'elementwise.divide("divide_no_nan", x, y, elementwise.divide_no_nan)',
         difference=_FLOAT64),
    _two("math.multiply_no_nan", "Returns the product, which is 0 where `y` is 0.",
         "elementwise.multiply_no_nan", "INEXACT"),
    _two("math.xdivy", "Returns the quotient, which is 0 where `x` is 0.",
         "elementwise.times_unless_zero(jnp.reciprocal)", "INEXACT"),
    _two("math.xlogy", "Returns x * log(y), which is 0 where `x` is 0.",
         "elementwise.times_unless_zero(jnp.log)", "INEXACT"),
    _two("math.xlog1py", "Returns x * log(1 + y), which is 0 where `x` is 0.",
         "elementwise.times_unless_zero(jnp.log1p)", "INEXACT"),
    _two("atan2", "Returns the angle of the point (x, y).", "jnp.arctan2", "FLOAT",
         signature="y: TensorLike, x: TensorLike, name: str | None = None",
         also=_math("atan2")),
    _two("math.nextafter", "Returns the next number of the type toward `x2`.",
         "jnp.nextafter", "FLOAT",
         signature="x1: TensorLike, x2: TensorLike, name: str | None = None"),
    Name("math.scalar_mul", "Returns an array times a number.",
         "scalar: TensorLike, x: TensorLike, name: str | None = None",
         "elementwise.scalar_mul(scalar, x)", also=("scalar_mul",)),
    Name("add_n", "Returns the sum of arrays of one shape and type.",
         "inputs: Sequence[TensorLike], name: str | None = None",
         'elementwise.add_n("add_n", inputs)', also=_math("add_n"),
         example=">>> add_n([[1, 2], [3, 4], [5, 6]]).tolist()\n[9, 12]"),
    Name("math.accumulate_n", "Returns the sum of arrays of one shape and type.",
         "inputs: Sequence[TensorLike], shape: Sizes | None = None, "
         "tensor_dtype: DType = None, name: str | None = None",
         'elementwise.add_n("accumulate_n", inputs)'),
    Name("complex", "Returns complex numbers of their real and imaginary parts.",
         "real: TensorLike, imag: TensorLike, name: str | None = None",
         "elementwise.make_complex(real, imag)"),
    Name("clip_by_value", "Returns the elements, those beyond two bounds replaced.",
         "t: TensorLike, clip_value_min: TensorLike, clip_value_max: TensorLike, "
         "name: str | None = None",
         "elementwise.clip_by_value(t, clip_value_min, clip_value_max)",
         example=">>> clip_by_value([-1.0, 0.5, 3.0], 0, 1).tolist()\n[0.0, 0.5, 1.0]"),
    Name("clip_by_norm", "Returns an array scaled down to a norm.",
         "t: TensorLike, clip_norm: TensorLike, axes: Sizes | None = None, "
         "name: str | None = None -> Any",
         "elementwise.clip_by_norm(t, clip_norm, axes)"),
    Name("clip_by_global_norm", "Returns arrays scaled down together, and their norm.",
         "t_list: Sequence[TensorLike | None], clip_norm: TensorLike, "
         "use_norm: TensorLike | None = None, name: str | None = None"
         " -> tuple[list[Any], jax.Array]",
         "elementwise.clip_by_global_norm(t_list, clip_norm, use_norm)"),
    Name("linalg.global_norm", "Returns the norm of several arrays taken together.",
         "t_list: Sequence[TensorLike | None], name: str | None = None",
         'elementwise.global_norm("global_norm", t_list)'),
)  # fmt: skip

ELEMENTS = (
    _one("abs", "Returns absolute values.", "jnp.abs", "SIGNED", also=_math("abs")),
    _one("negative", "Returns the elements with the opposite sign.", "jnp.negative",
         "SIGNED", also=_math("negative")),
    _one("sign", "Returns -1, 0 or 1 for the sign of each element.", "jnp.sign",
         "SIGNED", also=_math("sign")),
    _one("square", "Returns the squares.", "jnp.square", also=_math("square")),
    _one("sqrt", "Returns the square roots.", "jnp.sqrt", "INEXACT", also=_math("sqrt"),
         example=">>> sqrt([1.0, 4.0]).tolist()\n[1.0, 2.0]"),
    _one("math.rsqrt", "Returns one divided by the square roots.", "jax.lax.rsqrt",
         "INEXACT"),
    _one("math.reciprocal", "Returns one divided by the elements.", "jnp.reciprocal",
         "INEXACT"),
    _one("math.reciprocal_no_nan", "Returns one divided by the elements; 0 for 0.",
         "elementwise.reciprocal_no_nan", "INEXACT"),
    _one("exp", "Returns the exponentials.", "jnp.exp", "INEXACT", also=_math("exp")),
    _one("math.expm1", "Returns exp(x) - 1, also exact near 0.", "jnp.expm1",
         "INEXACT"),
    _one("math.log", "Returns the natural logarithms.", "jnp.log", "INEXACT"),
    _one("math.log1p", "Returns log(1 + x), also exact near 0.", "jnp.log1p",
         "INEXACT"),
    _one("math.log_sigmoid", "Returns the logarithms of the sigmoid.",
         "jax.nn.log_sigmoid", "FLOAT"),
    _one("floor", "Returns the elements rounded down.", "jnp.floor", "FLOAT",
         also=_math("floor")),
    _one("math.ceil", "Returns the elements rounded up.", "jnp.ceil", "FLOAT"),
    _one("round", "Returns the nearest whole numbers, halves to even ones.",
         "elementwise.rounded", "REAL", also=_math("round"),
         example=">>> round([0.5, 1.5, 2.4]).tolist()\n[0.0, 2.0, 2.0]"),
    _one("math.rint", "Returns the nearest whole numbers, halves to even ones.",
         "jnp.rint", "FLOAT"),
    _one("sin", "Returns the sine.", "jnp.sin", "INEXACT", also=_math("sin")),
    _one("cos", "Returns the cosine.", "jnp.cos", "INEXACT", also=_math("cos")),
    _one("tan", "Returns the tangent.", "jnp.tan", "INEXACT", also=_math("tan")),
    _one("asin", "Returns the inverse sine.", "jnp.arcsin", "INEXACT",
         also=_math("asin")),
    _one("acos", "Returns the inverse cosine.", "jnp.arccos", "INEXACT",
         also=_math("acos")),
    _one("atan", "Returns the inverse tangent.", "jnp.arctan", "INEXACT",
         also=_math("atan")),
    _one("sinh", "Returns the hyperbolic sine.", "jnp.sinh", "INEXACT",
         also=_math("sinh")),
    _one("cosh", "Returns the hyperbolic cosine.", "jnp.cosh", "INEXACT",
         also=_math("cosh")),
    _one("tanh", "Returns the hyperbolic tangent.", "jnp.tanh", "INEXACT",
         also=("math.tanh", "nn.tanh")),
    _one("asinh", "Returns the inverse hyperbolic sine.", "jnp.arcsinh", "INEXACT",
         also=_math("asinh")),
    _one("acosh", "Returns the inverse hyperbolic cosine.", "jnp.arccosh", "INEXACT",
         also=_math("acosh")),
    _one("atanh", "Returns the inverse hyperbolic tangent.", "jnp.arctanh", "INEXACT",
         also=_math("atanh")),
    _one("sigmoid", "Returns 1 / (1 + exp(-x)).", "jax.nn.sigmoid", "INEXACT",
         also=("math.sigmoid", "nn.sigmoid")),
    _one("math.erf", "Returns the error function.", "jax.scipy.special.erf", "FLOAT"),
    _one("math.erfc", "Returns one minus the error function.",
         "jax.scipy.special.erfc", "FLOAT"),
    _one("math.erfinv", "Returns the inverse error function.",
         "jax.scipy.special.erfinv", "FLOAT"),
    _one("math.ndtri", "Returns the quantiles of the normal distribution.",
         "jax.scipy.special.ndtri", "FLOAT"),
    _one("math.lgamma", "Returns the logarithm of the absolute gamma function.",
         "jax.scipy.special.gammaln", "FLOAT"),
    _one("math.digamma", "Returns the derivative of `lgamma`.",
         "jax.scipy.special.digamma", "FLOAT"),
    _one("math.is_nan", "Returns which elements are not a number.", "jnp.isnan",
         "FLOAT"),
    _one("math.is_inf", "Returns which elements are infinite.", "jnp.isinf", "FLOAT"),
    _one("math.is_finite", "Returns which elements are finite numbers.",
         "jnp.isfinite", "FLOAT"),
    _one("math.conj", "Returns the complex conjugates.", "jnp.conj"),
    _one("math.real", "Returns the real parts.", "jnp.real",
         signature="input: TensorLike, name: str | None = None"),
    _one("math.imag", "Returns the imaginary parts.", "jnp.imag", "ALL",
         signature="input: TensorLike, name: str | None = None"),
    _one("math.angle", "Returns the angles of complex numbers.", "jnp.angle",
         "INEXACT", signature="input: TensorLike, name: str | None = None"),
    _two("math.igamma", "Returns the lower incomplete gamma function.",
         "jax.scipy.special.gammainc", "FLOAT", signature=_AX),
    _two("math.igammac", "Returns the upper incomplete gamma function.",
         "jax.scipy.special.gammaincc", "FLOAT", signature=_AX),
    _two("math.polygamma", "Returns derivatives of the digamma function.",
         "elementwise.polygamma", "FLOAT", signature=_AX),
    _two("math.zeta", "Returns the Hurwitz zeta function.", "jax.scipy.special.zeta",
         "FLOAT", signature="x: TensorLike, q: TensorLike, name: str | None = None"),
    Name("math.polyval", "Returns the values of a polynomial.",
         "coeffs: Sequence[TensorLike], x: TensorLike, name: str | None = None",
         "elementwise.polyval(coeffs, x)"),
    Name("math.is_non_decreasing", "Returns whether no element is less than the last.",
         _X, 'elementwise.is_sorted("is_non_decreasing", jnp.less_equal, x)'),
    Name("math.is_strictly_increasing",
         "Returns whether each element is greater than the last.", _X,
         'elementwise.is_sorted("is_strictly_increasing", jnp.less, x)'),
)  # fmt: skip


def _compared(path: str, summary: str, fn: str, example: str = "") -> Name:
    """Returns the row of a comparison of numbers."""
    return _two(path, summary, fn, "REAL", also=_math(path), example=example)


COMPARISONS = (
    Name("equal", "Returns which elements are equal.", _XY,
         'elementwise.equal("equal", jnp.equal, x, y)', also=_math("equal"),
         example=">>> equal([1, 2], [1, 3]).tolist()\n[True, False]"),
    Name("not_equal", "Returns which elements differ.", _XY,
         'elementwise.equal("not_equal", jnp.not_equal, x, y)',
         also=_math("not_equal")),
    _compared("less", "Returns where `x` is less than `y`.", "jnp.less"),
    _compared("less_equal", "Returns where `x` is at most `y`.", "jnp.less_equal"),
    _compared("greater", "Returns where `x` is greater than `y`.", "jnp.greater"),
    _compared("greater_equal", "Returns where `x` is at least `y`.",
              "jnp.greater_equal"),
    Name("logical_and", "Returns where both are true.", _XY,
         'elementwise.logical("logical_and", jnp.logical_and, x, y)',
         also=_math("logical_and")),
    Name("logical_or", "Returns where at least one is true.", _XY,
         'elementwise.logical("logical_or", jnp.logical_or, x, y)',
         also=_math("logical_or")),
    Name("math.logical_xor", "Returns where one of two is true.",
         'x: TensorLike, y: TensorLike, name: str | None = "LogicalXor"',
         'elementwise.logical("logical_xor", jnp.logical_xor, x, y)'),
    Name("logical_not", "Returns the opposite.", _X,
         'elementwise.logical("logical_not", jnp.logical_not, x)',
         also=_math("logical_not")),
)  # fmt: skip

ROWS = (*ARITHMETIC, *ELEMENTS, *COMPARISONS)
