"""JAX's traces, as integrations need to see and leave them."""

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
