"""Converts random keys of JAX to numbers, which servers and programs have, and back."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from unisono._src.execution.equations import HasShape
from unisono._src.values.collectives import is_key

_A = TypeVar("_A", jax.Array, np.ndarray)


def to_numbers(x: ArrayLike) -> ArrayLike:
    """Returns the numbers of random keys; any other array as it is."""
    return jax.random.key_data(x) if isinstance(x, jax.Array) and is_key(x) else x


def from_numbers(x: _A, impl: str | None) -> _A | jax.Array:
    """Returns random keys of their numbers; any other array as it is.

    Args:
        x: the array.
        impl: the name of the keys' implementation; None for another array.
    """
    return x if impl is None else jax.random.wrap_key_data(jnp.asarray(x), impl=impl)


def numbers_like(aval: HasShape) -> jax.ShapeDtypeStruct:
    """Returns the shape and type of an array as it travels."""
    if not is_key(aval):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    found: jax.ShapeDtypeStruct = jax.eval_shape(
        jax.random.key_data, jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    )
    return found
