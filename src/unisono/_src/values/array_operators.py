"""Python operators of objects that stand for an array: variables, mirrored values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np


def operand(x: Any) -> Any:
    """Returns the array that `x` stands for; `x` itself if it stands for none."""
    return x.__jax_array__() if isinstance(x, StandsForArray) else x


def own(x: Any) -> Any:
    """Returns the `Variable` that keeps the value of another library's variable.

    A variable of Keras or Flax that was made in a strategy's scope has such a
    `Variable`. Anything else is returned as it is.
    """
    return getattr(x, "_unisono_variable", x)


class StandsForArray:
    """Base class of objects that give an array when JAX calls `__jax_array__`."""

    def __jax_array__(self) -> Any:
        raise NotImplementedError


class ArrayOperators(StandsForArray):
    """Arithmetic, comparison and indexing on the array that an object stands for."""

    # A high priority makes NumPy leave `ndarray + x` to the methods below.
    __array_priority__ = 200

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        # Always a copy: the next compiled step may donate the buffer, and NumPy would
        # go on reading memory that is used for something else.
        return np.array(self.__jax_array__(), dtype=dtype, copy=True)

    def __bool__(self) -> bool:
        return bool(self.__jax_array__())

    def __getitem__(self, key: Any) -> Any:
        return self.__jax_array__()[key]

    def __iter__(self) -> Any:
        return iter(self.__jax_array__())

    def __neg__(self) -> Any:
        return -self.__jax_array__()

    def __pos__(self) -> Any:
        return +self.__jax_array__()

    def __abs__(self) -> Any:
        return abs(self.__jax_array__())

    def __invert__(self) -> Any:
        return ~self.__jax_array__()

    def __matmul__(self, other: Any) -> Any:
        return jnp.matmul(self.__jax_array__(), operand(other))

    def __rmatmul__(self, other: Any) -> Any:
        return jnp.matmul(operand(other), self.__jax_array__())

    # `==` compares elements, so an object is a dictionary key by its identity.
    __hash__ = object.__hash__


def _forward(name: str) -> Any:
    """Returns a method that calls the array's own operator `name`."""

    def method(self: ArrayOperators, other: Any) -> Any:
        return getattr(jnp.asarray(self.__jax_array__()), name)(operand(other))

    method.__name__ = name
    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod",
              "and", "or", "xor", "lshift", "rshift"):  # fmt: skip
    setattr(ArrayOperators, f"__{_name}__", _forward(f"__{_name}__"))
    setattr(ArrayOperators, f"__r{_name}__", _forward(f"__r{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ArrayOperators, f"__{_name}__", _forward(f"__{_name}__"))
del _name
