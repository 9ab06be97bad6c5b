"""Callbacks for Keras' `fit` under a strategy; they need Keras on the JAX backend."""

import typing as _typing

from unisono._src import later as _later

if _typing.TYPE_CHECKING:
    from unisono._src.integrations.keras_backup import BackupAndRestore

# Loaded on first use: it imports Keras.
__getattr__, __dir__ = _later.names(
    "unisono.keras.callbacks",
    {"BackupAndRestore": "unisono._src.integrations.keras_backup"},
)

__all__ = ["BackupAndRestore"]
