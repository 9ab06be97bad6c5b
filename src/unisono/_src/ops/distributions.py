"""Distributions of random numbers, drawn from given words, and their arguments."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.typing import ArrayLike, DTypeLike

from unisono._src.foundation import errors, jax_types
from unisono._src.ops import random_state
from unisono._src.training import philox
from unisono._src.values.array_operators import StandsForArray, operand

Shape: TypeAlias = Sequence[int] | np.ndarray | jax.Array
Numbers: TypeAlias = ArrayLike | StandsForArray | Sequence[Any]

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int32", "int64")

# How numbers of other distributions differ from TensorFlow's.
OWN_NUMBERS = (
    "The numbers differ from TensorFlow's; only uniform, normal and truncated normal "
    "numbers are the same."
)


def draw_uniform(
    words: Callable[[], jax.Array],
    sizes: tuple[int, ...],
    minval: Numbers | None,
    maxval: Numbers | None,
    kind: np.dtype,
) -> jax.Array:
    """Returns uniform numbers; takes the words only after the arguments are checked."""
    if kind.kind == "i":
        low: Any = operand(minval)
        high: Any = operand(maxval)
        _check_range(low, high)
        return philox.integers(words(), sizes, kind, low, high)
    low = to_number(0 if minval is None else minval, kind)
    high = to_number(1 if maxval is None else maxval, kind)
    part: jax.Array = philox.uniform(words(), sizes, kind)
    drawn: jax.Array = part * (high - low) + low
    return drawn


def shuffle_rows(array: jax.Array, words: jax.Array) -> jax.Array:
    """Returns the rows of an array in random order; a scalar as it is."""
    if not array.ndim:
        return array
    # Sorting by 64 random bits: two rows with the same bits are as good as impossible.
    drawn = philox.words(words, array.shape[:1], 2)
    return array[jnp.lexsort((drawn[:, 0], drawn[:, 1]))]


def check_logits(logits: Numbers) -> jax.Array:
    """Returns logits as a matrix of floats.

    Raises:
        InvalidArgumentError: they are no matrix.
    """
    array = to_array(logits)
    if array.ndim != 2:
        raise errors.InvalidArgumentError(
            f"logits should be a matrix, got shape {list(array.shape)}"
        )
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array * 1.0


def draw_classes(
    logits: jax.Array, count: int, words: jax.Array, dtype: DTypeLike | None
) -> jax.Array:
    """Returns `count` classes for each row of logits."""
    key = random_state.key_of(words)
    # JAX draws the batch behind the draws, TensorFlow has it before them.
    shape = (count, logits.shape[0])
    drawn = jax.random.categorical(key, logits, axis=-1, shape=shape).T
    wide = jax.dtypes.canonicalize_dtype(np.int64)
    kind = wide if dtype is None else jax_types.usable_type(dtype)
    found: jax.Array = drawn.astype(kind)
    return found


def join_parameters(
    alpha: Numbers, beta: Numbers | None, kind: np.dtype
) -> Sequence[jax.Array]:
    """Returns the parameters of a gamma distribution as arrays of one shape."""
    scale = to_number(1.0 if beta is None else beta, kind)
    return jnp.broadcast_arrays(to_number(alpha, kind), scale)


def draw_gamma(
    words: jax.Array, sizes: tuple[int, ...], a: jax.Array, b: jax.Array, kind: np.dtype
) -> jax.Array:
    """Returns numbers of a gamma distribution with shape `a` and rate `b`."""
    drawn = jax.random.gamma(random_state.key_of(words), a, sizes, kind)
    found: jax.Array = drawn / b
    return found


def scale(
    drawn: jax.Array, mean: Numbers, stddev: Numbers, kind: np.dtype
) -> jax.Array:
    """Returns standard normal numbers with another mean and deviation."""
    found: jax.Array = drawn * to_number(stddev, kind) + to_number(mean, kind)
    return found


def check_shape(shape: Shape) -> tuple[int, ...]:
    """Returns a shape, which must be known when a program is compiled.

    Raises:
        InvalidArgumentError: it is no list of sizes.
    """
    found = operand(shape)
    if isinstance(found, int) or getattr(found, "ndim", 1) != 1:
        raise errors.InvalidArgumentError(
            f"shape must be a list of sizes, such as [2, 3]; received {shape!r}."
        )
    if isinstance(found, np.ndarray):
        found = found.tolist()
    if any(map(export.is_symbolic_dim, found)):
        raise errors.InvalidArgumentError(
            f"shape must have sizes that are known, received {shape!r}. "
            f"{random_state.IN_LAYERS}"
        )
    try:
        sizes = tuple(operator.index(n) for n in found)
    except jax.errors.JAXTypeError:
        raise
    except TypeError:
        raise errors.InvalidArgumentError(
            f"shape must be a list of whole numbers, received {shape!r}."
        ) from None
    if any(n < 0 for n in sizes):
        raise errors.InvalidArgumentError(f"Dimension {min(sizes)} must be >= 0")
    return sizes


def check_ending(sizes: tuple[int, ...], ending: tuple[int, ...]) -> None:
    """Raises `InvalidArgumentError` unless a shape ends with that of parameters."""
    if ending and sizes[-len(ending) :] != ending:
        raise errors.InvalidArgumentError(
            f"Shape passed in must end with broadcasted shape. It is {sizes}, and the "
            f"parameters have {ending}."
        )


def check_type(dtype: DTypeLike, allowed: tuple[str, ...]) -> np.dtype[Any]:
    """Returns the type that JAX has for an allowed type; raises `ValueError` else."""
    kind = np.dtype(dtype)
    if kind.name not in allowed:
        raise ValueError(
            f"Argument `dtype` got invalid value {kind}. Accepted dtypes are "
            f"{', '.join(allowed)}."
        )
    found: np.dtype[Any] = np.dtype(jax_types.usable_type(kind))
    return found


def check_float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Returns the type that JAX has for a type of floats; raises `TypeError` else."""
    if np.dtype(dtype).name not in FLOATS:
        raise TypeError(f"Expected a type of floats, received {np.dtype(dtype)}.")
    return check_type(dtype, FLOATS)


def to_array(value: Numbers) -> jax.Array:
    """Returns the array of a value."""
    return jnp.asarray(operand(value))


def to_number(value: Numbers, kind: np.dtype) -> jax.Array:
    """Returns the array of a value, in a type."""
    return jnp.asarray(operand(value), kind)


def _check_range(low: jax.Array, high: jax.Array) -> None:
    # Values that only the program knows cannot be checked here.
    if isinstance(low, jax.core.Tracer) or isinstance(high, jax.core.Tracer):
        return
    if np.any(np.asarray(low) >= np.asarray(high)):
        raise errors.InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")
