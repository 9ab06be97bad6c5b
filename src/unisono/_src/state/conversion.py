"""Converts values to the type of a variable; no cast may change what they mean."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import host_types, wide_numbers
from unisono._src.values.array_operators import operand

_T = TypeVar("_T")
# The type of a variable: NumPy's, or one of JAX's own.
DType: TypeAlias = np.dtype[Any]

# Each kind of number includes those before it. Random keys are of no such kind.
_KINDS: tuple[Any, ...] = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
_NUMBERS = (bool, int, float, complex)


def as_type(value: object, dtype: DType, name: str | None) -> jax.Array:
    """Returns `value` as an array of a variable's type.

    Args:
        value: array-like.
        dtype: the type of the variable.
        name: its name, for messages.

    Raises:
        TypeError: a Python number, or one in a list, is of a kind that the variable
            cannot hold, such as a float for an integer variable.
        ValueError: an array is of such a kind.
        OverflowError: a number is out of the range of the variable's type.
    """
    value = operand(value)
    if isinstance(value, jax.Array):
        if value.dtype != dtype:
            check_array(value.dtype, dtype, name)
            return value.astype(dtype)
    elif isinstance(value, (np.ndarray, np.generic)):
        check_array(value.dtype, dtype, name)
    elif isinstance(value, (*_NUMBERS, list, tuple)):
        _check_numbers(value, dtype, name)
    else:
        check_given(value, name)
        return as_type(_as_array(value), dtype, name)
    what = f"the value of the variable '{name}'"
    return wide_numbers.as_jax(copy_if_numpy(value), dtype, what)


def give_type(value: _T) -> _T | np.ndarray:
    """Returns numbers of Python in TensorFlow's type, which has 32 bits if it can.

    Without 64-bit types JAX does the same. Other values are returned as they are.
    """
    is_plain = isinstance(value, (*_NUMBERS, list, tuple))
    if is_plain and all(type(x) in _NUMBERS for x in jax.tree.leaves(value)):
        return host_types.to_array(value)
    return value


def check_given(value: object, name: str | None) -> None:
    """Raises `ValueError` for None and `TypeError` for text, which are no numbers."""
    if value is None:
        raise ValueError(
            "Attempt to convert a value (None) with an unsupported type "
            f"({type(None)}) to a Tensor, for the variable '{name}'. Give an array or "
            "a number."
        )
    if isinstance(value, (str, bytes)):
        raise TypeError(
            f"Cannot convert {value!r} to the numbers of the variable '{name}': there "
            "are no variables of text."
        )


def copy_if_numpy(x: _T) -> _T | np.ndarray:
    """Returns a copy of a NumPy array, whose owner may change it; else `x` itself.

    JAX may share a NumPy array's memory on CPU, and may read it later on other devices.
    """
    return np.array(x) if isinstance(x, np.ndarray) else x


def _as_array(value: Any) -> jax.Array | np.ndarray:
    """Returns the array of another library's object, of the type that it has there."""
    is_jax = hasattr(value, "__jax_array__") or not hasattr(value, "__array__")
    return jnp.asarray(value) if is_jax else np.asarray(value)


def _fits(given: DTypeLike, wanted: DType) -> bool:
    """Whether numbers of type `given` keep their meaning in type `wanted`."""
    # A float may hold integers, but not the other way round; sizes do not count.
    wider = [kind for kind in _KINDS if jnp.issubdtype(wanted, kind)]
    allowed = _KINDS[: _KINDS.index(wider[0]) + 1] if wider else ()
    return given == wanted or any(jnp.issubdtype(given, kind) for kind in allowed)


def check_array(given: DTypeLike, wanted: DType, name: str | None) -> None:
    """Raises `ValueError` unless a variable can hold the elements of an array.

    Args:
        given: the type of the array.
        wanted: the type of the variable.
        name: its name, for messages.
    """
    if not _fits(given, wanted):
        raise ValueError(
            f"Cannot assign a value of type {given} to the variable '{name}' of type "
            f"{wanted}; {_advice(wanted)}"
        )


def _check_numbers(value: object, wanted: DType, name: str | None) -> None:
    for x in jax.tree.leaves(value):
        given = type(x) if isinstance(x, _NUMBERS) else getattr(x, "dtype", None)
        if given is None or not _fits(given, wanted):
            what = repr(x) if x is value else f"a {type(value).__name__} with {x!r}"
            raise TypeError(
                f"Cannot assign {what} to the variable '{name}' of type {wanted}; "
                f"{_advice(wanted)}"
            )


def _advice(wanted: DType) -> str:
    """Returns what to write instead of a value that does not fit."""
    if jnp.issubdtype(wanted, jax.dtypes.prng_key):
        return "assign a random key, such as jax.random.key(0)."
    return "cast the value first, as in jnp.asarray(x).astype(variable.dtype)."
