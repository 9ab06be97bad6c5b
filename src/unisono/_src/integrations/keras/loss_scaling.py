"""Losses that Keras computes in a replica are scaled as Keras scales on TensorFlow.

A replica's mean loss is that of its own part of the batch, and optimizers sum the
gradients of all replicas. So Keras divides losses, and what is added to them, by the
number of replicas, and multiplies what it logs. It does so on TensorFlow alone; these
are the same functions for the strategies of unisono.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import jax

from unisono._src.foundation import ambient
from unisono._src.integrations.keras.internals import KerasModel


def _count_replicas() -> int:
    """Return among how many replicas the code runs; 1 outside replicas."""
    frame = ambient.current()
    if frame.strategy is None or frame.mode != ambient.REPLICA:
        return 1
    return int(frame.strategy.num_replicas_in_sync)


def wrap_scale(original: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a `scale_loss_for_distribution` that knows the strategies of unisono."""

    @functools.wraps(original)
    def scale(value: jax.Array) -> jax.Array:
        count = _count_replicas()
        return original(value) if count == 1 else value * (1.0 / count)

    return scale


def wrap_unscale(original: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return an `unscale_loss_for_distribution` that undoes `wrap_scale`."""

    @functools.wraps(original)
    def unscale(value: jax.Array) -> jax.Array:
        count = _count_replicas()
        return original(value) if count == 1 else value * count

    return unscale


def wrap_reduce(original: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a `reduce_values` whose loss of no examples is zero in a replica.

    The last batch may leave some replicas without any. Keras returns such losses as
    they are where it can see their number, which it cannot in a graph of TensorFlow.
    """
    signature = inspect.signature(original)

    @functools.wraps(original)
    def reduce(values: jax.Array, *args: object, **kwargs: object) -> jax.Array:
        found = original(values, *args, **kwargs)
        if found.shape != (0,) or _count_replicas() == 1:
            return found
        given = signature.bind(values, *args, **kwargs).arguments
        is_kept = given.get("reduction", "") in (None, "none")
        return found if is_kept else found.sum()

    return reduce


def wrap_additional(original: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return an `_aggregate_additional_loss` that scales what is added to a loss."""

    @functools.wraps(original)
    def aggregate(self: KerasModel, loss: jax.Array) -> jax.Array:
        found, count = original(self, loss), _count_replicas()
        return found if count == 1 else found * (1.0 / count)

    return aggregate
