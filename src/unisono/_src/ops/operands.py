"""Turns what a program passes into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from unisono._src.values import array_operators
from unisono._src.values.array_operators import StandsForArray

TensorLike: TypeAlias = ArrayLike | StandsForArray | Sequence[Any]


def tensor(x: Any) -> jax.Array:
    """Returns the array of a value: a number, a variable, or nested lists of them.

    >>> tensor([1.0, 2.0]).dtype.name
    'float32'
    """
    own = array_operators.operand(array_operators.find_own_variable(x))
    if isinstance(own, (list, tuple)):
        own = jax.tree.map(
            tensor, own, is_leaf=lambda v: not isinstance(v, (list, tuple))
        )
    found: jax.Array = jnp.asarray(own)
    return found


def is_array(x: object) -> bool:
    """Returns whether a value is an array of JAX, or stands for one."""
    own = array_operators.find_own_variable(x)
    return isinstance(own, jax.Array) or hasattr(own, "__jax_array__")
