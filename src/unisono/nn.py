"""Functions that scale losses by the global batch, under their names in ``tf.nn``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.nn import compute_average_loss, scale_regularization_loss

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names("unisono.nn", {})

__all__ = ["compute_average_loss", "scale_regularization_loss"]
