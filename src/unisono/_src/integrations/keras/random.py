"""Seeds of Keras' random layers: another stream on every replica, the same every run.

The state of a seed generator is mirrored and advances alike on all replicas; what a
replica draws from it depends on the replica's number as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import keras

from unisono._src.foundation import ambient


def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    """`SeedGenerator.next`, which gives each replica seeds of its own."""

    @functools.wraps(original)
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        seed = original(self, *args, **kwargs)
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.port is None:
            return seed
        if frame.port.replicas == 1:
            return seed
        return jax.random.fold_in(seed, frame.replica.replica_id_in_sync_group)

    return draw


def shared(original: Callable[[], Any]) -> Callable[[], Any]:
    """`global_seed_generator`, which outlives every scope and belongs to none."""

    @functools.wraps(original)
    def find() -> Any:
        scope = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            with ambient.pushed(strategy=None, placement=None):
                return original()
        finally:
            keras.distribution.set_distribution(scope)

    return find
