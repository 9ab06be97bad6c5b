"""Which backend Keras runs on where unisono is the first to import it.

Keras asks once, while it is imported. Without an answer it takes TensorFlow, which need
not be installed and which no strategy of ours can distribute.
"""

from __future__ import annotations

import json
import os
import sys

# Keras writes its default into a new configuration file by itself, whatever backend the
# environment names. In the file this one is therefore nobody's choice.
_DEFAULT = "tensorflow"


def choose() -> None:
    """Let Keras run on JAX; does nothing if Keras is loaded already.

    Raises:
        RuntimeError: the environment or Keras' configuration file names another one.
    """
    if "keras" in sys.modules:
        return
    backend = os.environ.get("KERAS_BACKEND")
    source = "The environment variable KERAS_BACKEND"
    if not backend:
        path = _configuration_path()
        backend, source = _configured(path), f"The file {path}"
    if not backend:
        # For this process and those it starts, as Keras' own `set_backend` does it.
        os.environ["KERAS_BACKEND"] = "jax"
    elif backend != "jax":
        raise RuntimeError(
            f"{source} names {backend!r} as the backend of Keras, where a strategy of "
            "unisono cannot distribute it. Write this before keras is imported: "
            'os.environ["KERAS_BACKEND"] = "jax"'
        )


def _configuration_path() -> str:
    """The file that Keras reads."""
    directory = os.environ.get("KERAS_HOME")
    if directory is None:
        home = os.path.expanduser("~")
        home = home if os.access(home, os.W_OK) else "/tmp"
        directory = os.path.join(home, ".keras")
    return os.path.expanduser(os.path.join(directory, "keras.json"))


def _configured(path: str) -> str | None:
    """The backend that somebody wrote into the file."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None  # Whatever is wrong with the file, Keras knows what to say.
    backend = found.get("backend") if isinstance(found, dict) else None
    return None if backend == _DEFAULT else backend
