"""The libraries that take part in scopes; their integrations load on first use.

A hook at the import of Keras lets it run on JAX if nobody chose a backend:
``import unisono as tf`` and then ``import keras`` gives what `unisono.keras` gives.
Nothing is set, and nothing of Keras is loaded, before the program imports it.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Sequence
from importlib import abc as importlib_abc, machinery
from typing import Any, final

from unisono._src.foundation import library_hooks

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
    _watch_keras()


@final
class _KerasFinder(importlib_abc.MetaPathFinder):
    """Finds Keras where the others do, and adds two steps to its import."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> machinery.ModuleSpec | None:
        """Returns how to import Keras, or None for any other module."""
        if fullname != "keras":
            return None
        for finder in sys.meta_path:
            search = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if search is None else search(fullname, path, target)
            if spec is not None:
                _add_steps(spec.loader)
                return spec  # type: ignore[no-any-return]
        return None


def _add_steps(loader: Any) -> None:
    """Lets a loader choose the backend before it runs Keras, and install ours after.

    On the object, which is made for one import: its class loads other modules, too. Not
    when the module is found: a program may ask whether Keras is there, and import none.
    """
    if not hasattr(loader, "exec_module"):
        return
    run: Callable[[types.ModuleType], None] = loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        importlib.import_module(f"{_HERE}.keras.backend_choice").suggest()
        run(module)
        importlib.import_module(f"{_HERE}.keras_package").join()

    vars(loader)["exec_module"] = exec_module


_FINDER = _KerasFinder()


def _watch_keras() -> None:
    """Puts the hook before the finders of modules."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
