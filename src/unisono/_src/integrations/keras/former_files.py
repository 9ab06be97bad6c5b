"""Paths of weights and models that ``tf.keras`` took, and Keras 3 refuses.

Weights have one format in Keras 3, in files that end in ``.weights.h5``. TensorFlow's
format had paths without an ending, or with one of the program's own.
"""

from __future__ import annotations

import functools
import inspect
import os
import warnings
from collections.abc import Callable
from typing import Any

from unisono._src.integrations.keras.internals import KerasModel

_Path = str | os.PathLike[str]
_WEIGHTS = ".weights.h5"
# Endings that said what Keras 2 writes.
_FORMER = (".tf", ".h5", ".hdf5")
# A model is saved as a directory if its path has none of Keras' endings.
_MODELS = (".keras", ".h5", ".hdf5")


def is_directory(path: _Path) -> bool:
    """Return whether a model that is saved at a path was a directory in Keras 2."""
    return os.path.splitext(os.fspath(path))[1] in ("", ".tf")


def weights_path(path: _Path) -> str:
    """Return the path of the weights that Keras 2 would have saved at `path`."""
    given = os.fspath(path)
    if given.endswith((_WEIGHTS, ".weights.json")):
        return given
    stem, ending = os.path.splitext(given)
    return (stem if ending in _FORMER else given) + _WEIGHTS


def wrap_save_weights(original: Callable[..., None]) -> Callable[..., None]:
    """Return a `save_weights` that takes paths of Keras 2."""

    @functools.wraps(original)
    def save_weights(
        self: KerasModel,
        filepath: _Path,
        overwrite: bool = True,
        save_format: str | None = None,
        options: object = None,
        **kwargs: object,
    ) -> None:
        path = os.fspath(filepath)
        # Weights in parts have endings of their own.
        if "max_shard_size" not in kwargs:
            path = weights_path(path)
        if path != os.fspath(filepath):
            _warn(filepath, path, "load_weights")
            # As Keras 2 did for its own format.
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        original(self, path, overwrite, **kwargs)

    return save_weights


def wrap_load_weights(original: Callable[..., object]) -> Callable[..., object]:
    """Return a `load_weights` that finds what `save_weights` has saved for a path."""

    @functools.wraps(original)
    def load_weights(
        self: KerasModel, filepath: _Path, *args: object, **kwargs: object
    ) -> object:
        found = weights_path(filepath)
        if os.path.exists(filepath) or not os.path.exists(found):
            found = os.fspath(filepath)
        return original(self, found, *args, **kwargs)

    return load_weights


def wrap_checkpoint_init(original: Callable[..., None]) -> Callable[..., None]:
    """Return an `__init__` of `ModelCheckpoint` that takes paths of Keras 2."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, filepath: _Path, *args: object, **kwargs: object) -> None:
        kwargs.pop("options", None)  # They were about TensorFlow's format.
        given = signature.bind_partial(self, filepath, *args, **kwargs).arguments
        path = os.fspath(filepath)
        if given.get("save_weights_only"):
            path = weights_path(path)
            if path != os.fspath(filepath):
                _warn(filepath, path, "load_weights")
            original(self, path, *args, **kwargs)
        elif path.endswith(_MODELS):
            original(self, path, *args, **kwargs)
        else:
            # Keras asks for an ending. `Model.save` writes a directory without one.
            original(self, f"{path}.keras", *args, **kwargs)
            self.filepath = path

    return init


def _warn(given: _Path, path: str, reader: str) -> None:
    warnings.warn(
        f"Keras 3 has one format of weights, in files that end in {_WEIGHTS}. They are "
        f"saved as {path!r}; {reader}({os.fspath(given)!r}) finds them there.",
        stacklevel=3,
    )
