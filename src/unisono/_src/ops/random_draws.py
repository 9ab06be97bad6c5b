"""TensorFlow's ``tf.random`` functions, which draw from a state or from a seed."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.typing import ArrayLike, DTypeLike

from unisono._src.foundation import errors, jax_types
from unisono._src.foundation.public_names import publish
from unisono._src.ops import random_state
from unisono._src.training import philox
from unisono._src.values.array_operators import StandsForArray, operand

Shape: TypeAlias = Sequence[int] | np.ndarray | jax.Array
Seed: TypeAlias = Sequence[int] | np.ndarray | jax.Array
Numbers: TypeAlias = ArrayLike | StandsForArray | Sequence[Any]

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int32", "int64")


def uniform(
    shape: Shape,
    minval: Numbers | None = 0,
    maxval: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns uniform random numbers of a range, new ones at each call.

    Replicas draw different numbers.

    Args:
        shape: the shape of the result.
        minval: the lowest number.
        maxval: the end of the range; 1 by default for floats.
        dtype: a type of floats, or of integers of 32 or 64 bits.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: the shape is none, or `minval` is not below `maxval`.
        ValueError: `dtype` is another type, or a range of integers has no end.

    >>> set_seed(1234)
    >>> uniform([3]).tolist()
    [0.538..., 0.364..., ...]
    """
    kind = _type(dtype, (*_FLOATS, *_INTEGERS))
    if kind.kind == "i" and maxval is None:
        raise ValueError(f"Must specify maxval for integer dtype {kind}")
    if kind.kind == "i" and minval is None:
        raise ValueError(f"Must specify minval for integer dtype {kind}")
    sizes = _shape(shape)
    return _uniform(
        lambda: _take(sizes, seed, f"uniform {kind}"), sizes, minval, maxval, kind
    )


def _uniform(
    words: Callable[[], jax.Array], sizes: Any, minval: Any, maxval: Any, kind: Any
) -> jax.Array:
    """Returns uniform numbers; takes the words only after the arguments are checked."""
    if kind.kind == "i":
        low, high = operand(minval), operand(maxval)
        _check_range(low, high)
        whole: jax.Array = philox.integers(words(), sizes, kind, low, high)
        return whole
    low = _number(0 if minval is None else minval, kind)
    high = _number(1 if maxval is None else maxval, kind)
    part: jax.Array = philox.uniform(words(), sizes, kind)
    return part * (high - low) + low


def normal(
    shape: Shape,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns normal random numbers, new ones at each call.

    Replicas draw different numbers.

    Args:
        shape: the shape of the result.
        mean: the mean.
        stddev: the standard deviation.
        dtype: a type of floats.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: the shape is none.
        TypeError: `dtype` is no type of floats.

    >>> set_seed(1234)
    >>> normal([3], seed=1).tolist()
    [-0.323..., 1.857..., 0.395...]
    """
    kind, sizes = _float_type(dtype), _shape(shape)
    words = _take(sizes, seed, f"normal {kind}")
    return _scale(philox.normal(words, sizes, kind), mean, stddev, kind)


def truncated_normal(
    shape: Shape,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers of a normal distribution, within two standard deviations.

    Replicas draw different numbers.

    Args:
        shape: the shape of the result.
        mean: the mean.
        stddev: the standard deviation, before numbers are dropped.
        dtype: a type of floats.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: the shape is none.
        TypeError: `dtype` is no type of floats.

    >>> bool(abs(truncated_normal([3])).max() < 2)
    True
    """
    kind, sizes = _float_type(dtype), _shape(shape)
    words = _take(sizes, seed, f"truncated_normal {kind}")
    return _scale(philox.truncated_normal(words, sizes, kind), mean, stddev, kind)


def shuffle(
    value: Numbers, seed: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns the rows of an array in random order.

    Args:
        value: an array; its first axis is shuffled.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    >>> sorted(shuffle([1, 2, 3]).tolist())
    [1, 2, 3]
    """
    array = _array(value)
    rows = array.shape[:1]
    return _shuffle(array, _take(rows, seed, "shuffle"))


def _shuffle(array: jax.Array, words: jax.Array) -> jax.Array:
    if not array.ndim:
        return array
    drawn = philox.words(words, array.shape[:1], 2)
    return array[jnp.lexsort((drawn[:, 0], drawn[:, 1]))]


def categorical(
    logits: Numbers,
    num_samples: int,
    dtype: DTypeLike | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns classes, drawn by their logits for each row.

    Args:
        logits: a matrix with a row for each draw, of logarithms of weights.
        num_samples: how many classes are drawn for each row.
        dtype: the type of the result, int64 by default; int32 where JAX has no types of
            64 bits.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: `logits` is no matrix.

    >>> categorical([[0.0, -100.0], [-100.0, 0.0]], 3).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    array, count = _check_logits(logits), operator.index(num_samples)
    words = _take((array.shape[0], count), seed, "categorical")
    return _categorical(array, count, words, dtype)


def _check_logits(logits: Any) -> jax.Array:
    array = _array(logits)
    if array.ndim != 2:
        raise errors.InvalidArgumentError(
            f"logits should be a matrix, got shape {list(array.shape)}"
        )
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array * 1.0


def _categorical(
    logits: jax.Array, count: int, words: jax.Array, dtype: Any
) -> jax.Array:
    key = random_state.key_of(words)
    shape = (count, logits.shape[0])
    drawn = jax.random.categorical(key, logits, axis=-1, shape=shape).T
    wide = jax.dtypes.canonicalize_dtype(np.int64)
    kind = wide if dtype is None else jax_types.usable(dtype)
    found: jax.Array = drawn.astype(kind)
    return found


def gamma(
    shape: Shape,
    alpha: Numbers,
    beta: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers of gamma distributions, `shape` of them for each parameter.

    Args:
        shape: the shape of the numbers for one pair of parameters.
        alpha: the shape parameters.
        beta: the inverse scale parameters; 1 by default.
        dtype: a type of floats.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    Raises:
        TypeError: `dtype` is no type of floats.

    >>> gamma([3], [0.5, 1.5]).shape
    (3, 2)
    """
    kind = _float_type(dtype)
    a, b = _parameters(alpha, beta, kind)
    sizes = (*_shape(shape), *a.shape)
    return _gamma(_take(sizes, seed, f"gamma {kind}"), sizes, a, b, kind)


def _parameters(alpha: Any, beta: Any, kind: Any) -> Any:
    scale = _number(1.0 if beta is None else beta, kind)
    return jnp.broadcast_arrays(_number(alpha, kind), scale)


def _gamma(words: jax.Array, sizes: Any, a: Any, b: Any, kind: Any) -> jax.Array:
    drawn = jax.random.gamma(random_state.key_of(words), a, sizes, kind)
    found: jax.Array = drawn / b
    return found


def poisson(
    shape: Shape,
    lam: Numbers,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers of Poisson distributions, `shape` of them for each rate.

    Args:
        shape: the shape of the numbers for one rate.
        lam: the rates.
        dtype: the type of the result.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for TensorFlow's sake.

    >>> poisson([3], [0.5, 1.5]).shape
    (3, 2)
    """
    rate = _number(lam, np.dtype(np.float32))
    sizes = (*_shape(shape), *rate.shape)
    words = _take(sizes, seed, "poisson")
    drawn = jax.random.poisson(random_state.key_of(words), rate, sizes)
    return drawn.astype(jax_types.usable(dtype))


# The same numbers for the same seed, everywhere.


def stateless_uniform(
    shape: Shape,
    seed: Seed,
    minval: Numbers | None = 0,
    maxval: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
    alg: str | int = "auto_select",
) -> jax.Array:
    """Returns uniform random numbers of a range, which follow from a seed.

    The bits are those of TensorFlow's Philox.

    Args:
        shape: the shape of the result.
        seed: two integers.
        minval: the lowest number; None, as `maxval`, for all integers of a type.
        maxval: the end of the range; 1 by default for floats.
        dtype: a type of floats, or of integers of 32 or 64 bits.
        name: accepted for TensorFlow's sake.
        alg: ``"philox"`` or ``"auto_select"``, which is the same here.

    Raises:
        InvalidArgumentError: the seed has another shape, or `minval` is not below
            `maxval`.
        ValueError: `dtype` is another type, or only one end of a range is given.

    >>> stateless_uniform([3], seed=[1, 2]).tolist()
    [0.844..., 0.192..., 0.996...]
    """
    kind = _type(dtype, (*_FLOATS, *_INTEGERS, "uint32", "uint64"))
    sizes = _shape(shape)
    if kind.kind in "iu" and (minval is None) != (maxval is None):
        raise ValueError(
            f"For integer `dtype` argument {kind}, argument `minval` and `maxval` must "
            f"be both None or not None. Got `minval`={minval} and `maxval`={maxval}."
        )
    words = _stateless(seed, alg)
    if kind.kind in "iu" and minval is None:
        whole: jax.Array = philox.full_integers(words, sizes, kind)
        return whole
    return _uniform(lambda: words, sizes, minval, maxval, kind)


def stateless_normal(
    shape: Shape,
    seed: Seed,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
    alg: str | int = "auto_select",
) -> jax.Array:
    """Returns numbers of a normal distribution that follow from a seed.

    Args:
        shape: the shape of the result.
        seed: two integers.
        mean: the mean.
        stddev: the standard deviation.
        dtype: a type of floats.
        name: accepted for TensorFlow's sake.
        alg: ``"philox"`` or ``"auto_select"``, which is the same here.

    Raises:
        InvalidArgumentError: the seed has another shape.
        TypeError: `dtype` is no type of floats.

    >>> stateless_normal([3], seed=[1, 2]).tolist()
    [0.544..., 0.207..., 0.073...]
    """
    kind, sizes = _float_type(dtype), _shape(shape)
    drawn = philox.normal(_stateless(seed, alg), sizes, kind)
    return _scale(drawn, mean, stddev, kind)


def stateless_truncated_normal(
    shape: Shape,
    seed: Seed,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
    alg: str | int = "auto_select",
) -> jax.Array:
    """Returns numbers within two standard deviations that follow from a seed.

    Args:
        shape: the shape of the result.
        seed: two integers.
        mean: the mean.
        stddev: the standard deviation, before numbers are dropped.
        dtype: a type of floats.
        name: accepted for TensorFlow's sake.
        alg: ``"philox"`` or ``"auto_select"``, which is the same here.

    Raises:
        InvalidArgumentError: the seed has another shape.
        TypeError: `dtype` is no type of floats.

    >>> stateless_truncated_normal([3], seed=[1, 2]).tolist()
    [0.544..., 0.207..., 0.073...]
    """
    kind, sizes = _float_type(dtype), _shape(shape)
    drawn = philox.truncated_normal(_stateless(seed, alg), sizes, kind)
    return _scale(drawn, mean, stddev, kind)


def stateless_categorical(
    logits: Numbers,
    num_samples: int,
    seed: Seed,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns classes, drawn by their logits for each row, that follow from a seed.

    Args:
        logits: a matrix with a row for each draw, of logarithms of weights.
        num_samples: how many classes are drawn for each row.
        seed: two integers.
        dtype: the type of the result; see `categorical`.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: `logits` is no matrix, or the seed has another shape.

    >>> stateless_categorical([[0.0, -100.0]], 3, seed=[1, 2]).tolist()
    [[0, 0, 0]]
    """
    array, count = _check_logits(logits), operator.index(num_samples)
    return _categorical(array, count, _stateless(seed), dtype)


def stateless_gamma(
    shape: Shape,
    seed: Seed,
    alpha: Numbers,
    beta: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers of gamma distributions that follow from a seed.

    Args:
        shape: the shape of the result, which ends with that of the parameters.
        seed: two integers.
        alpha: the shape parameters.
        beta: the inverse scale parameters; 1 by default.
        dtype: a type of floats.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: a shape does not fit.
        TypeError: `dtype` is no type of floats.

    >>> drawn = stateless_gamma([3, 2], seed=[1, 2], alpha=[0.5, 1.5])
    >>> half = stateless_gamma([3, 2], seed=[1, 2], alpha=[0.5, 1.5], beta=2.0)
    >>> bool(jnp.allclose(drawn, 2 * half))
    True
    """
    kind, sizes = _float_type(dtype), _shape(shape)
    a, b = _parameters(alpha, beta, kind)
    _check_ending(sizes, a.shape)
    return _gamma(_stateless(seed), sizes, a, b, kind)


def stateless_poisson(
    shape: Shape,
    seed: Seed,
    lam: Numbers,
    dtype: DTypeLike = jnp.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns numbers of Poisson distributions that follow from a seed.

    Args:
        shape: the shape of the result, which ends with that of the rates.
        seed: two integers.
        lam: the rates.
        dtype: the type of the result.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: a shape does not fit.

    >>> stateless_poisson([3, 2], seed=[1, 2], lam=[0.5, 1.5]).shape
    (3, 2)
    """
    rate, sizes = _number(lam, np.dtype(np.float32)), _shape(shape)
    _check_ending(sizes, rate.shape)
    drawn = jax.random.poisson(random_state.key_of(_stateless(seed)), rate, sizes)
    return drawn.astype(jax_types.usable(dtype))


def stateless_shuffle(
    value: Numbers,
    seed: Seed,
    alg: str | int = "auto_select",
    name: str | None = None,
) -> jax.Array:
    """Returns the rows of an array in an order that follows from a seed.

    Args:
        value: an array; its first axis is shuffled.
        seed: two integers.
        alg: ``"philox"`` or ``"auto_select"``, which is the same here.
        name: accepted for TensorFlow's sake.

    Raises:
        InvalidArgumentError: the seed has another shape.

    >>> sorted(stateless_shuffle([1, 2, 3], seed=[1, 2]).tolist())
    [1, 2, 3]
    """
    return _shuffle(_array(value), _stateless(seed, alg))


def split(seed: Seed, num: int = 2, alg: str | int = "auto_select") -> jax.Array:
    """Returns several seeds that follow from one, as the rows of a matrix.

    Args:
        seed: two integers.
        num: how many seeds.
        alg: ``"philox"`` or ``"auto_select"``, which is the same here.

    Raises:
        InvalidArgumentError: the seed has another shape.

    >>> split([1, 2]).tolist()
    [[1105988140, 1738052849], [-335576002, 370444179]]
    """
    count = operator.index(num)
    return stateless_uniform([count, 2], seed, None, None, jnp.int32, alg=alg)


def fold_in(seed: Seed, data: ArrayLike, alg: str | int = "auto_select") -> jax.Array:
    """Returns the seed that follows from a seed and a number, such as a step's.

    Args:
        seed: two integers.
        data: a whole number.
        alg: ``"philox"`` or ``"auto_select"``, which is the same here.

    Raises:
        InvalidArgumentError: the seed has another shape.

    >>> fold_in([1, 2], 3).tolist()
    [1105988140, 3]
    """
    number = jnp.asarray(operand(data)).astype(jnp.int32)
    drawn = stateless_uniform([], seed, None, None, jnp.int32, alg=alg)
    return jnp.stack([drawn, number])


# Arguments.


def _take(sizes: tuple[int, ...], seed: int | None, kind: str) -> jax.Array:
    return random_state.take(math.prod(sizes), seed, kind)


def _stateless(seed: Any, alg: Any = "auto_select") -> jax.Array:
    """Returns the words of a seed."""
    if alg not in ("philox", "auto_select", 1, 3):
        told = getattr(alg, "value", None)
        if told not in (1, 3):
            raise ValueError(
                f"Argument `alg` got unsupported value {alg}. Supported values are "
                "'philox' and 'auto_select'."
            )
    given = operand(seed)
    given = given if isinstance(given, jax.Array) else np.asarray(given)
    if given.shape != (2,):
        raise errors.InvalidArgumentError(
            f"seed must have shape [2], not {list(given.shape)}"
        )
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise errors.InvalidArgumentError(
            f"seed must be two integers, received {given.dtype} numbers."
        )
    return random_state.words_of_stateless_seed(given)


def _shape(shape: Any) -> tuple[int, ...]:
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


def _check_ending(sizes: tuple[int, ...], ending: tuple[int, ...]) -> None:
    if ending and sizes[-len(ending) :] != ending:
        raise errors.InvalidArgumentError(
            f"Shape passed in must end with broadcasted shape. It is {sizes}, and the "
            f"parameters have {ending}."
        )


def _type(dtype: Any, allowed: tuple[str, ...]) -> np.dtype[Any]:
    kind = np.dtype(dtype)
    if kind.name not in allowed:
        raise ValueError(
            f"Argument `dtype` got invalid value {kind}. Accepted dtypes are "
            f"{', '.join(allowed)}."
        )
    found: np.dtype[Any] = np.dtype(jax_types.usable(kind))
    return found


def _float_type(dtype: Any) -> np.dtype[Any]:
    if np.dtype(dtype).name not in _FLOATS:
        raise TypeError(f"Expected a type of floats, received {np.dtype(dtype)}.")
    return _type(dtype, _FLOATS)


def _array(value: Any) -> jax.Array:
    return jnp.asarray(operand(value))


def _number(value: Any, kind: Any) -> jax.Array:
    return jnp.asarray(operand(value), kind)


def _scale(drawn: Any, mean: Any, stddev: Any, kind: Any) -> jax.Array:
    found: jax.Array = drawn * _number(stddev, kind) + _number(mean, kind)
    return found


def _check_range(low: Any, high: Any) -> None:
    if isinstance(low, jax.core.Tracer) or isinstance(high, jax.core.Tracer):
        return
    if np.any(np.asarray(low) >= np.asarray(high)):
        raise errors.InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")


publish(
    "unisono.random",
    categorical,
    fold_in,
    gamma,
    normal,
    poisson,
    shuffle,
    split,
    stateless_categorical,
    stateless_gamma,
    stateless_normal,
    stateless_poisson,
    stateless_truncated_normal,
    stateless_uniform,
    truncated_normal,
    uniform,
)
publish("unisono.random.experimental", stateless_shuffle)
set_seed = random_state.set_seed
