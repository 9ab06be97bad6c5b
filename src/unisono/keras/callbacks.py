"""Callbacks for the `fit` of Keras: those of Keras, and some of unisono."""

import typing as _typing

from unisono._src.integrations import keras_package as _keras_package

if _typing.TYPE_CHECKING:
    from unisono._src.integrations.keras.backup import BackupAndRestore
    from unisono._src.integrations.keras.tensorboard import TensorBoard

# Loaded on first use: all of them import Keras.
_names = _keras_package.Names("unisono.keras.callbacks")
__getattr__ = _names.find
__dir__ = _names.list

__all__ = ["BackupAndRestore", "TensorBoard"]
