"""The modules `unisono.keras` and below: Keras on JAX, loaded when a name is used.

Each module has the names of Keras' own module at the same path, and is that module in
all but identity: `unisono.keras.layers.Dense` is `keras.layers.Dense`. Names that
``tf.keras`` had and Keras 3 lacks are in `keras_renames`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Sequence
from importlib import abc as importlib_abc, machinery
from typing import Any, final

from unisono._src.foundation import library_hooks
from unisono._src.integrations import keras_renames

_ROOT = "unisono.keras"
_HERE = __name__.rpartition(".")[0]
# The names that TensorFlow adds to those of Keras 3, in a package of Keras.
_ADDED = "keras._tf_keras.keras"
# All other names like these are Python's own questions, which must not load Keras.
_DUNDERS = frozenset({"__internal__", "__version__"})


@final
class Names:
    """Finds the names of one module, and loads Keras when it is asked for one.

    Args:
        module: the module: ``unisono.keras`` or one below it.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._path = module.removeprefix(_ROOT).removeprefix(".")

    def find(self, name: str) -> Any:
        """Returns the value of a name, as a module's `__getattr__`.

        Raises:
            AttributeError: there is no such name; the message says what to write
                instead, if that is known.
            RuntimeError: Keras runs on another backend than JAX.
            ImportError: Keras is not installed.
        """
        if name.startswith("__") and name.endswith("__") and name not in _DUNDERS:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        path = f"{self._path}.{name}".lstrip(".")
        told = find_replacement(path)
        if told is not None:
            raise AttributeError(told)
        value = self._load(path, name)
        # Kept in the module: the next access does not come here.
        vars(sys.modules[self._module])[name] = value
        return value

    def _load(self, path: str, name: str) -> Any:
        """Returns the value of a name that Keras or unisono may have."""
        load()
        if path in keras_renames.OWN:
            return getattr(importlib.import_module(keras_renames.OWN[path]), name)
        if path in keras_renames.MOVED:
            return importlib.import_module(f"{_ROOT}.{path}")
        if self._path == "backend" and name in keras_renames.OPERATIONS:
            return getattr(importlib.import_module("keras.ops"), name)
        for module in _modules(self._path):
            if hasattr(module, name):
                value = getattr(module, name)
                is_public = isinstance(value, types.ModuleType) and name[0] != "_"
                # A module below has names of its own to find, so it is one of ours.
                if is_public and path != "src":
                    return importlib.import_module(f"{_ROOT}.{path}")
                return value
        version = sys.modules["keras"].__version__
        raise AttributeError(
            f"module {self._module!r} has no attribute {name!r}: Keras {version} has "
            "none. docs/keras-and-flax.md says what Keras 3 has renamed."
        )

    def list(self) -> list[str]:
        """Returns all names, as a module's `__dir__`."""
        listed = {*vars(sys.modules[self._module])}
        prefix = f"{self._path}." if self._path else ""
        for path in (*keras_renames.OWN, *keras_renames.MOVED):
            if path.startswith(prefix) and "." not in path.removeprefix(prefix):
                listed.add(path.removeprefix(prefix))
        if importlib.util.find_spec("keras") is not None:
            load()
            for module in _modules(self._path):
                listed |= {n for n in dir(module) if not n.startswith("_")}
        return sorted(listed)


def _modules(path: str) -> list[types.ModuleType]:
    """Returns the modules of Keras that have the names of a path."""
    path = keras_renames.MOVED.get(path, path)
    # What TensorFlow added to `backend` needs TensorFlow.
    roots = ("keras",) if path == "backend" else ("keras", _ADDED)
    found = []
    for root in roots:
        try:
            found.append(importlib.import_module(f"{root}.{path}" if path else root))
        except ModuleNotFoundError as error:
            # Python names the module that it misses: the one
            # asked for, or a parent of it.
            if not f"{root}.{path}".startswith(f"{error.name}"):
                raise  # Keras has the module, and it needs something else.
    return found


def find_replacement(path: str) -> str | None:
    """Returns the advice for a name of Keras 2, or None if the name may exist.

    Args:
        path: the path of the name without ``tf.keras.``.
    """
    owner, _, name = path.rpartition(".")
    moved = keras_renames.MOVED.get(owner)
    return _find_told(path) or (_find_told(f"{moved}.{name}") if moved else None)


def _find_told(path: str) -> str | None:
    """Returns the advice for a name or what it is in, or None if there is none."""
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        known = ".".join(parts[:end])
        instead = keras_renames.TOLD.get(known)
        if instead is None:
            continue
        if known in keras_renames.NEEDS_TENSORFLOW:
            if importlib.util.find_spec("tensorflow") is not None:
                return None
            return f"tf.keras.{known} needs TensorFlow. {instead}"
        return f"tf.keras.{known} is not in Keras 3. {instead}"
    return None


def load() -> None:
    """Loads Keras on JAX, and lets it take part in the scopes that are open.

    Raises:
        RuntimeError: Keras runs on another backend than JAX, or is too old.
        ImportError: Keras is not installed.
    """
    is_missing = "keras" not in sys.modules
    if is_missing and importlib.util.find_spec("keras") is None:
        raise ImportError(
            "unisono.keras is Keras, which is not installed. Install it with: pip "
            "install 'unisono[keras]'"
        )
    # This package chooses the backend before it imports Keras.
    backend_choice = importlib.import_module(f"{_HERE}.keras.backend_choice")
    backend_choice.check()
    if sys.modules["keras"].backend.backend() != "jax":
        raise RuntimeError(backend_choice.find_obstacle())
    _install()


def join() -> None:
    """Lets a Keras that was imported just now take part, if it can."""
    backend_choice = importlib.import_module(f"{_HERE}.keras.backend_choice")
    if backend_choice.is_new_enough() and backend_choice.find_obstacle() is None:
        _install()
        library_hooks.join_open_scopes("keras")


def _install() -> None:
    importlib.import_module(f"{_HERE}.keras.former_names").install()
    importlib.import_module(f"{_HERE}.keras.symbolic_names").install()
    library_hooks.introduce()


@final
class _Finder(importlib_abc.MetaPathFinder, importlib_abc.Loader):
    """Makes the modules below `unisono.keras` that have no file."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> machinery.ModuleSpec | None:
        """Returns how to make a module, or None if it is not one of Keras'."""
        if not fullname.startswith(f"{_ROOT}."):
            return None
        below = fullname.removeprefix(f"{_ROOT}.")
        told = find_replacement(below)
        if told is not None:
            raise ImportError(told, name=fullname)
        load()
        if below not in keras_renames.MOVED and not _modules(below):
            return None
        return machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        """Gives a new module its names."""
        names = Names(module.__name__)
        listed = names.list()
        contents: dict[str, Any] = vars(module)
        contents["__getattr__"], contents["__dir__"] = names.find, names.list
        below = module.__name__.removeprefix(f"{_ROOT}.")
        # Without those that are not here: a star would fail for one of them.
        contents["__all__"] = [
            n
            for n in listed
            if not n.startswith("_") and find_replacement(f"{below}.{n}") is None
        ]
        found = _modules(below)
        module.__doc__ = found[0].__doc__ if found else None


_FINDER = _Finder()


def install() -> None:
    """Makes ``import unisono.keras.layers`` and the like work."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)
