"""First values of variables: TensorFlow's initializers outside Keras.

Keras takes them too, because they are functions of a shape and a type.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import whole_numbers
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.ops import kinds, making, random_draws, stateless_draws
from unisono._src.ops.distributions import Shape
from unisono._src.ops.kinds import ElementType

__all__ = [
    "constant_initializer",
    "ones_initializer",
    "random_normal_initializer",
    "random_uniform_initializer",
    "zeros_initializer",
]

_VALUES = (int, float, complex, str, bytes, np.generic, np.ndarray, list, tuple)
# What TensorFlow gives an initializer that makes one part of a variable.
_PARTS = ("partition_shape", "partition_offset")


class Initializer(abc.ABC):
    """Creates arrays with a given shape and dtype.

    Attributes:
        support_partition: whether it can create a part of a larger array.
    """

    support_partition = True

    def __call__(
        self, shape: Shape, dtype: ElementType | None = None, **kwargs: Shape
    ) -> jax.Array:
        """Returns an array with a given shape and dtype.

        Args:
            shape: the shape.
            dtype: the dtype; the default is float32, or that of a constant.
            **kwargs: `partition_shape` and `partition_offset`, if the array is a part
                of a larger one with the shape `shape`.

        Raises:
            TypeError: another keyword argument is given.
            ValueError: the initializer does not support the dtype, or cannot create a
                part of a larger array.
        """
        for name in kwargs:
            if name not in _PARTS:
                raise TypeError(
                    f"Keyword argument should be one of {list(_PARTS)}. Received: "
                    f"{name}"
                )
        if kwargs and not self.support_partition:
            raise ValueError(
                f"{type(self).__name__} was asked for a part of a larger array. Pass "
                "support_partition=True if every part has the same value."
            )
        return self._make(kwargs.get("partition_shape", shape), dtype)

    @abc.abstractmethod
    def _make(self, shape: Shape, dtype: ElementType | None) -> jax.Array:
        """Returns the array."""

    @abc.abstractmethod
    def get_config(self) -> dict[str, object]:
        """Returns the arguments from which `from_config` makes an equal object."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Returns an initializer with the arguments that `get_config` returns."""
        return cls(**{name: x for name, x in config.items() if name != "dtype"})


@everyday_name("zeros_initializer")
@final
class zeros_initializer(Initializer):
    """Creates arrays of zeros.

    >>> import unisono
    >>> unisono.zeros_initializer()([2]).tolist()
    [0.0, 0.0]
    """

    def _make(self, shape: Shape, dtype: ElementType | None) -> jax.Array:
        return making.zeros(shape, "float32" if dtype is None else dtype)

    def get_config(self) -> dict[str, object]:
        """Returns an empty dictionary, because there are no arguments."""
        return {}


@everyday_name("ones_initializer")
@final
class ones_initializer(Initializer):
    """Creates arrays of ones.

    >>> import unisono
    >>> unisono.ones_initializer()([2], unisono.int32).tolist()
    [1, 1]
    """

    def _make(self, shape: Shape, dtype: ElementType | None) -> jax.Array:
        return making.ones(shape, "float32" if dtype is None else dtype)

    def get_config(self) -> dict[str, object]:
        """Returns an empty dictionary, because there are no arguments."""
        return {}


@everyday_name("constant_initializer")
@final
class constant_initializer(Initializer):
    """Creates arrays filled with one number, or with the numbers of a list.

    Args:
        value: a number, a nested list of numbers, or a NumPy array.
        support_partition: whether it can create a part of a larger array.

    Raises:
        TypeError: `value` has another type.

    >>> import unisono
    >>> unisono.constant_initializer([1, 2, 3, 4])([2, 2]).tolist()
    [[1, 2], [3, 4]]
    """

    def __init__(
        self,
        value: float | bool | Sequence[Any] | np.ndarray = 0,
        support_partition: bool = False,
    ) -> None:
        if not isinstance(value, _VALUES):
            raise TypeError(
                f"Invalid type for initial value: {type(value).__name__}. Expected "
                "Python scalar, list or tuple of values, or numpy.ndarray."
            )
        self.value = value
        self.support_partition = support_partition

    def _make(self, shape: Shape, dtype: ElementType | None) -> jax.Array:
        return making.constant(self.value, dtype, shape)

    def get_config(self) -> dict[str, object]:
        """Returns the argument `value`."""
        return {"value": self.value}


@everyday_name("random_normal_initializer")
@final
class random_normal_initializer(Initializer):
    """Creates arrays of normally distributed numbers.

    Args:
        mean: the mean.
        stddev: the standard deviation.
        seed: with a seed, all calls with the same shape return the same numbers, which
            are those of TensorFlow. Without one, the numbers depend on
            `random.set_seed`.

    >>> import unisono
    >>> unisono.random_normal_initializer(seed=3)([2]).tolist()
    [-0.0335..., 0.0838...]
    """

    def __init__(
        self, mean: float = 0.0, stddev: float = 0.05, seed: int | None = None
    ) -> None:
        self.mean, self.stddev, self.seed = mean, stddev, _check_seed(seed)

    def _make(self, shape: Shape, dtype: ElementType | None) -> jax.Array:
        kind = _float_type(dtype)
        if self.seed is None:
            return random_draws.normal(shape, self.mean, self.stddev, kind)
        seeds = [self.seed, 0]
        return stateless_draws.stateless_normal(
            shape, seeds, self.mean, self.stddev, kind
        )

    def get_config(self) -> dict[str, object]:
        """Returns the arguments."""
        return {"mean": self.mean, "stddev": self.stddev, "seed": self.seed}


@everyday_name("random_uniform_initializer")
@final
class random_uniform_initializer(Initializer):
    """Creates arrays of uniformly distributed numbers.

    Args:
        minval: the lower bound.
        maxval: the upper bound; None means 1 for floats.
        seed: as for `random_normal_initializer`.

    >>> import unisono
    >>> unisono.random_uniform_initializer(1, 5, seed=3)([2], unisono.int32).tolist()
    [1, 4]
    """

    def __init__(
        self,
        minval: float = -0.05,
        maxval: float | None = 0.05,
        seed: int | None = None,
    ) -> None:
        self.minval, self.maxval, self.seed = minval, maxval, _check_seed(seed)

    def _make(self, shape: Shape, dtype: ElementType | None) -> jax.Array:
        kind = jnp.float32 if dtype is None else dtype
        if self.seed is None:
            return random_draws.uniform(shape, self.minval, self.maxval, kind)
        seeds = [self.seed, 0]
        return stateless_draws.stateless_uniform(
            shape, seeds, self.minval, self.maxval, kind
        )

    def get_config(self) -> dict[str, object]:
        """Returns the arguments."""
        return {"minval": self.minval, "maxval": self.maxval, "seed": self.seed}


def _check_seed(seed: int | None) -> int | None:
    return None if seed is None else whole_numbers.integer(seed, "seed")


def _float_type(dtype: ElementType | None) -> np.dtype:
    """Returns a type of floats, float32 by default."""
    found = np.dtype(np.float32 if dtype is None else dtype)
    if kinds.kind(found) != "f":
        raise ValueError(
            f"Argument `dtype` is expected to be floating point. Received: {found}."
        )
    return found
