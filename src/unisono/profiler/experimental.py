"""Functions that record profiles: names of ``tf.profiler.experimental``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.profiler import (
    Profile as Profile,
    ProfilerOptions as ProfilerOptions,
    Trace as Trace,
    start as start,
    stop as stop,
)

_lazy_names.serve(__name__)
