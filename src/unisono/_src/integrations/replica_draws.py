"""Random numbers of a library: another stream on every replica, the same every run.

The state of a generator is mirrored and advances alike on all replicas; what a replica
draws from it depends on the replica's number as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from unisono._src.foundation import ambient


def drawing(original: Callable[..., Any]) -> Callable[..., Any]:
    """A method that gives the next key, and now gives each replica keys of its own."""

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
