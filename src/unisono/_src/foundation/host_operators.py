"""TensorFlow's operators for arrays of the host: its table of types and errors.

``x * 300`` keeps the type of `x`, the quotient of integers is a float, and types are
never mixed. Each row of the tables says what NumPy computes of two arrays of one type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, final

import jax
import numpy as np

from unisono._src.foundation import errors, host_types, wide_numbers

_Numbers = np.ndarray | np.generic | complex
_Compute = Callable[..., Any]
_Method = Callable[..., Any]
# What has no array and no operators of its own.
_VALUES = (bool, int, float, complex, str, bytes, list, tuple, type(None))
_CAST = "as in unisono.cast(x, unisono.float32)."
# NumPy's letters for the kinds of types; it has none for bfloat16 and its like.
_NUMBERS, _REAL, _WHOLE = "iufc", "iuf", "biu"
_FLOATS_OF_OTHERS = "V"


@final
class _Row(NamedTuple):
    """What an operator does.

    Attributes:
        name: the name in messages.
        kinds: NumPy's letters of the types that it takes.
        compute: what it computes.
        of_integers: what it computes of integers, if that differs.
    """

    name: str
    kinds: str
    compute: _Compute
    of_integers: _Compute | None = None


def _quietly(compute: _Compute) -> _Compute:
    """Returns a function whose results may be infinite or NaN, as in TensorFlow.

    NumPy would warn of them, which it is not asked about where it has no cause to.
    """

    def compute_quietly(x: _Numbers, y: _Numbers) -> object:
        if type(y) is float and y:
            return compute(x, y)
        with np.errstate(all="ignore"):
            return compute(x, y)

    return compute_quietly


def _quotient(x: np.ndarray, y: np.ndarray) -> object:
    wide = np.float32 if x.dtype.itemsize <= 2 else np.float64
    return np.divide(x, y, dtype=wide)


def _floor_quotient(x: _Numbers, y: _Numbers) -> object:
    # TensorFlow's, which rounds the quotient; NumPy's is of the exact one.
    return np.floor(np.divide(x, y))


def _divide_whole(compute: _Compute) -> _Compute:
    """Returns a division of integers that refuses to divide by zero."""

    def divide(x: np.ndarray, y: np.ndarray) -> object:
        if np.count_nonzero(y) != y.size and x.size:
            raise errors.InvalidArgumentError("Integer division by zero.")
        return compute(x, y)

    return _quietly(divide)


def _integer_power(x: np.ndarray, y: np.ndarray) -> object:
    if np.count_nonzero(np.less(y, 0)) and x.size:
        raise errors.InvalidArgumentError(
            "Integers to negative integer powers are not allowed."
        )
    return np.power(x, y)


def _matmul(x: np.ndarray, y: np.ndarray) -> object:
    if min(np.ndim(x), np.ndim(y)) < 2:
        raise errors.InvalidArgumentError(
            "The operator @ takes matrices, or stacks of them; received the shapes "
            f"{list(np.shape(x))} and {list(np.shape(y))}."
        )
    # NumPy multiplies bfloat16 as float32.
    return np.matmul(x, y).astype(x.dtype, copy=False)


_BINARY = {
    "add": _Row("add", _NUMBERS + "O", np.add),
    "sub": _Row("subtract", _NUMBERS, np.subtract),
    "mul": _Row("multiply", "b" + _NUMBERS, np.multiply),
    "truediv": _Row("truediv", _NUMBERS, _quietly(np.divide), _quietly(_quotient)),
    "floordiv": _Row(
        "floordiv", _REAL, _quietly(_floor_quotient), _divide_whole(np.floor_divide)
    ),
    "mod": _Row("mod", _REAL, _quietly(np.remainder), _divide_whole(np.remainder)),
    "pow": _Row("pow", "ifc", np.errstate(all="ignore")(np.power), _integer_power),
    "matmul": _Row("matmul", _NUMBERS, _matmul),
    "and": _Row("and", _WHOLE, np.bitwise_and),
    "or": _Row("or", _WHOLE, np.bitwise_or),
    "xor": _Row("xor", _WHOLE, np.bitwise_xor),
}
_ORDER = {
    "lt": _Row("less", _REAL, np.less),
    "le": _Row("less_equal", _REAL, np.less_equal),
    "gt": _Row("greater", _REAL, np.greater),
    "ge": _Row("greater_equal", _REAL, np.greater_equal),
}
_EQUALITY = {"eq": "equal", "ne": "not_equal"}
_UNARY = {
    "neg": _Row("negative", "ifc", np.negative),
    "abs": _Row("abs", "ifc", np.absolute),
    "invert": _Row("invert", _WHOLE, np.invert),
}


def methods(present: Callable[[Any], Any]) -> Iterator[tuple[str, _Method]]:
    """Yields the name and the method of each operator of a class of arrays.

    Args:
        present: returns a plain array or number as an array of the class.
    """
    for name, row in (_BINARY | _ORDER).items():
        yield f"__{name}__", _binary_method(row, f"__{name}__", present)
    for name, row in _BINARY.items():
        # A tensor is never written into.
        yield f"__i{name}__", _binary_method(row, f"__{name}__", present)
        yield f"__r{name}__", _binary_method(row, f"__r{name}__", present)
    for name, told in _EQUALITY.items():
        yield f"__{name}__", _equality_method(told, f"__{name}__", present)
    for name, row in _UNARY.items():
        yield f"__{name}__", _unary_method(row, present)


def _binary_method(row: _Row, name: str, present: Callable[[Any], Any]) -> _Method:
    """Returns the method of an operator."""
    is_reflected = name.startswith("__r")
    numpys: _Method = getattr(np.ndarray, name)
    # What is computed of each type that has occurred.
    chosen: dict[np.dtype, _Compute] = {}

    def operate(self: np.ndarray, other: Any) -> object:
        # Another array of this type, or a number beside floats, is what most programs
        # give: NumPy's own rule of types has TensorFlow's answer.
        x: Any = self.view(np.ndarray)
        kind = type(other)
        if kind is type(self) and other.dtype == x.dtype:
            y = other.view(np.ndarray)
        elif (kind is float or kind is int) and x.dtype.kind == "f":
            y = other
        elif is_value(other):
            y = _fit(row.name, self, other)
        else:
            return _leave_to_other(numpys, self, other)
        compute = chosen.get(x.dtype)
        if compute is None:
            compute = chosen[x.dtype] = _choose(row, x.dtype)
        try:
            found = compute(y, x) if is_reflected else compute(x, y)
        except ValueError as error:
            raise _shape_error(row.name, x, y, error) from None
        # Without a call: this runs for every element.
        return found.view(type(self)) if type(found) is np.ndarray else present(found)

    return operate


def _equality_method(told: str, name: str, present: Callable[[Any], Any]) -> _Method:
    """Returns the method of ``==`` or ``!=``; arrays of other shapes are unequal."""
    numpys: _Method = getattr(np.ndarray, name)
    is_unequal = name == "__ne__"

    def compare(self: np.ndarray, other: object) -> object:
        if other is None:
            return is_unequal
        if not is_value(other):
            return _leave_to_other(numpys, self, other)
        y = other
        # The numbers of plain arrays are compared as they are, not rounded first.
        is_plain = isinstance(y, (np.ndarray, np.generic)) and y.dtype.kind not in "US"
        if host_types.is_tensor(y) or not is_plain:
            y = _fit(told, self, y)
        try:
            found = numpys(self.view(np.ndarray), y)
        except ValueError:
            found = np.bool_(is_unequal)
        return present(found)

    return compare


def _leave_to_other(numpys: _Method, x: np.ndarray, other: object) -> object:
    """Returns what the other operand computes, once JAX is known to keep the numbers.

    Raises:
        OverflowError: the other operand is an array of JAX, which has 32 bits.
    """
    if isinstance(other, jax.Array):
        wide_numbers.check(x.view(np.ndarray))
    return numpys(x, other)


def _unary_method(row: _Row, present: Callable[[Any], Any]) -> _Method:
    """Returns the method of an operator of one array."""

    def operate(self: np.ndarray) -> object:
        return present(_choose(row, self.dtype)(self.view(np.ndarray)))

    return operate


def is_value(x: object) -> bool:
    """Returns whether an operand is of the host, and lets this array decide.

    Arrays of JAX, variables, and classes of NumPy's such as masked arrays are not.
    """
    if isinstance(x, (np.ndarray, np.generic)):
        return x.__array_priority__ <= 0
    return isinstance(x, _VALUES)


def _choose(row: _Row, dtype: np.dtype) -> _Compute:
    """Returns what an operator computes of a type.

    Raises:
        InvalidArgumentError: it does not take that type.
    """
    kind = dtype.kind
    if kind not in row.kinds and (kind != _FLOATS_OF_OTHERS or "f" not in row.kinds):
        told = "string" if kind == "O" else dtype.name
        raise errors.InvalidArgumentError(
            f"{row.name} takes no arrays of type {told}. Convert the array first, "
            f"{_CAST}"
        )
    if row.of_integers is not None and kind in "iu":
        return row.of_integers
    return row.compute


def _fit(name: str, x: np.ndarray, y: object) -> np.ndarray:
    """Returns the other operand as an array of the type of `x`.

    Raises:
        InvalidArgumentError: it is a tensor of another type.
        TypeError: it is a number of a kind that does not fit.
        OverflowError: it has a whole number of more than 64 bits.
    """
    try:
        found = host_types.to_one_type(name, x, y)[1]
    except TypeError as error:
        if "Convert" in str(error):
            raise
        raise TypeError(f"{error} Convert the array beside it first, {_CAST}") from None
    except OverflowError:
        # As in TensorFlow, an integer keeps the bits that the type has.
        found = np.asarray(y)
        if found.dtype.kind != "i":
            raise OverflowError(
                f"{name} takes numbers of at most 64 bits, received {y!r} beside an "
                f"array of type {x.dtype.name}."
            ) from None
        found = found.astype(x.dtype)
    return found.view(np.ndarray)


def _shape_error(name: str, x: _Numbers, y: _Numbers, error: ValueError) -> ValueError:
    """Returns the error for arrays that cannot be broadcast together."""
    if isinstance(error, errors.InvalidArgumentError):
        return error
    return errors.InvalidArgumentError(
        f"{name}: incompatible shapes, {list(np.shape(x))} and {list(np.shape(y))}."
    )
