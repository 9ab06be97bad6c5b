"""What scopes, gradient tapes and checkpoints do with Flax: the hooks of the library.

Flax' classes are replaced for the whole process. A replacement asks the frame of its
thread whether to act, so that a thread with neither a scope nor a tape meets Flax as it
is.
"""

from __future__ import annotations

import functools
from typing import final

from flax import nnx

from unisono._src.foundation import library_hooks
from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.flax import (
    internals,
    saving,
    training,
    variables,
)


@functools.cache
def _of_scopes() -> attribute_patches.Patches:
    """Return what scopes need: new variables, optimizers, random streams, metrics."""
    internals.check_version()
    return attribute_patches.Patches(
        [
            (
                internals.VARIABLE_CLASS,
                "_variable_meta_call",
                variables.wrap_creation,
            ),
            (internals.graphs, "unflatten", variables.wrap_unflatten),
            (nnx.Optimizer, "__init__", training.wrap_init),
            (nnx.Optimizer, "update", training.wrap_update),
            (nnx.RngStream, "__call__", replica_draws.wrap_next_key),
            (nnx.metrics.Welford, "__init__", training.wrap_welford),
        ]
    )


@functools.cache
def _of_both() -> attribute_patches.Patches:
    """Return what scopes and tapes need: which trace may change a variable."""
    internals.check_version()
    return attribute_patches.Patches(
        [(internals.tracers, "current_jax_trace", variables.wrap_current_trace)]
    )


@functools.cache
def _of_tapes() -> attribute_patches.Patches:
    """Return what tapes need: how variables made outside are read and written."""
    return attribute_patches.Patches(
        [(nnx.Variable, "_raw_value", variables.wrap_raw_value)]
    )


@final
class _FlaxScope:
    """A context manager that patches Flax; it may be entered again while it is open."""

    def __enter__(self) -> None:
        # First, because this may raise: a Flax to come may lack a name.
        scopes = _of_scopes()
        _of_both().__enter__()
        scopes.__enter__()

    def __exit__(self, *exc: object) -> None:
        _of_scopes().__exit__(*exc)
        _of_both().__exit__(*exc)


@final
class _FlaxTape:
    """A context manager that lets gradient tapes follow variables made outside."""

    def __enter__(self) -> None:
        _of_both().__enter__()
        _of_tapes().__enter__()

    def __exit__(self, *exc: object) -> None:
        _of_tapes().__exit__(*exc)
        _of_both().__exit__(*exc)


HOOKS = library_hooks.LibraryHooks(_FlaxScope(), _FlaxTape(), saving.STATE_FINDER)
