"""TensorFlow's ``tf.random.stateless_…`` functions, whose numbers follow from a seed.

The same seed gives the same numbers everywhere, on any device and in any replica.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from unisono._src.foundation import ambient, errors, host_types, jax_types
from unisono._src.ops import distributions, random_state, tensors
from unisono._src.ops.distributions import Numbers, Shape
from unisono._src.ops.host.shared_bodies import everyday_name
from unisono._src.training import philox
from unisono._src.values.array_operators import operand

__all__ = [
    "fold_in",
    "split",
    "stateless_categorical",
    "stateless_gamma",
    "stateless_normal",
    "stateless_poisson",
    "stateless_truncated_normal",
    "stateless_uniform",
]

Seed: TypeAlias = Sequence[int] | np.ndarray | jax.Array


@everyday_name("random.stateless_uniform")
def stateless_uniform(
    shape: Shape,
    seed: Seed,
    minval: Numbers | None = 0,
    maxval: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
    alg: str | int = "auto_select",
) -> jax.Array:
    """Returns uniform random numbers from a range, which a seed determines.

    The random bits are those of TensorFlow's Philox algorithm.

    Args:
        shape: the shape of the result.
        seed: two integers.
        minval: the lower end of the range. For integers, `minval` and `maxval` can both
            be None, which means all numbers of the dtype.
        maxval: the upper end of the range; 1 by default for floats.
        dtype: a float dtype, `int32` or `int64`; or `uint32` or `uint64` if both ends
            are None.
        name: accepted for compatibility with TensorFlow and ignored.
        alg: ``"philox"`` or ``"auto_select"``, which means the same here.

    Raises:
        InvalidArgumentError: the seed does not have two integers, or `minval` is not
            below `maxval` for integers.
        ValueError: `dtype` is another dtype, or one end of a range of integers is
            missing.

    >>> stateless_uniform([3], seed=[1, 2]).tolist()
    [0.844..., 0.192..., 0.996...]
    """
    kind = distributions.check_type(
        dtype, (*distributions.FLOATS, *distributions.INTEGERS, "uint32", "uint64")
    )
    sizes = distributions.check_shape(shape)
    if kind.kind in "iu" and (minval is None) != (maxval is None):
        raise ValueError(
            f"For integer `dtype` argument {kind}, argument `minval` and `maxval` must "
            f"be both None or not None. Got `minval`={minval} and `maxval`={maxval}."
        )
    words = _seed_words(seed, alg)
    if kind.kind in "iu" and minval is None:
        return philox.full_integers(words, sizes, kind)
    return distributions.draw_uniform(lambda: words, sizes, minval, maxval, kind)


@everyday_name("random.stateless_normal")
def stateless_normal(
    shape: Shape,
    seed: Seed,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
    alg: str | int = "auto_select",
) -> jax.Array:
    """Returns normal random numbers that a seed determines.

    Args:
        shape: the shape of the result.
        seed: two integers.
        mean: the mean.
        stddev: the standard deviation.
        dtype: a float dtype.
        name: accepted for compatibility with TensorFlow and ignored.
        alg: ``"philox"`` or ``"auto_select"``, which means the same here.

    Raises:
        InvalidArgumentError: the seed does not have two integers.
        TypeError: `dtype` is not a float dtype.

    >>> stateless_normal([3], seed=[1, 2]).tolist()
    [0.544..., 0.207..., 0.073...]
    """
    kind = distributions.check_float_type(dtype)
    sizes = distributions.check_shape(shape)
    drawn = philox.normal(_seed_words(seed, alg), sizes, kind)
    return distributions.scale(drawn, mean, stddev, kind)


@everyday_name("random.stateless_truncated_normal")
def stateless_truncated_normal(
    shape: Shape,
    seed: Seed,
    mean: Numbers = 0.0,
    stddev: Numbers = 1.0,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
    alg: str | int = "auto_select",
) -> jax.Array:
    """Returns truncated normal random numbers that a seed determines.

    All are within two standard deviations of the mean.

    Args:
        shape: the shape of the result.
        seed: two integers.
        mean: the mean.
        stddev: the standard deviation of the distribution before truncation.
        dtype: a float dtype.
        name: accepted for compatibility with TensorFlow and ignored.
        alg: ``"philox"`` or ``"auto_select"``, which means the same here.

    Raises:
        InvalidArgumentError: the seed does not have two integers.
        TypeError: `dtype` is not a float dtype.

    >>> stateless_truncated_normal([3], seed=[1, 2]).tolist()
    [0.544..., 0.207..., 0.073...]
    """
    kind = distributions.check_float_type(dtype)
    sizes = distributions.check_shape(shape)
    drawn = philox.truncated_normal(_seed_words(seed, alg), sizes, kind)
    return distributions.scale(drawn, mean, stddev, kind)


@everyday_name("random.stateless_categorical", difference=distributions.OWN_NUMBERS)
def stateless_categorical(
    logits: Numbers,
    num_samples: int,
    seed: Seed,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> jax.Array:
    """Returns random classes for each row of logits, which a seed determines.

    Args:
        logits: a matrix of unnormalized log-probabilities of the classes, with one row
            for each distribution.
        num_samples: how many classes to draw for each row.
        seed: two integers.
        dtype: the dtype of the result; see `categorical`.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `logits` is not a matrix, or the seed does not have two
            integers.

    >>> stateless_categorical([[0.0, -100.0]], 3, seed=[1, 2]).tolist()
    [[0, 0, 0]]
    """
    array, count = distributions.check_logits(logits), operator.index(num_samples)
    return distributions.draw_classes(array, count, _seed_words(seed), dtype)


@everyday_name("random.stateless_gamma", difference=distributions.OWN_NUMBERS)
def stateless_gamma(
    shape: Shape,
    seed: Seed,
    alpha: Numbers,
    beta: Numbers | None = None,
    dtype: DTypeLike = jnp.float32,
    name: str | None = None,
) -> jax.Array:
    """Returns random numbers from gamma distributions, which a seed determines.

    Args:
        shape: the shape of the result, which must end with that of the parameters.
        seed: two integers.
        alpha: the shape parameters.
        beta: the inverse scale parameters; 1 by default.
        dtype: a float dtype.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `shape` or the shape of the seed does not fit.
        TypeError: `dtype` is not a float dtype.

    >>> drawn = stateless_gamma([3, 2], seed=[1, 2], alpha=[0.5, 1.5])
    >>> half = stateless_gamma([3, 2], seed=[1, 2], alpha=[0.5, 1.5], beta=2.0)
    >>> bool(jnp.allclose(drawn, 2 * half))
    True
    """
    kind = distributions.check_float_type(dtype)
    sizes = distributions.check_shape(shape)
    a, b = distributions.join_parameters(alpha, beta, kind)
    distributions.check_ending(sizes, a.shape)
    return distributions.draw_gamma(_seed_words(seed), sizes, a, b, kind)


@everyday_name("random.stateless_poisson", difference=distributions.OWN_NUMBERS)
def stateless_poisson(
    shape: Shape,
    seed: Seed,
    lam: Numbers,
    dtype: DTypeLike = jnp.int32,
    name: str | None = None,
) -> jax.Array:
    """Returns random numbers from Poisson distributions, which a seed determines.

    Args:
        shape: the shape of the result, which must end with that of the rates.
        seed: two integers.
        lam: the rates.
        dtype: the dtype of the result.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: `shape` or the shape of the seed does not fit.

    >>> stateless_poisson([3, 2], seed=[1, 2], lam=[0.5, 1.5]).shape
    (3, 2)
    """
    rate = distributions.to_number(lam, np.dtype(np.float32))
    sizes = distributions.check_shape(shape)
    distributions.check_ending(sizes, rate.shape)
    drawn = jax.random.poisson(random_state.key_of(_seed_words(seed)), rate, sizes)
    return drawn.astype(jax_types.usable_type(dtype))


@everyday_name(
    "random.experimental.stateless_shuffle", difference=distributions.OWN_NUMBERS
)
def stateless_shuffle(
    value: Numbers,
    seed: Seed,
    alg: str | int = "auto_select",
    name: str | None = None,
) -> jax.Array:
    """Returns the rows of an array in random order, which a seed determines.

    Args:
        value: an array; its first axis is shuffled.
        seed: two integers.
        alg: ``"philox"`` or ``"auto_select"``, which means the same here.
        name: accepted for compatibility with TensorFlow and ignored.

    Raises:
        InvalidArgumentError: the seed does not have two integers.

    >>> sorted(stateless_shuffle([1, 2, 3], seed=[1, 2]).tolist())
    [1, 2, 3]
    """
    return distributions.shuffle_rows(
        distributions.to_array(value), _seed_words(seed, alg)
    )


@everyday_name("random.split", "random.experimental.stateless_split")
def split(seed: Seed, num: int = 2, alg: str | int = "auto_select") -> jax.Array:
    """Returns several seeds that are derived from one, as the rows of a matrix.

    They have the dtype of `seed`. As in TensorFlow, a 64-bit seed, such as an element
    in a function of a dataset, gives other results than a 32-bit seed.

    Args:
        seed: two integers.
        num: the number of seeds.
        alg: ``"philox"`` or ``"auto_select"``, which means the same here.

    Raises:
        InvalidArgumentError: the seed does not have two integers.

    >>> split([1, 2]).tolist()
    [[1105988140, 1738052849], [-335576002, 370444179]]
    """
    count = operator.index(num)
    kind = _type_of(seed)
    return stateless_uniform([count, 2], seed, None, None, kind, alg=alg)


@everyday_name("random.fold_in", "random.experimental.stateless_fold_in")
def fold_in(seed: Seed, data: ArrayLike, alg: str | int = "auto_select") -> jax.Array:
    """Returns a seed that is derived from a seed and a number, such as the step.

    Args:
        seed: two integers.
        data: an integer.
        alg: ``"philox"`` or ``"auto_select"``, which means the same here.

    Raises:
        InvalidArgumentError: the seed does not have two integers.

    >>> fold_in([1, 2], 3).tolist()
    [1105988140, 3]
    """
    kind = _type_of(data)
    drawn = stateless_uniform([], seed, None, None, kind, alg=alg)
    return jnp.stack([drawn, jnp.asarray(operand(data), kind)])


def _type_of(numbers: object) -> np.dtype:
    """Returns the type that TensorFlow's tensor of integers has."""
    given = operand(numbers)
    if ambient.is_in_dataset() and not isinstance(given, jax.Array):
        # A list of elements is of their type, which may have 64 bits.
        return jax.dtypes.canonicalize_dtype(host_types.to_array(given).dtype)
    return tensors.tensor(given).dtype


def _seed_words(seed: object, alg: object = "auto_select") -> jax.Array:
    """Returns the words of a seed."""
    if alg not in ("philox", "auto_select", 1, 3):
        told = getattr(alg, "value", None)
        if told not in (1, 3):
            raise ValueError(
                f"Argument `alg` got unsupported value {alg}. Supported values are "
                "'philox' and 'auto_select'."
            )
    return random_state.words_of_stateless_seed(check_seed(seed))


def check_seed(seed: object) -> jax.Array | np.ndarray:
    """Returns the two integers of a stateless operation's seed.

    Raises:
        InvalidArgumentError: it is something else.
    """
    # A list may have numbers that a program computes, such as the step.
    given = tensors.tensor(seed) if tensors.has_arrays(seed) else operand(seed)
    given = given if isinstance(given, jax.Array) else np.asarray(given)
    if given.shape != (2,):
        raise errors.InvalidArgumentError(
            f"seed must have shape [2], not {list(given.shape)}"
        )
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise errors.InvalidArgumentError(
            f"seed must be two integers, received {given.dtype} numbers."
        )
    return given
