"""Functions that export and load models, under the names of ``tf.saved_model``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.saving.export.loader import (
    LoadOptions,
    contains_saved_model,
    load,
)
from unisono._src.saving.export.saver import (
    DEFAULT_SERVING_SIGNATURE_DEF_KEY,
    SaveOptions,
    save,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.saved_model", {})

__all__ = [
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "LoadOptions",
    "SaveOptions",
    "contains_saved_model",
    "load",
    "save",
]
