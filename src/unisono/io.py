"""Writing record files, at TensorFlow's names."""

from unisono._src.input.writers import TFRecordWriter

__all__ = ["TFRecordWriter"]
