"""A hook at the import of Keras, which then runs on JAX if nobody chose a backend.

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

_HERE = __name__.rpartition(".")[0]


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


def install() -> None:
    """Puts the hook before the finders of modules."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
