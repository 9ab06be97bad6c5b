"""Python operators of objects that stand for an array: variables, mirrored values."""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import host_numbers, wide_numbers
from unisono._src.foundation.errors import InvalidArgumentError

_T = TypeVar("_T")
_Operator = Callable[[jax.Array, object], object]


def operand(x: _T) -> _T | jax.Array:
    """Returns the array that `x` stands for; `x` itself if it stands for none."""
    return x.__jax_array__() if isinstance(x, StandsForArray) else x


def unpack_scalar(array: np.ndarray) -> np.ndarray:
    """Returns the NumPy number of a scalar, as TensorFlow's `numpy()` does.

    A number can be a key of a dictionary, and an array cannot. An array with axes is
    returned as it is.
    """
    # NumPy's numbers have the methods of arrays, and go by the type of arrays here.
    return array if array.ndim else array[()]


def take(array: jax.Array, key: Any, owner: str) -> jax.Array:
    """Returns `array[key]`, after checking the indices that are known.

    JAX takes the nearest element instead of one that is not there.

    Args:
        array: the array.
        key: an index, or a tuple of them.
        owner: what the array belongs to, for the message.

    Raises:
        InvalidArgumentError: a number is known and out of range.
    """
    keys = key if isinstance(key, tuple) else (key,)
    axis, shape = 0, np.shape(array)
    for i, x in enumerate(keys):
        if x is Ellipsis:
            axis = len(shape) - sum(_count_axes(y) for y in keys[i + 1 :])
            continue
        index = _find_number(x)
        size = shape[axis] if 0 <= axis < len(shape) else None
        if index is not None and size is not None and not -size <= index < size:
            raise InvalidArgumentError(
                f"slice index {index} of dimension {axis} out of bounds. The shape of "
                f"{owner} is {shape}."
            )
        axis += _count_axes(x)
    return array[key]


def _find_number(x: Any) -> int | None:
    """Returns the number of an index; None for other keys, and for unknown numbers."""
    x = operand(x)
    if isinstance(x, (bool, jax.core.Tracer)) or getattr(x, "ndim", 0) != 0:
        return None
    is_number = isinstance(x, int) or (
        hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jnp.integer)
    )
    return int(x) if is_number else None


def _count_axes(x: Any) -> int:
    """Returns how many axes of an array a part of its key stands for."""
    if x is None or isinstance(x, bool):
        return 0
    is_mask = getattr(x, "dtype", None) == np.bool_
    return np.ndim(x) if is_mask else 1


def find_own_variable(x: object) -> Any:
    """Returns the `Variable` that keeps the value of another library's variable.

    A variable of Keras or Flax that was made in a strategy's scope has such a
    `Variable`. Anything else is returned as it is.
    """
    return getattr(x, "_unisono_variable", x)


def set_library_variable(x: StandsForArray, variable: object) -> None:
    """Says for which variable of Keras a `Variable` keeps the value."""
    # Private, because programs see the class. Weak, because that one has this.
    x._library_variable = weakref.ref(variable)  # noqa: SLF001


def find_library_variable(x: object) -> Any:
    """Returns the variable of Keras whose value a `Variable` keeps; else `x` itself."""
    reference = getattr(x, "_library_variable", None)
    found = None if reference is None else reference()
    return x if found is None else found


class HasDtype(Protocol):
    """An array, or what stands for one."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""


class StandsForArray:
    """Base class of objects that give an array when JAX calls `__jax_array__`."""

    _library_variable: weakref.ref[object]

    @abc.abstractmethod
    def __jax_array__(self) -> jax.Array:
        raise NotImplementedError


# The order in which a type holds the numbers of those before it.
_KINDS = (np.bool_, np.integer, np.floating, np.complexfloating)


def read_list(x: list[Any] | tuple[Any, ...], dtype: np.dtype[Any]) -> Any:
    """Returns the array of a list that is an operand beside an array, as in TensorFlow.

    Args:
        x: nested lists or tuples of numbers, arrays and variables.
        dtype: the type of the array, which Python's numbers get.

    Returns:
        An array; `x` itself if the array has no numbers.

    Raises:
        OverflowError: a number does not fit the type.
        TypeError: the list has something else, or floats beside an array of integers.
        ValueError: its parts have different lengths.

    >>> read_list([1, 2], np.dtype("float32"))
    array([1., 2.], dtype=float32)
    """
    wanted = _kind(dtype)
    if wanted is None:
        return x
    values = _read_leaves(x)
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(values)):
        return jnp.asarray(values)
    try:
        found = np.asarray(values)
    except ValueError:
        raise ValueError(
            f"Can't convert non-rectangular Python sequence to Tensor: received {x!r}."
        ) from None
    given = _kind(found.dtype)
    if found.size and (given is None or given > wanted):
        raise TypeError(
            f"{x!r} cannot be an operand beside an array of type {dtype}. Convert the "
            "array with unisono.cast, or the numbers of the list."
        )
    wide_numbers.check(found, "a list", dtype)
    return found.astype(dtype)


def take_lists(operator: _Operator) -> _Operator:
    """Returns an operator of JAX's arrays that takes lists and tuples as well.

    Args:
        operator: the operator, a method. For a list it raises, or is not implemented.
    """

    @functools.wraps(operator)
    def take(self: jax.Array, other: object) -> object:
        # Not for subclasses, which may have operators of their own.
        kind = type(other)
        if kind is list or kind is tuple:
            other = read_list(cast("list[Any] | tuple[Any, ...]", other), self.dtype)
        elif kind is host_numbers.HostArray:
            # An element of a dataset: JAX would cut its numbers of 64 bits off.
            wide_numbers.check(other)
        return operator(self, other)

    return take


def _kind(dtype: np.dtype[Any]) -> int | None:
    """Returns the place of a type in `_KINDS`; None for text and random keys."""
    places = (i for i, cls in enumerate(_KINDS) if jnp.issubdtype(dtype, cls))
    return next(places, None)


def _read_leaves(x: object) -> Any:
    """Returns nested lists with arrays in the place of what stands for them."""
    if isinstance(x, (list, tuple)):
        return [_read_leaves(part) for part in x]
    return operand(x)


def _other_operand(x: object, array: jax.Array) -> Any:
    """Returns the second operand of an operator, for the operators of JAX."""
    if isinstance(x, StandsForArray):
        return x.__jax_array__()
    if type(x) is list or type(x) is tuple:
        return read_list(x, array.dtype)
    return wide_numbers.check(x)


def _forward(name: str) -> Callable[[ArrayOperators, Any], jax.Array]:
    def method(self: ArrayOperators, other: object) -> jax.Array:
        array = jnp.asarray(self.__jax_array__())
        result: jax.Array = getattr(array, name)(_other_operand(other, array))
        return result

    method.__name__ = name
    return method


class ArrayOperators(StandsForArray):
    """Arithmetic and comparison with the array that an object stands for."""

    # A high priority makes NumPy leave `ndarray + x` to the methods below.
    __array_priority__ = 200

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray:
        # Always a copy: the next compiled step may donate the buffer, and NumPy would
        # go on reading memory that is used for something else.
        return np.array(self.__jax_array__(), dtype=dtype, copy=True)

    def __bool__(self) -> bool:
        return bool(self.__jax_array__())

    def __float__(self) -> float:
        return float(self.__jax_array__())

    def __int__(self) -> int:
        return int(self.__jax_array__())

    def __complex__(self) -> complex:
        return complex(self.__jax_array__())

    def __format__(self, spec: str) -> str:
        return format(self.__jax_array__(), spec) if spec else str(self)

    def __iter__(self) -> Iterator[jax.Array]:
        array = self.__jax_array__()
        if not np.ndim(array):
            raise TypeError("Cannot iterate over a scalar tensor.")
        return iter(array)

    def __neg__(self) -> jax.Array:
        return -self.__jax_array__()

    def __pos__(self) -> jax.Array:
        return +self.__jax_array__()

    def __abs__(self) -> jax.Array:
        return abs(self.__jax_array__())

    def __invert__(self) -> jax.Array:
        return ~self.__jax_array__()

    def __matmul__(self, other: object) -> jax.Array:
        array = jnp.asarray(self.__jax_array__())
        return jnp.matmul(array, _other_operand(other, array))

    def __rmatmul__(self, other: object) -> jax.Array:
        array = jnp.asarray(self.__jax_array__())
        return jnp.matmul(_other_operand(other, array), array)

    def __divmod__(self, other: object) -> tuple[jax.Array, jax.Array]:
        array = jnp.asarray(self.__jax_array__())
        quotient, rest = divmod(array, _other_operand(other, array))
        return quotient, rest

    def __rdivmod__(self, other: object) -> tuple[jax.Array, jax.Array]:
        array = jnp.asarray(self.__jax_array__())
        quotient, rest = divmod(_other_operand(other, array), array)
        return quotient, rest

    __add__ = _forward("__add__")
    __radd__ = _forward("__radd__")
    __sub__ = _forward("__sub__")
    __rsub__ = _forward("__rsub__")
    __mul__ = _forward("__mul__")
    __rmul__ = _forward("__rmul__")
    __truediv__ = _forward("__truediv__")
    __rtruediv__ = _forward("__rtruediv__")
    __floordiv__ = _forward("__floordiv__")
    __rfloordiv__ = _forward("__rfloordiv__")
    __mod__ = _forward("__mod__")
    __rmod__ = _forward("__rmod__")
    __pow__ = _forward("__pow__")
    __rpow__ = _forward("__rpow__")
    __and__ = _forward("__and__")
    __rand__ = _forward("__rand__")
    __or__ = _forward("__or__")
    __ror__ = _forward("__ror__")
    __xor__ = _forward("__xor__")
    __rxor__ = _forward("__rxor__")
    __lshift__ = _forward("__lshift__")
    __rlshift__ = _forward("__rlshift__")
    __rshift__ = _forward("__rshift__")
    __rrshift__ = _forward("__rrshift__")
    __lt__ = _forward("__lt__")
    __le__ = _forward("__le__")
    __gt__ = _forward("__gt__")
    __ge__ = _forward("__ge__")
    # Functions of their own: `object` has these two, with another result.

    def __eq__(self, other: object) -> jax.Array:  # type: ignore[override]
        return _equal(self, other)

    def __ne__(self, other: object) -> jax.Array:  # type: ignore[override]
        return _unequal(self, other)

    # `==` compares elements, so an object is a dictionary key by its identity.
    __hash__ = object.__hash__


def refuse_in_place(
    v: str, operator: str, change: str
) -> Callable[[Any, object], NoReturn]:
    """Returns the method of an operator such as ``+=``, which is TensorFlow's error.

    Python would put an array in the place of the variable's name, and the variable
    would keep its value.
    """

    def method(self: object, value: object) -> NoReturn:
        raise RuntimeError(
            f"`{v} {operator}= value` with `tf.Variable`s is not supported. Use "
            f"`{v}.{change}` to modify the variable, or `out = {v} {operator} value` "
            "if you need to get a new output Tensor."
        )

    return method


_equal = _forward("__eq__")
_unequal = _forward("__ne__")
