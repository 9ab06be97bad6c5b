"""More functions and options of datasets, as in ``tf.data.experimental``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api.dataset import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    assert_cardinality,
    cardinality,
)
from unisono._src.input.api.experimental import (
    Counter,
    bucket_by_sequence_length,
    choose_from_datasets,
    enumerate_dataset,
    get_next_as_optional,
    get_single_element,
    group_by_window,
    ignore_errors,
    load,
    rejection_resample,
    sample_from_datasets,
    save,
    scan,
    take_while,
    unbatch,
    unique,
)
from unisono._src.input.api.experimental import DatasetRecordWriter as TFRecordWriter
from unisono._src.input.api.iterators import Optional
from unisono._src.input.stages.dataset_options import (
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    ThreadingOptions,
)
from unisono._src.input.stages.selecting import SHARD_HINT

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.data.experimental", {})

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "Counter",
    "DistributeOptions",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "Optional",
    "TFRecordWriter",
    "ThreadingOptions",
    "assert_cardinality",
    "bucket_by_sequence_length",
    "cardinality",
    "choose_from_datasets",
    "enumerate_dataset",
    "get_next_as_optional",
    "get_single_element",
    "group_by_window",
    "ignore_errors",
    "load",
    "rejection_resample",
    "sample_from_datasets",
    "save",
    "scan",
    "take_while",
    "unbatch",
    "unique",
]
