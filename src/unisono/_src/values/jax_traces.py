"""Blocks of code that belong to another trace of JAX than the running one.

JAX has no public way to do this, so this module uses its internals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax._src import core


def current() -> Any:
    """Returns the trace that the running code belongs to."""
    return core.trace_ctx.trace


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """Computes at once what is in the block, also while a program is being traced."""
    # `eval_context` leaves the trace but not the mesh of the `shard_map` around it.
    nowhere = jax.sharding.AbstractMesh((), ())
    with core.eval_context(), jax.sharding.use_abstract_mesh(nowhere):
        yield


def enter(trace: Any) -> Any:
    """Returns a context manager whose block belongs to `trace`.

    Args:
        trace: the running trace, or one around it.
    """
    return core.set_current_trace(trace)
