"""`DatasetCreator`, which `fit` takes under a parameter server strategy."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from unisono._src.integrations.keras.dataset_creator import DatasetCreator

# Loaded on first use: its package chooses Keras' backend.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names(
        "unisono.keras.utils.experimental",
        {"DatasetCreator": "unisono._src.integrations.keras.dataset_creator"},
    )

__all__ = ["DatasetCreator"]
