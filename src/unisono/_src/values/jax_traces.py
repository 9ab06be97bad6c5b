"""JAX's traces, to see and to leave them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jax._src import core


def current() -> Any:
    """The trace that the running code belongs to."""
    return core.trace_ctx.trace


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """A block that computes at once, also while a program is being traced."""
    nowhere = jax.sharding.AbstractMesh((), ())
    with core.eval_context(), jax.sharding.use_abstract_mesh(nowhere):
        yield


def within(trace: Any) -> Any:
    """Context manager: a block that belongs to a trace around the running one."""
    return core.set_current_trace(trace)
