"""All that the integration needs of Flax NNX's private names and members.

`NAMES` lists the names, with the reason for each; they load one by one, when they are
first used. `MEMBERS` lists the members of variables. All are those of Flax 0.12.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import flax
from flax import nnx

from unisono._src.integrations import attribute_patches

# The name in this module, the modules that may have it, from the newest version on, and
# what it is needed for.
NAMES: dict[str, tuple[tuple[str, ...], str]] = {
    "tracers": (
        ("flax.nnx.tracers",),
        "`current_jax_trace` says which trace may change a variable",
    ),
    "graphs": (
        ("flax.nnx.graphlib", "flax.nnx.graph"),
        "`unflatten` fills objects with values; `GRAPH_CONTEXT` has what a "
        "transformation such as `nnx.grad` is doing",
    ),
    "normalization": (
        ("flax.nnx.nn.normalization",),
        "`_compute_stats` finds the statistics of `BatchNorm`",
    ),
}
# The members of `nnx.Variable`, or of its class, and what they are needed for.
MEMBERS = {
    "_raw_value": "the slot that has the value",
    "_variable_meta_call": "every new variable comes from here",
    "_can_update": "whether the running trace may change a variable",
    "_check_can_update": "the error if it may not",
    "_var_metadata": "the mark of a variable that a transformation has made",
}
# The first version of Flax whose variables can be patched.
_OLDEST = (0, 12)


def __getattr__(name: str) -> ModuleType:
    """Return one of `NAMES`, and keep it for the next time."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    paths, why = NAMES[name]
    for path in paths:
        try:
            found = globals()[name] = importlib.import_module(path)
        except ImportError:
            continue
        return found
    raise AttributeError(
        f"Flax {flax.__version__} has no {paths[0]}, which unisono needs: {why}."
    )


def find_missing() -> list[str]:
    """Return what the installed Flax does not have of `NAMES` and `MEMBERS`."""
    has = {*dir(nnx.Variable(0.0)), *dir(VARIABLE_CLASS)}
    missing = [name for name in MEMBERS if name not in has]
    for name, (paths, _) in NAMES.items():
        try:
            __getattr__(name)
        except AttributeError:
            missing.append(paths[0])
    return missing


# The class of the classes of variables, and the slot that has a variable's value.
VARIABLE_CLASS: type = type(nnx.Variable)
# A Flax that is too old has none; `check_version` says so.
RAW_VALUE: Any = vars(nnx.Variable).get("_raw_value")


def check_version() -> None:
    """Raise `RuntimeError` if the variables of this Flax cannot be patched."""
    is_fit = hasattr(VARIABLE_CLASS, "_variable_meta_call")
    attribute_patches.check_version("Flax", flax, _OLDEST, is_fit)


def thread_locals() -> tuple[object, ...]:
    """Return the object in which Flax has the state of transformations per thread."""
    return (__getattr__("graphs").GRAPH_CONTEXT,)


def remove_metadata(variable: nnx.Variable[Any], name: str) -> None:
    """Remove an entry of a variable's metadata."""
    del variable._var_metadata[name]  # noqa: SLF001
