"""Profiles: TensorFlow's ``tf.profiler``."""

from unisono.profiler import experimental

__all__ = ["experimental"]
