"""Contains `experimental`, which records profiles, as in ``tf.profiler``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono.profiler import experimental as experimental

_lazy_names.serve(__name__)
