"""Functions that record profiles, under ``tf.profiler.experimental``'s names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.profiler import Profile, ProfilerOptions, Trace, start, stop

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.profiler.experimental", {})

__all__ = ["Profile", "ProfilerOptions", "Trace", "start", "stop"]
