"""Datasets under the names of ``tf.compat.v1.data``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api.iterators import make_one_shot_iterator
from unisono.data import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
    DatasetSpec,
    FixedLengthRecordDataset,
    Iterator,
    Options,
    TextLineDataset,
    TFRecordDataset,
    ThreadingOptions,
    experimental,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.compat.v1.data", {})

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "Dataset",
    "DatasetSpec",
    "FixedLengthRecordDataset",
    "Iterator",
    "Options",
    "TFRecordDataset",
    "TextLineDataset",
    "ThreadingOptions",
    "experimental",
    "make_one_shot_iterator",
]
