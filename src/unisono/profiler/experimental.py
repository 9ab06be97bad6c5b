"""Functions that record profiles, under ``tf.profiler.experimental``'s names."""

from unisono._src.training.profiler import Profile, ProfilerOptions, Trace, start, stop

__all__ = ["Profile", "ProfilerOptions", "Trace", "start", "stop"]
