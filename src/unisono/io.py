"""The writer of TFRecord files, under its name in ``tf.io``."""

from unisono._src.input.sources.tfrecord_writer import TFRecordWriter

__all__ = ["TFRecordWriter"]
