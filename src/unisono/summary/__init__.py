"""Functions that write scalars for TensorBoard, under the names of ``tf.summary``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.summary import (
    SummaryWriter,
    create_file_writer,
    create_noop_writer,
    flush,
    record_if,
    scalar,
    should_record_summaries,
)
from unisono.summary import experimental

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.summary", {})

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
