"""What a scope does to Flax NNX, and undoes when it is left."""

from __future__ import annotations

import functools
from typing import Any, final

import flax
from flax import nnx
from flax.nnx import tracers

from unisono._src.integrations import attribute_patches, replica_draws
from unisono._src.integrations.flax import training, variables

_OLDEST = (0, 12)
# The module has two names; older versions have the second only.
_graphs: Any = getattr(nnx, "graphlib", None) or nnx.graph


@functools.cache
def _patches() -> attribute_patches.Patches:
    kind: Any = type(nnx.Variable)
    is_fit = hasattr(kind, "_variable_meta_call")
    attribute_patches.check_version("Flax", flax, _OLDEST, is_fit)
    return attribute_patches.Patches(
        [
            (kind, "_variable_meta_call", variables.creating),
            (tracers, "current_jax_trace", variables.tracing),
            (_graphs, "unflatten", variables.rebuilding),
            (nnx.Optimizer, "update", training.updating),
            (nnx.RngStream, "__call__", replica_draws.drawing),
            (nnx.metrics.Welford, "__init__", training.refusing),
        ]
    )


@final
class _Scope:
    """Context manager; may be entered again and again, in several threads."""

    def __enter__(self) -> None:
        _patches().__enter__()

    def __exit__(self, *exc: Any) -> None:
        _patches().__exit__(*exc)


SCOPE = _Scope()
