"""The default step of summaries, under the names of ``tf.summary.experimental``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.summary import get_step, set_step

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.summary.experimental", {})

__all__ = ["get_step", "set_step"]
