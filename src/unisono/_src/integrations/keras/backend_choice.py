"""The choice of Keras' backend, for programs in which unisono imports Keras first.

Keras chooses its backend once, while it is imported. By default it takes TensorFlow,
which need not be installed and which no strategy of unisono can distribute.
"""

from __future__ import annotations

import json
import os
import sys

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
    backend = os.environ.get("KERAS_BACKEND")
    source = "The environment variable KERAS_BACKEND"
    if not backend:
        path = _configuration_path()
        backend, source = _read_backend(path), f"The file {path}"
    if not backend:
        # In the environment, so that processes started by this one choose it too.
        os.environ["KERAS_BACKEND"] = "jax"
    elif backend != "jax":
        raise RuntimeError(
            f"{source} names {backend!r} as the backend of Keras, where a strategy of "
            "unisono cannot distribute it. Write this before keras is imported: "
            'os.environ["KERAS_BACKEND"] = "jax"'
        )


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
