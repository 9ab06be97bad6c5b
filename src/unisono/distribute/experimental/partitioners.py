"""Partitioners of variables on parameter servers, under TensorFlow's names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.servers.partitioners import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
    Partitioner,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.distribute.experimental.partitioners", {}
    )

__all__ = [
    "FixedShardsPartitioner",
    "MaxSizePartitioner",
    "MinSizePartitioner",
    "Partitioner",
]
