"""The libraries that take part in scopes; their integrations load on first use."""

from __future__ import annotations

import functools
import importlib

from unisono._src.foundation import library_hooks

_HERE = __name__.rpartition(".")[0]


def _load(module: str) -> library_hooks.Hooks:
    """Import a module of this folder, and return its `HOOKS`."""
    hooks: library_hooks.Hooks = importlib.import_module(f"{_HERE}.{module}").HOOKS
    return hooks


def install() -> None:
    """Register Keras and Flax with scopes and checkpoints, without importing them."""
    for library, module in (("keras", "keras.scope"), ("flax.nnx", "flax.scope")):
        load = functools.partial(_load, module)
        library_hooks.register(library_hooks.Companion(library, load))
