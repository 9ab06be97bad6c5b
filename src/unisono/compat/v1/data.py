"""Datasets under the names of ``tf.compat.v1.data``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api.iterators import (
    make_one_shot_iterator as make_one_shot_iterator,
)
from unisono.data import (
    AUTOTUNE as AUTOTUNE,
    INFINITE_CARDINALITY as INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY,
    Dataset as Dataset,
    DatasetSpec as DatasetSpec,
    FixedLengthRecordDataset as FixedLengthRecordDataset,
    Iterator as Iterator,
    Options as Options,
    TextLineDataset as TextLineDataset,
    TFRecordDataset as TFRecordDataset,
    ThreadingOptions as ThreadingOptions,
    experimental as experimental,
)

_lazy_names.serve(__name__)
