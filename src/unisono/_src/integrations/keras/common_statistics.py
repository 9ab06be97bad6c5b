"""`BatchNormalization(synchronized=True)`: statistics of the parts of all replicas.

Keras has the argument on TensorFlow alone. In `fit` the batch is whole anyway; where a
replica has a part of it, sums are taken over all replicas.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from unisono._src.integrations import common_moments
from unisono._src.strategies import current


def wrap_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of `BatchNormalization` that takes ``synchronized``."""

    @functools.wraps(original)
    def init(self: Any, *args: object, **kwargs: object) -> None:
        is_common = bool(kwargs.pop("synchronized", False))
        original(self, *args, **kwargs)
        self.synchronized = is_common or self.synchronized

    # Keras asks for the names of the arguments in a way that `wraps` does not answer.
    vars(init)["__signature__"] = inspect.signature(original)
    return init


def wrap_moments(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `moments` of Keras on JAX that takes ``synchronized``."""

    @functools.wraps(original)
    def moments(
        x: jax.Array,
        axes: int | Sequence[int],
        keepdims: bool = False,
        synchronized: bool = False,
    ) -> tuple[jax.Array, jax.Array]:
        context = current.get_replica_context() if synchronized else None
        if context is None or context.num_replicas_in_sync == 1:
            found: tuple[jax.Array, jax.Array] = original(x, axes, keepdims)
            return found
        mean, variance = common_moments.moments(context, x, axes)
        if not keepdims:
            mean, variance = jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
        return mean.astype(x.dtype), variance.astype(x.dtype)

    return moments
