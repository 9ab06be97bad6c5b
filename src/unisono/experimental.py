"""`Optional`, an element or none, under its name in ``tf.experimental``."""

from unisono._src.input.api.iterators import Optional

__all__ = ["Optional"]
