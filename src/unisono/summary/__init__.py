"""Functions that write summaries for TensorBoard, under the names of ``tf.summary``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.training.summary import (
    SummaryWriter as SummaryWriter,
    create_file_writer as create_file_writer,
    create_noop_writer as create_noop_writer,
    flush as flush,
    record_if as record_if,
    scalar as scalar,
    should_record_summaries as should_record_summaries,
)
from unisono.summary import experimental as experimental

# Loaded on first use, as all everyday names are.
if _typing.TYPE_CHECKING:
    from unisono._src.ops.summaries import *  # noqa: F403

_lazy_names.serve(__name__)
