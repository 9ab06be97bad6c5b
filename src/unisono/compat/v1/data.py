"""Datasets under the names of ``tf.compat.v1.data``."""

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
