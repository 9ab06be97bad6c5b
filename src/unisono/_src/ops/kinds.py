"""The kinds of element types: which of them a function of TensorFlow takes."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import dtypes, errors

# An element type, as NumPy, Python or a name tell it.
ElementType: TypeAlias = str | type | np.dtype

# A kind is a letter, and each includes the numbers of those before it.
_KINDS = "bifc"
_CLASSES: tuple[Any, ...] = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
_NAMES = {
    "s": "signed numbers",
    "b": "bool",
    "i": "integers",
    "f": "floats",
    "c": "complex numbers",
    "o": "text",
}

ALL = "bifc"
SIGNED = "sifc"
NUMBERS = "ifc"
REAL = "if"
FLOAT = "f"
INEXACT = "fc"
BOOL = "b"
INTEGER = "i"
TEXT = "o"


@functools.cache
def kind(dtype: ElementType) -> str:
    """Returns the letter of an element type; "" for random keys.

    >>> kind(jnp.dtype("int32")), kind(jnp.dtype("float32"))
    ('i', 'f')
    """
    for letter, cls in zip(_KINDS, _CLASSES, strict=True):
        if jnp.issubdtype(dtype, cls):
            return letter
    return TEXT if dtype == dtypes.string else ""


def is_half(dtype: ElementType) -> bool:
    """Returns whether sums in this type stop at some hundreds or thousands.

    Then 1 is less than a half of the distance to the next number.

    >>> is_half(jnp.dtype("bfloat16")), is_half(jnp.dtype("float32"))
    (True, False)
    """
    return kind(dtype) == "f" and jnp.dtype(dtype).itemsize < 4


def can_hold(wanted: ElementType, given: ElementType) -> bool:
    """Returns whether numbers of one type keep their meaning in another type.

    >>> can_hold(jnp.dtype("float32"), jnp.dtype("int32"))
    True
    >>> can_hold(jnp.dtype("int32"), jnp.dtype("float32"))
    False
    """
    return 0 <= _KINDS.find(kind(given) or "?") <= _KINDS.find(kind(wanted) or "?")


def limits(dtype: ElementType) -> Any:
    """Returns the limits of a type of numbers, as NumPy or JAX describe them.

    >>> limits(jnp.dtype("int8")).max
    127
    """
    find: Any = jnp.iinfo if kind(dtype) == "i" else jnp.finfo
    return find(dtype)


def check(name: str, dtype: ElementType, allowed: str) -> None:
    """Raises unless a function takes elements of a type.

    Args:
        name: the name of the function.
        dtype: the type.
        allowed: the letters of the kinds that it takes.

    Raises:
        InvalidArgumentError: it does not take them.
    """
    letter = kind(dtype)
    is_unsigned = "s" in allowed and jnp.issubdtype(dtype, jnp.unsignedinteger)
    if not letter or letter not in allowed or is_unsigned:
        names = " and ".join(_NAMES[letter] for letter in allowed)
        wanted = {"b": "bool", "i": "int32", "s": "int32"}.get(allowed[0], "float32")
        raise errors.InvalidArgumentError(
            f"{name} takes {names}, received an array of type {dtype}. Convert it "
            f"first, as in unisono.cast(x, unisono.{wanted})."
        )


def require_float(name: str, dtype: ElementType) -> None:
    """Raises `TypeError` unless `dtype` is a type of real or complex numbers."""
    if kind(dtype) not in ("f", "c"):
        raise TypeError(
            f"Input must be either real or complex. Received integer type {dtype}, in "
            f"{name}. Convert it first, as in unisono.cast(x, unisono.float32)."
        )
