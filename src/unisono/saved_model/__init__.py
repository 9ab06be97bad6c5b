"""Functions that export and load models, under the names of ``tf.saved_model``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.saving.export.loader import LoadOptions, load
from unisono._src.saving.export.saver import SaveOptions, save

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names("unisono.saved_model", {})

# The name of a model's signature where only one function was given.
DEFAULT_SERVING_SIGNATURE_DEF_KEY = "serving_default"

__all__ = [
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "LoadOptions",
    "SaveOptions",
    "load",
    "save",
]
