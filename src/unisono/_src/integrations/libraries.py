"""The libraries that take part in scopes; their integrations load on first use."""

from __future__ import annotations

import importlib
from typing import final

from unisono._src.foundation import library_hooks
from unisono._src.integrations import keras_import

_HERE = __name__.rpartition(".")[0]


@final
class _LazyIntegration(library_hooks.Integration):
    """Loads the integration of a library from its folder, beside this module."""

    def load(self) -> library_hooks.LibraryHooks:
        """Import the integration's module `scope`, and return its `HOOKS`."""
        folder = self.module.partition(".")[0]
        # Loaded here: a program without Keras must not choose a backend for it.
        if folder == "keras":
            choice = importlib.import_module(f"{_HERE}.keras.backend_choice")
            if not choice.is_new_enough():
                # The module `scope` needs names that it may not have.
                refusing: library_hooks.LibraryHooks = choice.make_too_old_hooks()
                return refusing
        scope = importlib.import_module(f"{_HERE}.{folder}.scope")
        hooks: library_hooks.LibraryHooks = scope.HOOKS
        return hooks


def install() -> None:
    """Register Keras and Flax with scopes and checkpoints, without importing them."""
    for library in ("keras", "flax.nnx"):
        library_hooks.register(_LazyIntegration(library))
    keras_import.install()
