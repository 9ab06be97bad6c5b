"""Datasets: tf.data's everyday surface."""

from unisono._src.input.choices import Options, ThreadingOptions
from unisono._src.input.dataset import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
)
from unisono._src.input.file_datasets import (
    ArrayRecordDataset,
    FixedLengthRecordDataset,
    ParquetDataset,
    TextLineDataset,
    TFRecordDataset,
)
from unisono._src.input.iterators import DatasetIterator as Iterator
from unisono._src.input.iterators import NumpyIterator
from unisono._src.specs import DatasetSpec
from unisono.data import experimental

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "ArrayRecordDataset",
    "Dataset",
    "DatasetSpec",
    "FixedLengthRecordDataset",
    "Iterator",
    "NumpyIterator",
    "Options",
    "ParquetDataset",
    "TFRecordDataset",
    "TextLineDataset",
    "ThreadingOptions",
    "experimental",
]
