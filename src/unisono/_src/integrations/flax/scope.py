"""What scopes, gradient tapes and checkpoints do with Flax: the hooks of the library.

Flax' classes are replaced for the whole process. A replacement asks the frame of its
thread whether to act, so that a thread with neither a scope nor a tape meets Flax as it
is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import final

from flax import nnx

from unisono._src.foundation import library_hooks
from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.flax import internals, statistics, training, variables


@functools.cache
def _of_scopes() -> attribute_patches.Patches:
    """Return what scopes need: new variables, optimizers, randomness, statistics."""
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
            (internals.normalization, "_compute_stats", statistics.wrap_compute_stats),
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
class _FlaxPatches:
    """A context manager that patches Flax; it may be entered again while it is open.

    Args:
        make: returns the patches that it makes beside those of `_of_both`.
    """

    def __init__(self, make: Callable[[], attribute_patches.Patches]) -> None:
        self._make = make

    def __enter__(self) -> None:
        # First, because this may raise: a Flax to come may lack a name.
        patches = self._make()
        _of_both().__enter__()
        patches.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._make().__exit__(*exc)
        _of_both().__exit__(*exc)


HOOKS = library_hooks.LibraryHooks(
    _FlaxPatches(_of_scopes),
    _FlaxPatches(_of_tapes),
    variables.STATE_FINDER,
    internals.thread_locals(),
)
