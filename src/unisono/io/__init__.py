"""Files: the writer of TFRecord files, and `gfile`, as in ``tf.io``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.sources.files import TFRecordWriter
from unisono.io import gfile

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.io", {})

__all__ = ["TFRecordWriter", "gfile"]
