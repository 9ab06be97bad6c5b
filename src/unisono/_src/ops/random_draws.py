"""TensorFlow's ``tf.random`` functions that draw new numbers at each call."""

from __future__ import annotations

import math
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import jax_types
from unisono._src.ops import distributions, random_state
from unisono._src.ops.distributions import Numbers, Shape
from unisono._src.ops.host.shared_bodies import everyday_name
from unisono._src.training import philox

__all__ = [
    "categorical",
    "gamma",
    "normal",
    "poisson",
    "shuffle",
    "truncated_normal",
    "uniform",
]

# For the examples below.
set_seed = random_state.set_seed

_NEEDS_SEED = (
    "In a compiled function the numbers are the same as TensorFlow's only if a seed is "
    "given."
)


@everyday_name("random.uniform", difference=_NEEDS_SEED)
def uniform(
    shape: Shape,
    minval: Numbers | None = 0,
    maxval: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns uniform random numbers from a range, new ones at each call.

    Replicas draw different numbers.

    Args:
        shape: the shape of the result.
        minval: the lower end of the range.
        maxval: the upper end of the range; 1 by default for floats.
        dtype: a float dtype, `int32` or `int64`.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `shape` is not a list of sizes, or `minval` is not below
            `maxval` for integers.
        ValueError: `dtype` is another dtype, or one end of a range of integers is
            missing.

    >>> set_seed(1234)
    >>> uniform([3]).tolist()
    [0.538..., 0.364..., ...]
    """
    kind = distributions.check_type(
        dtype, (*distributions.FLOATS, *distributions.INTEGERS)
    )
    if kind.kind == "i" and maxval is None:
        raise ValueError(f"Must specify maxval for integer dtype {kind}")
    if kind.kind == "i" and minval is None:
        raise ValueError(f"Must specify minval for integer dtype {kind}")
    sizes = distributions.check_shape(shape)
    return distributions.draw_uniform(
        lambda: _take(sizes, seed, f"uniform {kind}"), sizes, minval, maxval, kind
    )


@everyday_name("random.normal", difference=_NEEDS_SEED)
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
        dtype: a float dtype.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `shape` is not a list of sizes.
        TypeError: `dtype` is not a float dtype.

    >>> set_seed(1234)
    >>> normal([3], seed=1).tolist()
    [-0.323..., 1.857..., 0.395...]
    """
    kind = distributions.check_float_type(dtype)
    sizes = distributions.check_shape(shape)
    words = _take(sizes, seed, f"normal {kind}")
    return distributions.scale(philox.normal(words, sizes, kind), mean, stddev, kind)


@everyday_name("random.truncated_normal", difference=_NEEDS_SEED)
def truncated_normal(
    shape: Shape,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns normal random numbers within two standard deviations of the mean.

    Replicas draw different numbers.

    Args:
        shape: the shape of the result.
        mean: the mean.
        stddev: the standard deviation of the distribution before truncation.
        dtype: a float dtype.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `shape` is not a list of sizes.
        TypeError: `dtype` is not a float dtype.

    >>> bool(abs(truncated_normal([3])).max() < 2)
    True
    """
    kind = distributions.check_float_type(dtype)
    sizes = distributions.check_shape(shape)
    words = _take(sizes, seed, f"truncated_normal {kind}")
    return distributions.scale(
        philox.truncated_normal(words, sizes, kind), mean, stddev, kind
    )


@everyday_name("random.shuffle", difference=distributions.OWN_NUMBERS)
def shuffle(
    value: Numbers, seed: int | None = None, name: str | None = None
) -> jax.Array:
    """Returns the rows of an array in random order.

    Args:
        value: an array; its first axis is shuffled.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> sorted(shuffle([1, 2, 3]).tolist())
    [1, 2, 3]
    """
    array = distributions.to_array(value)
    rows = array.shape[:1]
    return distributions.shuffle_rows(array, _take(rows, seed, "shuffle"))


@everyday_name("random.categorical", difference=distributions.OWN_NUMBERS)
def categorical(
    logits: Numbers,
    num_samples: int,
    dtype: DTypeLike | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns random classes for each row of logits.

    Args:
        logits: a matrix of unnormalized log-probabilities of the classes, with one row
            for each distribution.
        num_samples: how many classes to draw for each row.
        dtype: the dtype of the result; by default int64, or int32 if JAX's 64-bit types
            are not enabled.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `logits` is not a matrix.

    >>> categorical([[0.0, -100.0], [-100.0, 0.0]], 3).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    array, count = distributions.check_logits(logits), operator.index(num_samples)
    words = _take((array.shape[0], count), seed, "categorical")
    return distributions.draw_classes(array, count, words, dtype)


@everyday_name("random.gamma", difference=distributions.OWN_NUMBERS)
def gamma(
    shape: Shape,
    alpha: Numbers,
    beta: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns random numbers from a gamma distribution for each pair of parameters.

    Args:
        shape: the shape of the numbers for one pair of parameters.
        alpha: the shape parameters.
        beta: the inverse scale parameters; 1 by default.
        dtype: a float dtype.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        TypeError: `dtype` is not a float dtype.

    >>> gamma([3], [0.5, 1.5]).shape
    (3, 2)
    """
    kind = distributions.check_float_type(dtype)
    a, b = distributions.join_parameters(alpha, beta, kind)
    sizes = (*distributions.check_shape(shape), *a.shape)
    return distributions.draw_gamma(
        _take(sizes, seed, f"gamma {kind}"), sizes, a, b, kind
    )


@everyday_name("random.poisson", difference=distributions.OWN_NUMBERS)
def poisson(
    shape: Shape,
    lam: Numbers,
    dtype: DTypeLike = jnp.float32,
    seed: int | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns random numbers from a Poisson distribution for each rate.

    Args:
        shape: the shape of the numbers for one rate.
        lam: the rates.
        dtype: the dtype of the result.
        seed: a seed for this operation; see `set_seed`.
        name: accepted for compatibility with TensorFlow and ignored.

    >>> poisson([3], [0.5, 1.5]).shape
    (3, 2)
    """
    rate = distributions.to_number(lam, np.dtype(np.float32))
    sizes = (*distributions.check_shape(shape), *rate.shape)
    words = _take(sizes, seed, "poisson")
    drawn = jax.random.poisson(random_state.key_of(words), rate, sizes)
    return drawn.astype(jax_types.usable_type(dtype))


def _take(sizes: tuple[int, ...], seed: int | None, kind: str) -> jax.Array:
    return random_state.take(math.prod(sizes), seed, kind)
