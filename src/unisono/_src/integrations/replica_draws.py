"""Random numbers of a library that differ between replicas and repeat in every run.

The state of a generator is mirrored and advances alike on all replicas. The key that a
replica draws from it depends on the index of the replica as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from unisono._src.foundation import ambient


def wrap_next_key(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of a generator's method that returns the next key.

    In replica context with several replicas each replica gets a key of its own.
    """

    @functools.wraps(original)
    def draw(self: Any, *args: Any, **kwargs: Any) -> Any:
        key = original(self, *args, **kwargs)
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.port is None:
            return key
        if frame.port.replicas == 1:
            return key
        return jax.random.fold_in(key, frame.replica.replica_id_in_sync_group)

    return draw
