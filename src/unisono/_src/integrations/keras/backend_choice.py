"""Which Keras can be distributed, and the choice of its backend where nobody chose.

Keras chooses its backend once, while it is imported. By default it takes TensorFlow,
which need not be installed and which no strategy of unisono can distribute. So the
backend is chosen here if Keras is imported after unisono (`libraries`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import final

from unisono._src.foundation import library_hooks
from unisono._src.integrations import attribute_patches
from unisono._src.integrations.keras import internals

# The first version of Keras whose internals the patches fit.
_OLDEST = (3, 13)
# Keras writes this default into a new configuration file by itself, whatever backend
# the environment names. So in the file it is not the choice of a user.
_DEFAULT = "tensorflow"


def choose() -> None:
    """Choose JAX as Keras' backend, unless Keras is loaded already.

    Raises:
        RuntimeError: the environment or Keras' configuration file names another
            backend.
    """
    if "keras" in sys.modules:
        return
    backend, source = _find_choice()
    if not backend:
        # In the environment, so that processes started by this one choose it too.
        os.environ["KERAS_BACKEND"] = "jax"
    elif backend != "jax":
        raise RuntimeError(
            f"{source} names {backend!r} as the backend of Keras, where a strategy of "
            "unisono cannot distribute it. Write this before keras is imported: "
            'os.environ["KERAS_BACKEND"] = "jax"'
        )


def suggest() -> None:
    """Choose JAX for a Keras that the program imports itself, if nobody chose.

    A program that has loaded TensorFlow may be about to use Keras with it, so there
    Keras decides.
    """
    if "tensorflow" not in sys.modules and not _find_choice()[0]:
        os.environ["KERAS_BACKEND"] = "jax"


def _find_choice() -> tuple[str | None, str]:
    """Return the backend that somebody chose, or None, and where."""
    backend = os.environ.get("KERAS_BACKEND")
    if backend:
        return backend, "The environment variable KERAS_BACKEND"
    path = _configuration_path()
    return _read_backend(path), f"The file {path}"


def _configuration_path() -> str:
    """Return the path of Keras' configuration file, found by the rules of Keras."""
    directory = os.environ.get("KERAS_HOME")
    if directory is None:
        home = os.path.expanduser("~")
        home = home if os.access(home, os.W_OK) else "/tmp"
        directory = os.path.join(home, ".keras")
    return os.path.expanduser(os.path.join(directory, "keras.json"))


def _read_backend(path: str) -> str | None:
    """Return the backend that a user wrote into the file, or None."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None  # There is none, or it is damaged, which Keras itself reports.
    backend = found.get("backend") if isinstance(found, dict) else None
    return None if backend == _DEFAULT else backend


def is_new_enough() -> bool:
    """Return whether the patches fit the version of Keras."""
    import keras

    return attribute_patches.is_new_enough(keras, _OLDEST)


@final
class _TooOldScope:
    """A context manager that raises: the patches do not fit this version of Keras."""

    def __enter__(self) -> None:
        check()

    def __exit__(self, *exc: object) -> None:
        """Do nothing: the block was not entered."""


@final
class _NoState(library_hooks.StateFinder):
    """Finds no state: what a Keras that is too old keeps is not known."""

    def __getitem__(self, obj: object) -> None:
        """Return None."""

    def make_forward(self, obj: object) -> None:
        """Return None."""


def make_too_old_hooks() -> library_hooks.LibraryHooks:
    """Return the hooks of a Keras whose names are not those that are used here.

    Programs that have loaded it without using it work; a scope raises.
    """
    tape: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    return library_hooks.LibraryHooks(_TooOldScope(), tape, _NoState())


def check() -> None:
    """Raise if Keras is too old for strategies.

    Raises:
        RuntimeError: it is too old.
    """
    import keras

    attribute_patches.check_version("Keras", keras, _OLDEST)


def find_obstacle() -> str | None:
    """Return why models of this Keras cannot be distributed, or None if they can."""
    import keras

    if keras.backend.backend() != "jax":
        return (
            f"Keras runs on the backend {keras.backend.backend()!r}, where a strategy "
            "of unisono cannot distribute it. Set the environment variable "
            "KERAS_BACKEND=jax before keras is imported."
        )
    if internals.is_nnx_enabled():
        return (
            "Keras was told to make its layers NNX modules, whose variables a strategy "
            "cannot place. Unset KERAS_NNX_ENABLED, or use Flax NNX itself."
        )
    return None
