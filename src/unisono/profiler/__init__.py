"""The package of `experimental`, which records profiles, as in ``tf.profiler``."""

from unisono.profiler import experimental

__all__ = ["experimental"]
