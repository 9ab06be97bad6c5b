"""The traces of JAX that running code belongs to: looking at them, and leaving them.

JAX has no public way to do this, so this module uses its internals.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np

from unisono._src.foundation import jax_internals

_JVP, _Linearize = jax_internals.JVPTrace, jax_internals.LinearizeTrace
_context = jax_internals.trace_context


def current() -> jax.core.Trace:
    """Returns the trace that the running code belongs to."""
    return _context.trace


# Returns the trace that a tracer belongs to. This is no function of ours: tapes ask at
# every operation.
trace_of: Callable[[object], Any] = jax_internals.trace_of


def base_trace(trace: jax.core.Trace | None = None) -> jax.core.Trace:
    """Returns the trace that is below the gradients of `trace`, or of the running code.

    Args:
        trace: a trace; None for that of the running code.
    """
    found = _context.trace if trace is None else trace
    while isinstance(found, (_JVP, _Linearize)):
        found = found.parent_trace
    return found


def reading_trace() -> jax.core.Trace:
    """Returns the trace whose cached program would keep a value that is read now.

    Traces of gradients and of `jax.vmap` are skipped: JAX caches no program of them.
    """
    found: jax.core.Trace = _context.trace
    transparent = (_JVP, _Linearize, jax_internals.BatchTrace)
    while isinstance(found, transparent):
        found = found.parent_trace
    return found


def is_for_jit(trace: Any) -> bool:
    """Whether `trace` makes the program of a `jax.jit`."""
    return trace.frame.debug_info.traced_for in ("jit", "pjit", "pmap")


# Returns whether JAX is neither making a program nor differentiating at this moment. It
# is JAX's own function: a wrapper would cost a call at every eager read and write.
is_clean = jax_internals.is_top_level


def forget_traced_functions() -> None:
    """Makes JAX forget the traces of all its functions; compiled programs stay.

    JAX remembers, without any limit, what every `jax.jit` does for each shape. Those
    inside a program, such as `jnp.where`, outlive the program. It traces a function
    again if it is asked for it again.
    """
    jax_internals.trace_to_jaxpr.cache_clear()


def concrete_value(x: object) -> jax.Array | np.ndarray | None:
    """Returns the array behind a tracer of gradients, if it is known; else None."""
    found: jax.Array | np.ndarray | None = jax_internals.to_concrete_value(x)
    return found


def is_eager(trace: jax.core.Trace) -> bool:
    """Whether `trace` computes at once."""
    return isinstance(trace, jax_internals.EvalTrace)


@contextlib.contextmanager
def compute_at_once() -> Iterator[None]:
    """Computes at once what is in the block, also while a program is being traced."""
    # `eval_context` leaves the trace but not the mesh of the `shard_map` around it.
    nowhere = jax.sharding.AbstractMesh((), ())
    with jax_internals.eval_context(), jax.sharding.use_abstract_mesh(nowhere):
        yield


def enter(trace: jax.core.Trace) -> AbstractContextManager[None]:
    """Returns a context manager whose block belongs to `trace`.

    Args:
        trace: the running trace, or one around it.
    """
    return jax_internals.set_current_trace(trace)
