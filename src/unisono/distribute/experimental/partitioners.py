"""Partitioners of variables on parameter servers, under TensorFlow's names."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.servers.partitioners import (
    FixedShardsPartitioner as FixedShardsPartitioner,
    MaxSizePartitioner as MaxSizePartitioner,
    MinSizePartitioner as MinSizePartitioner,
    Partitioner as Partitioner,
)

_lazy_names.serve(__name__)
