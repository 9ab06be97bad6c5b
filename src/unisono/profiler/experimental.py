"""Recording profiles: TensorFlow's ``tf.profiler.experimental``."""

from unisono._src.training.profiler import Profile, ProfilerOptions, Trace, start, stop

__all__ = ["Profile", "ProfilerOptions", "Trace", "start", "stop"]
