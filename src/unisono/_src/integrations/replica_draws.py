"""Random numbers of a library that differ between replicas and repeat in every run.

The state of a generator is mirrored and advances alike on all replicas. The key that a
replica draws from it depends on the index of the replica as well.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import jax

from unisono._src.foundation import ambient
from unisono._src.state import frames, storage


def wrap_next_key(original: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a replacement of a generator's method that returns the next key.

    In replica context with several replicas each replica gets a key of its own.
    """

    @functools.wraps(original)
    def draw(self: object, *args: object, **kwargs: object) -> jax.Array:
        with _hold_state(self):
            key = original(self, *args, **kwargs)
        frame = ambient.current()
        if frame.mode != ambient.REPLICA or frame.port is None:
            return key
        if frame.port.replicas == 1:
            return key
        return jax.random.fold_in(key, ambient.replica().replica_id_in_sync_group)

    return draw


@contextlib.contextmanager
def _hold_state(generator: object) -> Iterator[None]:
    """Let no other thread read a generator's state before a block has moved it on."""
    # `count` is Flax's, `state` is Keras'.
    state = getattr(generator, "count", getattr(generator, "state", None))
    kept = getattr(state, "_unisono_variable", None)
    # Other workers, which meet in an assignment, are not waited for with the lock.
    if kept is None or kept.state_cell.is_spread:
        yield
        return
    with storage.LOCK:
        frames.frame().begin_change(kept.state_cell)
        yield
