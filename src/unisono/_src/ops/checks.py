"""TensorFlow's ``tf.debugging``: assertions about values, shapes and types.

Shapes and types are known when a program is traced, and are checked then. Values are
checked when it runs: then the call raises, and no variable has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.execution import program_checks
from unisono._src.foundation import errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import tensors
from unisono._src.ops.tensors import TensorLike
from unisono._src.state import frames

__all__ = [
    "Assert",
    "assert_all_finite",
    "assert_equal",
    "assert_greater",
    "assert_greater_equal",
    "assert_less",
    "assert_less_equal",
    "assert_near",
    "assert_negative",
    "assert_non_negative",
    "assert_non_positive",
    "assert_none_equal",
    "assert_positive",
    "check_numerics",
]

# More elements than any array has: an error then tells all of them.
_ALL = 10**9


@everyday_name("debugging.Assert", "Assert")
def Assert(
    condition: TensorLike,
    data: Sequence[object],
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error that shows the given values, unless a condition is true.

    Args:
        condition: a scalar.
        data: the values to show.
        summarize: how many elements of each value the error shows, 3 by default.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the condition is false.

    >>> import unisono
    >>> try:
    ...     unisono.debugging.Assert(False, ["sizes", [1, 2]])
    ... except unisono.errors.InvalidArgumentError as error:
    ...     print(error)
    Expected 'False' to be true. Summarized data: sizes
    1, 2
    """
    count = _ALL if summarize is not None and summarize < 0 else summarize or 3
    # Texts are told as they are; arrays go through the program to the error.
    arrays = [None if isinstance(x, (str, bytes)) else tensors.tensor(x) for x in data]

    def tell(*values: np.ndarray) -> Exception:
        given = iter(values)
        lines = [
            str(x) if a is None else _summary(next(given), count)
            for x, a in zip(data, arrays, strict=True)
        ]
        told = "\n".join(lines)
        return errors.InvalidArgumentError(
            f"Expected 'False' to be true. Summarized data: {told}"
        )

    found = [x for x in arrays if x is not None]
    ok = jnp.all(tensors.tensor(condition).astype(bool))
    program_checks.require("debugging.Assert", ok, tell, found)


def _summary(values: np.ndarray, count: int) -> str:
    flat = values.reshape(-1)
    told = ", ".join(str(v) for v in flat[:count].tolist())
    return f"{told}, ..." if flat.size > count else told


def _compare(
    x: TensorLike,
    y: TensorLike,
    sign: str,
    holds: Callable[[Any, Any], Any],
    message: str | None,
    summarize: int | None,
    name: str,
) -> None:
    """Raises unless a comparison holds for all elements."""
    a, b = tensors.tensor(x), tensors.tensor(y)
    if a.dtype != b.dtype:
        raise errors.InvalidArgumentError(
            f"debugging.{name} compares values of one type, received {a.dtype} and "
            f"{b.dtype}. Cast one of them first."
        )
    try:
        # A check needs no gradient, which a tape would otherwise record.
        ok = holds(frames.strip_gradient(a), frames.strip_gradient(b))
    except (TypeError, ValueError) as error:
        raise errors.InvalidArgumentError(
            f"Incompatible shapes: {list(a.shape)} vs. {list(b.shape)}, in "
            f"debugging.{name}."
        ) from error
    count = _ALL if summarize is not None and summarize < 0 else summarize or 3

    def tell(x: np.ndarray, y: np.ndarray) -> Exception:
        wrong = ~np.asarray(holds(x, y))
        return errors.InvalidArgumentError(
            f"{message + chr(10) if message else ''}Condition x {sign} y did not hold."
            f"\n{_tell_wrong(x, y, wrong, count)}{_tell_first('x', x, count)}\n"
            f"{_tell_first('y', y, count)}"
        )

    program_checks.require(f"debugging.{name}", jnp.all(ok), tell, (a, b))


def _tell_wrong(x: np.ndarray, y: np.ndarray, wrong: np.ndarray, count: int) -> str:
    if x.shape != y.shape or not x.shape:
        return ""
    places = np.argwhere(wrong)[:count]
    return (
        f"Indices of first {len(places)} different values:\n{places}\nCorresponding x "
        f"values:\n{x[wrong][:count]}\nCorresponding y values:\n{y[wrong][:count]}\n"
    )


def _tell_first(name: str, values: np.ndarray, count: int) -> str:
    flat = values.reshape(-1)[:count]
    return f"First {flat.size} elements of {name}:\n{flat}"


@everyday_name("debugging.assert_equal", "assert_equal")
def assert_equal(
    x: TensorLike,
    y: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless all elements of two values are equal.

    Args:
        x: a value.
        y: a value with the same dtype, and a shape that can be broadcast with `x`.
        message: the text with which the error begins.
        summarize: how many elements the error shows, 3 by default; -1 for all.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the values differ, or their dtypes or shapes do not match.

    >>> assert_equal([1, 2], [1, 2])
    """
    _compare(x, y, "==", lambda a, b: a == b, message, summarize, "assert_equal")


@everyday_name("debugging.assert_none_equal")
def assert_none_equal(
    x: TensorLike,
    y: TensorLike,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless two values differ in all elements; see `assert_equal`.

    >>> assert_none_equal([1, 2], [3, 4])
    """
    _compare(x, y, "!=", lambda a, b: a != b, message, summarize, "assert_none_equal")


@everyday_name("debugging.assert_less", "assert_less")
def assert_less(
    x: TensorLike,
    y: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless ``x < y`` in all elements; see `assert_equal`.

    >>> assert_less([1, 2], [3, 4])
    """
    _compare(x, y, "<", lambda a, b: a < b, message, summarize, "assert_less")


@everyday_name("debugging.assert_less_equal")
def assert_less_equal(
    x: TensorLike,
    y: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless ``x <= y`` in all elements; see `assert_equal`.

    >>> assert_less_equal([1, 2], [1, 4])
    """
    _compare(x, y, "<=", lambda a, b: a <= b, message, summarize, "assert_less_equal")


@everyday_name("debugging.assert_greater", "assert_greater")
def assert_greater(
    x: TensorLike,
    y: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless ``x > y`` in all elements; see `assert_equal`.

    >>> assert_greater([3, 4], [1, 2])
    """
    _compare(x, y, ">", lambda a, b: a > b, message, summarize, "assert_greater")


@everyday_name("debugging.assert_greater_equal")
def assert_greater_equal(
    x: TensorLike,
    y: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless ``x >= y`` in all elements; see `assert_equal`.

    >>> assert_greater_equal([3, 4], [3, 2])
    """
    name = "assert_greater_equal"
    _compare(x, y, ">=", lambda a, b: a >= b, message, summarize, name)


@everyday_name("debugging.assert_near")
def assert_near(
    x: TensorLike,
    y: TensorLike,
    rtol: TensorLike | None = None,
    atol: TensorLike | None = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises an error unless ``|x - y| <= atol + rtol * |y|`` in all elements.

    Args:
        x: floats.
        y: floats with the same dtype, and a shape that can be broadcast with `x`.
        rtol: the relative tolerance, by default 10 times the machine epsilon of the
            dtype.
        atol: the absolute tolerance, with the same default.
        message: the text with which the error begins.
        summarize: how many elements the error shows, 3 by default; -1 for all.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the values differ by more, or their dtypes or shapes do
            not match.
        ValueError: the values are not floats.

    >>> assert_near([1.0], [1.1], atol=0.2)
    """
    a, b = tensors.tensor(x), tensors.tensor(y)
    if not jnp.issubdtype(a.dtype, jnp.inexact):
        raise ValueError(f"data type {a.dtype} not inexact: assert_near takes floats.")
    default = 10 * float(jnp.finfo(a.dtype).eps)  # type: ignore[no-untyped-call]
    relative = tensors.tensor(default if rtol is None else rtol).astype(a.dtype)
    absolute = tensors.tensor(default if atol is None else atol).astype(a.dtype)

    def holds(a: Any, b: Any) -> Any:
        return abs(a - b) <= absolute + relative * abs(b)

    _compare(a, b, "near", holds, message, summarize, "assert_near")


def _check_sign(
    x: TensorLike,
    sign: str,
    holds: Callable[[Any], Any],
    message: str | None,
    name: str,
) -> None:
    array = tensors.tensor(x)

    def tell(x: np.ndarray) -> Exception:
        return errors.InvalidArgumentError(
            f"{message or ''}\nCondition x {sign} 0 did not hold element-wise:\nx "
            f"(shape={x.shape} dtype={x.dtype}) = \n{_summary(x, 3)}"
        )

    ok = jnp.all(holds(frames.strip_gradient(array)))
    program_checks.require(f"debugging.{name}", ok, tell, (array,))


@everyday_name("debugging.assert_positive")
def assert_positive(
    x: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises `InvalidArgumentError` unless all elements are greater than zero.

    >>> assert_positive([1.0, 2.0])
    """
    _check_sign(x, ">", lambda a: a > 0, message, "assert_positive")


@everyday_name("debugging.assert_non_negative")
def assert_non_negative(
    x: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises `InvalidArgumentError` unless all elements are at least zero.

    >>> assert_non_negative([0.0, 2.0])
    """
    _check_sign(x, ">=", lambda a: a >= 0, message, "assert_non_negative")


@everyday_name("debugging.assert_negative")
def assert_negative(
    x: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises `InvalidArgumentError` unless all elements are less than zero.

    >>> assert_negative([-1.0, -2.0])
    """
    _check_sign(x, "<", lambda a: a < 0, message, "assert_negative")


@everyday_name("debugging.assert_non_positive")
def assert_non_positive(
    x: TensorLike,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises `InvalidArgumentError` unless all elements are at most zero.

    >>> assert_non_positive([-1.0, 0.0])
    """
    _check_sign(x, "<=", lambda a: a <= 0, message, "assert_non_positive")


@everyday_name("debugging.check_numerics")
def check_numerics(
    tensor: TensorLike, message: str, name: str | None = None
) -> jax.Array:
    """Returns the value; raises an error if an element is infinite or NaN.

    Args:
        tensor: floats.
        message: the text with which the error begins.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: an element is infinite or NaN, or the elements are not
            floats.

    >>> check_numerics([1.0, 2.0], "the loss").tolist()
    [1.0, 2.0]
    """
    array = tensors.tensor(tensor)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise errors.InvalidArgumentError(
            f"check_numerics takes floats, received {array.dtype}: {message}"
        )

    def tell(has_nan: np.ndarray, has_inf: np.ndarray) -> Exception:
        found = [n for n, x in (("Inf", has_inf), ("NaN", has_nan)) if x]
        return errors.InvalidArgumentError(
            f"{message} : Tensor had {' and '.join(found)} values"
        )

    plain = frames.strip_gradient(array)
    found = jnp.isnan(plain).any(), jnp.isinf(plain).any()
    ok = ~(found[0] | found[1])
    program_checks.require("debugging.check_numerics", ok, tell, found)
    return array


@everyday_name("debugging.assert_all_finite")
def assert_all_finite(
    x: TensorLike, message: str, name: str | None = None
) -> jax.Array:
    """Returns the value; raises an error if it is not finite; see `check_numerics`.

    >>> assert_all_finite([1.0, 2.0], "the loss").tolist()
    [1.0, 2.0]
    """
    return check_numerics(x, message, name)
