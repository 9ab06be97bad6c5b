"""More functions and options of datasets, as in ``tf.data.experimental``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.input.api import experimental as _experimental
from unisono._src.input.api.dataset import (
    AUTOTUNE as AUTOTUNE,
    INFINITE_CARDINALITY as INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY as UNKNOWN_CARDINALITY,
    assert_cardinality as assert_cardinality,
    cardinality as cardinality,
)
from unisono._src.input.api.experimental import (
    Counter as Counter,
    bucket_by_sequence_length as bucket_by_sequence_length,
    choose_from_datasets as choose_from_datasets,
    enumerate_dataset as enumerate_dataset,
    get_next_as_optional as get_next_as_optional,
    get_single_element as get_single_element,
    group_by_window as group_by_window,
    ignore_errors as ignore_errors,
    load as load,
    rejection_resample as rejection_resample,
    sample_from_datasets as sample_from_datasets,
    save as save,
    scan as scan,
    take_while as take_while,
    unbatch as unbatch,
    unique as unique,
)
from unisono._src.input.stages.dataset_options import (
    AutoShardPolicy as AutoShardPolicy,
    AutotuneAlgorithm as AutotuneAlgorithm,
    AutotuneOptions as AutotuneOptions,
    DistributeOptions as DistributeOptions,
    ExternalStatePolicy as ExternalStatePolicy,
    OptimizationOptions as OptimizationOptions,
)
from unisono._src.input.stages.selecting import SHARD_HINT as SHARD_HINT

if _typing.TYPE_CHECKING:
    from unisono._src.ops.text.csv_datasets import (
        CsvDataset as CsvDataset,
        make_csv_dataset as make_csv_dataset,
    )
    from unisono.data import ThreadingOptions as ThreadingOptions
    from unisono.experimental import Optional as Optional

TFRecordWriter = _experimental.DatasetRecordWriter

_lazy_names.serve(__name__)
