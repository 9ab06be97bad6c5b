"""What a scope does to Flax NNX, and undoes when it is left."""

from __future__ import annotations

import functools
from typing import Any, final

import flax
from flax import nnx
from flax.nnx import tracers

from unisono._src.integrations import attribute_patches
from unisono._src.integrations.flax import training, variables

_OLDEST = (0, 12)
# The module has two names; older versions have the second only.
_graphs: Any = getattr(nnx, "graphlib", None) or nnx.graph


@functools.cache
def _patches() -> attribute_patches.Patches:
    version = tuple(int(x) for x in flax.__version__.split(".")[:2])
    kind: Any = type(nnx.Variable)
    if version < _OLDEST or not hasattr(kind, "_variable_meta_call"):
        oldest = ".".join(map(str, _OLDEST))
        raise RuntimeError(
            f"unisono works with Flax {oldest} or newer, but flax "
            f"{flax.__version__} is loaded. Install a newer one: pip install "
            f"'flax>={oldest}'."
        )
    return attribute_patches.Patches(
        [
            (kind, "_variable_meta_call", variables.creating),
            (tracers, "current_jax_trace", variables.tracing),
            (_graphs, "unflatten", variables.rebuilding),
            (nnx.Optimizer, "update", training.updating),
            (nnx.RngStream, "__call__", training.drawing),
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
