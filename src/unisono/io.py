"""Writing record files, at TensorFlow's names."""

from unisono._src.input.sources.tfrecord_writer import TFRecordWriter

__all__ = ["TFRecordWriter"]
