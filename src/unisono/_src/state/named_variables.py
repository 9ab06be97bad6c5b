"""`get_variable`: TensorFlow 1's variables of a name, a shape and an initializer."""

from __future__ import annotations

import functools
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from unisono._src.foundation import jax_types
from unisono._src.foundation.options import VariableAggregation, VariableSynchronization
from unisono._src.state.variables import Variable


def get_variable(
    name: str,
    shape: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    initializer: Any = None,
    trainable: bool | None = None,
    partitioner: object = None,
    constraint: Callable[[Any], Any] | None = None,
    synchronization: VariableSynchronization = VariableSynchronization.AUTO,
    aggregation: VariableAggregation | None = VariableAggregation.NONE,
) -> Variable:
    """Creates a variable, as TensorFlow 1's function of this name does.

    Args:
        name: the name of the variable.
        shape: the shape; not needed if `initializer` is an array.
        dtype: the element type; the default is float32.
        initializer: an array, or a function of shape and type that returns one; the
            default is Glorot's uniform distribution, seeded by the name.
        trainable: whether optimizers should update it.
        partitioner: ignored with a warning; variables are not split.
        constraint: a function that optimizers apply after an update.
        synchronization: when the copies are combined.
        aggregation: how values that replicas assign are combined.

    Raises:
        ValueError: there is no shape, and `initializer` is not an array.

    >>> get_variable("w", [2], initializer=jnp.ones).numpy().tolist()
    [1.0, 1.0]
    """
    if partitioner is not None:
        warnings.warn(
            "Partitioned variables are not supported under a strategy; the partitioner "
            f"of variable '{name}' is ignored.",
            stacklevel=2,
        )
    if initializer is None or callable(initializer):
        if shape is None:
            raise ValueError(
                f"Variable '{name}' needs a shape unless its initializer is an array; "
                f"write get_variable('{name}', shape=[...])."
            )
        wanted = tuple(shape), dtype or jnp.float32
        make = initializer or functools.partial(_glorot_uniform, name)
        initializer = make(*wanted)
    return Variable(
        initializer,
        trainable,
        name=name,
        dtype=dtype,
        constraint=constraint,
        synchronization=synchronization,
        aggregation=aggregation,
    )


def _glorot_uniform(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Returns numbers uniform in ±sqrt(6 / (fan in + fan out)), seeded by `name`."""
    # The axes before the last two are those of a convolution's window.
    receptive = int(np.prod(shape[:-2]))
    fan_in = receptive * (shape[-2] if len(shape) > 1 else (shape or (1,))[-1])
    fan_out = receptive * (shape or (1,))[-1]
    limit = (6.0 / max(fan_in + fan_out, 1)) ** 0.5
    # By the name, so that all workers make the same numbers. Not Python's `hash`, which
    # differs between processes.
    key = jax.random.key(zlib.crc32(name.encode()))
    return jax.random.uniform(key, shape, jax_types.usable_type(dtype), -limit, limit)
