"""Callbacks for Keras' `fit` under a strategy; they need Keras on the JAX backend."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.integrations.keras.backup import BackupAndRestore

# Loaded on first use: it imports Keras.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names(
        "unisono.keras.callbacks",
        {"BackupAndRestore": "unisono._src.integrations.keras.backup"},
    )

__all__ = ["BackupAndRestore"]
