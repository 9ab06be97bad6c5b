"""Names that TensorFlow keeps under ``tf.experimental``."""

from unisono._src.input.api.iterators import Optional

__all__ = ["Optional"]
