"""Datasets, their iterators and options, under the names of ``tf.data``.

`ArrayRecordDataset` and `ParquetDataset` are not in TensorFlow.
"""

from unisono._src.execution.specs import DatasetSpec as DatasetSpec
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api import iterators as _iterators
from unisono._src.input.api.dataset import (
    AUTOTUNE as AUTOTUNE,
    INFINITE_CARDINALITY as INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY,
    Dataset as Dataset,
)
from unisono._src.input.api.file_datasets import (
    ArrayRecordDataset as ArrayRecordDataset,
    FixedLengthRecordDataset as FixedLengthRecordDataset,
    ParquetDataset as ParquetDataset,
    TextLineDataset as TextLineDataset,
    TFRecordDataset as TFRecordDataset,
)
from unisono._src.input.api.iterators import NumpyIterator as NumpyIterator
from unisono._src.input.stages.dataset_options import (
    Options as Options,
    ThreadingOptions as ThreadingOptions,
)
from unisono.data import experimental as experimental

Iterator = _iterators.DatasetIterator

_lazy_names.serve(__name__)
