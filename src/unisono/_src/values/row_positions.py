"""The one rule for positions: known ones must be there, computed ones change no other.

A position that is known and not in the array is an error, as in TensorFlow on a CPU.
One that a program computes is left out, as on TensorFlow's accelerators: a program
cannot raise in the middle of a step. In no case does -1 mean the last row, as in JAX.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import errors
from unisono._src.values import jax_tapes
from unisono._src.values.array_operators import operand

# Positions that are known, or that a program computes.
Positions: TypeAlias = jax.Array | np.ndarray

# Stands for a row that is not wanted. It is no row of any variable, so it reads zeros
# and changes nothing, and nobody sends it.
ABSENT = np.iinfo(np.int32).max

# How JAX's `array.at[...]` changes an array by this rule.
LEAVE_OUT: dict[str, Any] = {"mode": "drop", "wrap_negative_indices": False}


def as_array(indices: object) -> Positions:
    """Returns positions as an array of integers; constants stay known in a program.

    Raises:
        TypeError: they are no integers.
    """
    found = operand(indices)
    if not isinstance(found, jax.Array):
        is_traced = any(isinstance(x, jax.Array) for x in jax.tree.leaves(found))
        found = jnp.asarray(found) if is_traced else np.asarray(found)
    if found.size and not jnp.issubdtype(found.dtype, jnp.integer):
        raise TypeError(f"Indices must be integers, received {found.dtype}: {indices}.")
    # An empty list is one of floats to NumPy.
    return found if found.size else found.astype(jnp.int32)


def check(where: Positions, limits: tuple[int, ...], absent: int = -1) -> Positions:
    """Returns positions as int32; raises if one is known and out of range.

    Args:
        where: along the last axis, an index for each of `limits`; of one axis also
            without it. In a program being made the indices of arguments are not known.
        limits: the lengths of the axes that are indexed.
        absent: a number out of range that stands for no position; -1 for none.

    Raises:
        InvalidArgumentError: a position is out of range.

    >>> check(np.array([[0], [3]]), (3,))
    Traceback (most recent call last):
        ...
    unisono.errors.InvalidArgumentError: indices[1] = [3] does not index into shape ...
    """
    if _is_known(where) and limits and where.size:
        rows = np.asarray(jax_tapes.lower(where)).reshape(-1, len(limits))
        wrong = (rows < 0) | ((rows >= np.array(limits)) & (rows != absent))
        if wrong.any():
            i = int(np.nonzero(wrong)[0][0])
            raise errors.InvalidArgumentError(
                f"indices[{i}] = {rows[i].tolist()} does not index into shape "
                f"{list(limits)}; indices count from 0 on each axis."
            )
    return where if where.dtype == jnp.int32 else where.astype(jnp.int32)


def of_rows(indices: object, shape: tuple[int, ...]) -> Positions:
    """Returns positions of rows of an array as int32.

    Args:
        indices: the positions, of any shape.
        shape: the shape of the array.

    Raises:
        InvalidArgumentError: a position is known and out of range, or there are no
            rows.
        TypeError: the positions are no integers.
    """
    limits = tuple(shape)[:1]
    if not limits:
        raise errors.InvalidArgumentError("A scalar has no rows to index.")
    # Without one more axis: JAX would make a value of the program of a constant.
    return check(as_array(indices), limits, ABSENT)


def _is_known(x: object) -> bool:
    """Whether the numbers of an array can be looked at."""
    # Other workers may have a part of it.
    return not jax_tapes.is_traced(x) and getattr(x, "is_fully_addressable", True)
