"""Arithmetic: sums, products, powers, limits and comparisons of arrays."""

from __future__ import annotations

from unisono._src.ops.table.name import Name
from unisono._src.ops.table.templates import XY, X, binary, in_math


def _division(path: str, summary: str, fn: str, also: tuple[str, ...] = ()) -> Name:
    """Returns the row of a division of whole numbers."""
    name = path.rpartition(".")[2]
    return Name(
        path,
        summary,
        XY,
        f'tensors.fold_constants(elementwise.divide_or_raise, "{name}", {fn}, x, y)',
        also=also,
        difference="In a compiled function the division of integers by zero gives a "
        "number, as everywhere in XLA; eagerly it is an error, as in TensorFlow.",
    )


_FLOAT64 = (
    "The quotient of integers of 32 or 64 bits is float32 unless JAX has 64-bit types; "
    "in TensorFlow it is float64."
)

ARITHMETIC = (
    binary("add", "Returns the sum of two arrays.", "jnp.add", also=in_math("add"),
         example=">>> add([1, 2], 3).tolist()\n[4, 5]"),
    binary("subtract", "Returns the difference of two arrays.", "jnp.subtract",
         also=in_math("subtract")),
    binary("multiply", "Returns the product of two arrays, element by element.",
         "jnp.multiply", also=in_math("multiply")),
    Name("divide", "Returns the quotient of two arrays; that of integers is a float.",
         XY, 'elementwise.divide("divide", x, y)', also=in_math("divide"),
         example=">>> divide([1, 2], 2).tolist()\n[0.5, 1.0]", difference=_FLOAT64),
    Name("truediv", "Returns the quotient of two arrays; that of integers is a float.",
         XY, 'elementwise.divide("truediv", x, y)', also=in_math("truediv"),
         difference=_FLOAT64),
    binary("realdiv", "Returns the quotient of two arrays of floats.",
         "jnp.true_divide", "INEXACT"),
    _division("math.floordiv", "Returns the quotient of two arrays, rounded down.",
           "jnp.floor_divide"),
    _division("math.floormod", "Returns the remainder, with the sign of the divisor.",
           "elementwise.floor_mod", in_math("mod")),
    _division("truncatediv", "Returns the quotient, rounded toward zero.",
           "elementwise.truncate_division"),
    _division("truncatemod", "Returns the remainder, with the sign of the dividend.",
           "jnp.fmod"),
    Name("pow", "Returns powers: `x` to the exponents `y`.", XY,
         'elementwise.power("pow", x, y)', also=in_math("pow"),
         example=">>> pow([2, 3], 2).tolist()\n[4, 9]",
         difference="In a compiled function an integer with a negative exponent gives "
         "a number; eagerly it is an error, as in TensorFlow."),
    binary("maximum", "Returns the larger element of each pair.", "jnp.maximum", "REAL",
         also=in_math("maximum")),
    binary("minimum", "Returns the smaller element of each pair.", "jnp.minimum",
         "REAL", also=in_math("minimum")),
    binary("math.squared_difference", "Returns the squares of the differences.",
         "elementwise.squared_difference"),
    Name("math.divide_no_nan", "Returns the quotient, which is 0 where `y` is 0.", XY,
         'elementwise.divide("divide_no_nan", x, y, elementwise.divide_no_nan)',
         difference=_FLOAT64),
    binary("math.multiply_no_nan", "Returns the product, which is 0 where `y` is 0.",
         "elementwise.multiply_no_nan", "INEXACT"),
    binary("math.xdivy", "Returns the quotient, which is 0 where `x` is 0.",
         "elementwise.times_unless_zero(jnp.reciprocal)", "INEXACT"),
    binary("math.xlogy", "Returns x * log(y), which is 0 where `x` is 0.",
         "elementwise.times_unless_zero(jnp.log)", "INEXACT"),
    binary("math.xlog1py", "Returns x * log(1 + y), which is 0 where `x` is 0.",
         "elementwise.times_unless_zero(jnp.log1p)", "INEXACT"),
    binary("atan2", "Returns the angle of the point (x, y).", "jnp.arctan2", "FLOAT",
         signature="y: TensorLike, x: TensorLike, name: str | None = None",
         also=in_math("atan2")),
    binary("math.nextafter", "Returns the next number of the type toward `x2`.",
         "jnp.nextafter", "FLOAT",
         signature="x1: TensorLike, x2: TensorLike, name: str | None = None"),
    Name("math.scalar_mul", "Returns an array times a number.",
         "scalar: TensorLike, x: TensorLike, name: str | None = None",
         "elementwise.scalar_mul(scalar, x)", also=("scalar_mul",)),
    Name("add_n", "Returns the sum of arrays of one shape and type.",
         "inputs: Sequence[TensorLike], name: str | None = None",
         'elementwise.add_n("add_n", inputs)', also=in_math("add_n"),
         example=">>> add_n([[1, 2], [3, 4], [5, 6]]).tolist()\n[9, 12]"),
    Name("math.accumulate_n", "Returns the sum of arrays of one shape and type.",
         "inputs: Sequence[TensorLike], shape: Sizes | None = None, "
         "tensor_dtype: DType = None, name: str | None = None",
         'elementwise.add_n("accumulate_n", inputs)'),
    Name("complex", "Returns complex numbers of their real and imaginary parts.",
         "real: TensorLike, imag: TensorLike, name: str | None = None",
         "elementwise.make_complex(real, imag)"),
    Name("clip_by_value", "Returns the elements, limited to a range.",
         "t: TensorLike, clip_value_min: TensorLike, clip_value_max: TensorLike, "
         "name: str | None = None",
         "elementwise.clip_by_value(t, clip_value_min, clip_value_max)",
         example=">>> clip_by_value([-1.0, 0.5, 3.0], 0, 1).tolist()\n[0.0, 0.5, 1.0]"),
    Name("clip_by_norm", "Returns an array scaled down to a norm.",
         "t: TensorLike, clip_norm: TensorLike, axes: Sizes | None = None, "
         "name: str | None = None",
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


def _comparison(path: str, summary: str, fn: str, example: str = "") -> Name:
    """Returns the row of a comparison of numbers."""
    return binary(path, summary, fn, "REAL", also=in_math(path), example=example)


COMPARISONS = (
    Name("equal", "Returns which elements are equal.", XY,
         'elementwise.equal("equal", jnp.equal, x, y)', also=in_math("equal"),
         example=">>> equal([1, 2], [1, 3]).tolist()\n[True, False]"),
    Name("not_equal", "Returns which elements differ.", XY,
         'elementwise.equal("not_equal", jnp.not_equal, x, y)',
         also=in_math("not_equal")),
    _comparison("less", "Returns where `x` is less than `y`.", "jnp.less"),
    _comparison("less_equal", "Returns where `x` is at most `y`.", "jnp.less_equal"),
    _comparison("greater", "Returns where `x` is greater than `y`.", "jnp.greater"),
    _comparison("greater_equal", "Returns where `x` is at least `y`.",
              "jnp.greater_equal"),
    Name("logical_and", "Returns where both are true.", XY,
         'elementwise.apply_logical("logical_and", jnp.logical_and, x, y)',
         also=in_math("logical_and")),
    Name("logical_or", "Returns where at least one is true.", XY,
         'elementwise.apply_logical("logical_or", jnp.logical_or, x, y)',
         also=in_math("logical_or")),
    Name("math.logical_xor", "Returns where exactly one of two is true.",
         'x: TensorLike, y: TensorLike, name: str | None = "LogicalXor"',
         'elementwise.apply_logical("logical_xor", jnp.logical_xor, x, y)'),
    Name("logical_not", "Returns where elements are false.", X,
         'elementwise.apply_logical("logical_not", jnp.logical_not, x)',
         also=in_math("logical_not")),
)  # fmt: skip

ROWS = (*ARITHMETIC, *COMPARISONS)
