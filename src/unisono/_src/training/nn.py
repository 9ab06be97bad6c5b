"""Functions that scale losses by the global batch, not by the replica's."""

from __future__ import annotations

from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np

from unisono._src.foundation import ambient
from unisono._src.foundation.public_names import publish
from unisono._src.values.array_operators import StandsForArray, operand


def _replicas() -> int:
    """Returns the number of replicas of the strategy in scope; 1 without one."""
    frame = ambient.current()
    return 1 if frame.strategy is None else frame.strategy.num_replicas_in_sync


def compute_average_loss(
    per_example_loss: Any,
    sample_weight: Any = None,
    global_batch_size: SupportsIndex | StandsForArray | None = None,
) -> jax.Array:
    """Returns the sum of the losses divided by the global batch size.

    Summed over replicas this is the mean over all examples, also when replicas have
    different numbers of them.

    Args:
        per_example_loss: one loss per example.
        sample_weight: the weights of the examples.
        global_batch_size: the number of examples over all replicas; default this
            replica's number times the number of replicas.

    Raises:
        ValueError: `global_batch_size` is not an integer scalar, or not positive.
        RuntimeError: called across replicas without `global_batch_size`.

    >>> float(compute_average_loss([1.0, 2.0, 3.0], global_batch_size=6))
    1.0
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> losses = strategy.run(lambda: compute_average_loss([2.0, 4.0]))
    >>> float(strategy.reduce("SUM", losses, axis=None))
    3.0
    """
    losses = jnp.asarray(operand(per_example_loss))
    if sample_weight is not None:
        weight = jnp.asarray(operand(sample_weight), losses.dtype)
        extra = losses.ndim - weight.ndim
        losses = losses * weight.reshape(weight.shape + (1,) * max(extra, 0))
    if global_batch_size is None:
        frame = ambient.current()
        if frame.strategy is not None and frame.mode != ambient.REPLICA:
            raise RuntimeError(
                "You are calling `compute_average_loss` in cross replica context, "
                "while it was expected to be called in replica context; or pass "
                "global_batch_size."
            )
        count = losses.shape[0] if losses.ndim else 1
        global_batch_size = count * _replicas()
    size = _batch_size(global_batch_size)
    return jnp.sum(losses) / jnp.asarray(size, losses.dtype)


def _batch_size(size: Any) -> Any:
    """Returns a global batch size as a number, after checking it."""
    size = operand(size)
    is_integer = isinstance(size, (int, np.integer)) or (
        hasattr(size, "dtype") and jnp.issubdtype(size.dtype, jnp.integer)
    )
    if not is_integer or np.ndim(size) != 0:
        raise ValueError(
            f"global_batch_size must be an integer scalar, received {size!r} of type "
            f"{type(size).__name__}."
        )
    if not isinstance(size, jax.core.Tracer) and size < 1:
        raise ValueError(f"global_batch_size must be positive, received {size}.")
    return size


def scale_regularization_loss(regularization_loss: Any) -> jax.Array:
    """Returns the sum of the losses divided by the number of replicas.

    Every replica adds the same regularization; summed over replicas it must count
    once.

    Args:
        regularization_loss: one or more losses.

    Raises:
        RuntimeError: called in cross-replica context.

    >>> float(scale_regularization_loss([1.0, 2.0]))
    3.0
    >>> import unisono
    >>> strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    >>> losses = strategy.run(lambda: scale_regularization_loss(5.0))
    >>> float(strategy.reduce("SUM", losses, axis=None))
    5.0
    """
    frame = ambient.current()
    if frame.strategy is not None and frame.mode != ambient.REPLICA:
        raise RuntimeError(
            "You are calling `scale_regularization_loss` in cross replica context, "
            "while it was expected to be called in replica context."
        )
    return jnp.sum(jnp.asarray(operand(regularization_loss))) / _replicas()


publish("unisono.nn", compute_average_loss, scale_regularization_loss)
