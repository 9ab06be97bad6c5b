"""Functions that write scalars for TensorBoard, under the names of ``tf.summary``."""

from unisono._src.training.tensorboard.summary import (
    SummaryWriter,
    create_file_writer,
    create_noop_writer,
    flush,
    record_if,
    scalar,
    should_record_summaries,
)
from unisono.summary import experimental

__all__ = [
    "SummaryWriter",
    "create_file_writer",
    "create_noop_writer",
    "experimental",
    "flush",
    "record_if",
    "scalar",
    "should_record_summaries",
]
