"""Datasets, their iterators and options, under the names of ``tf.data``.

`ArrayRecordDataset` and `ParquetDataset` are not in TensorFlow.
"""

import typing as _typing

from unisono._src.execution.specs import DatasetSpec
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api.dataset import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Dataset,
)
from unisono._src.input.api.file_datasets import (
    ArrayRecordDataset,
    FixedLengthRecordDataset,
    ParquetDataset,
    TextLineDataset,
    TFRecordDataset,
)
from unisono._src.input.api.iterators import DatasetIterator as Iterator
from unisono._src.input.api.iterators import NumpyIterator
from unisono._src.input.stages.dataset_options import Options, ThreadingOptions
from unisono.data import experimental

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.data", {})

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
