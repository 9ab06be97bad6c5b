"""The patches of Flax NNX that hold while a scope is open."""

from __future__ import annotations

import functools
from typing import Any, final

import flax
from flax import nnx
from flax.nnx import tracers

from unisono._src.foundation import library_hooks
from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.flax import saving, server_updates, training, variables

# The first version of Flax whose variables can be patched.
_OLDEST = (0, 12)
# Newer versions of Flax have renamed the module.
_graphs: Any = getattr(nnx, "graphlib", None) or nnx.graph


@functools.cache
def _patches() -> attribute_patches.Patches:
    kind: Any = type(nnx.Variable)
    is_fit = hasattr(kind, "_variable_meta_call")
    attribute_patches.check_version("Flax", flax, _OLDEST, is_fit)
    return attribute_patches.Patches(
        [
            (kind, "_variable_meta_call", variables.wrap_creation),
            (tracers, "current_jax_trace", variables.wrap_current_trace),
            (_graphs, "unflatten", variables.wrap_unflatten),
            (nnx.Optimizer, "__init__", server_updates.wrap_init),
            (nnx.Optimizer, "update", training.wrap_update),
            (nnx.RngStream, "__call__", replica_draws.wrap_next_key),
            (nnx.metrics.Welford, "__init__", training.wrap_welford),
        ]
    )


@functools.cache
def _tape_patches() -> attribute_patches.Patches:
    return attribute_patches.Patches(
        [(nnx.Variable, "_raw_value", variables.wrap_raw_value)]
    )


@final
class _Scope:
    """A context manager that patches Flax; it may be entered again while it is open."""

    def __enter__(self) -> None:
        _patches().__enter__()

    def __exit__(self, *exc: object) -> None:
        _patches().__exit__(*exc)


@final
class _Tape:
    """A context manager that lets gradient tapes follow variables made outside."""

    def __enter__(self) -> None:
        _patches().__enter__()
        _tape_patches().__enter__()

    def __exit__(self, *exc: object) -> None:
        _tape_patches().__exit__(*exc)
        _patches().__exit__(*exc)


HOOKS = library_hooks.Hooks(_Scope(), _Tape(), saving.KEEPER)
