"""Names that TensorFlow keeps under ``tf.data.experimental``."""

from unisono._src.input.choices import (
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    ThreadingOptions,
)
from unisono._src.input.dataset import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    assert_cardinality,
    cardinality,
)
from unisono._src.input.iterators import Optional
from unisono._src.input.selecting import SHARD_HINT

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "DistributeOptions",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "Optional",
    "ThreadingOptions",
    "assert_cardinality",
    "cardinality",
]
