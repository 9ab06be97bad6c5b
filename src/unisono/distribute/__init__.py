"""Strategies and everything around them, at TensorFlow's names."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from unisono._src.contexts import ReplicaContext
from unisono._src.input.choices import (
    InputContext,
    InputOptions,
    InputReplicationMode,
)
from unisono._src.input.distributed import DistributedDataset, DistributedIterator
from unisono._src.options import ReduceOp, RunOptions
from unisono._src.strategies.base import Strategy, ValueContext
from unisono._src.strategies.central import CentralStorageStrategy
from unisono._src.strategies.cross_device_ops import (
    CrossDeviceOps,
    HierarchicalCopyAllReduce,
    NcclAllReduce,
    ReductionToOneDevice,
)
from unisono._src.strategies.current import (
    experimental_set_strategy,
    get_replica_context,
    get_strategy,
    has_strategy,
    in_cross_replica_context,
)
from unisono._src.strategies.extended import StrategyExtended
from unisono._src.strategies.mirrored import MirroredStrategy
from unisono._src.strategies.multistep import MultiStepContext
from unisono._src.strategies.one_device import OneDeviceStrategy
from unisono._src.values import DistributedValues, Mirrored, PerReplica
from unisono.distribute import experimental

if _TYPE_CHECKING:
    from unisono.distribute import cluster_resolver

__all__ = [
    "CentralStorageStrategy",
    "CrossDeviceOps",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "HierarchicalCopyAllReduce",
    "InputContext",
    "InputOptions",
    "InputReplicationMode",
    "Mirrored",
    "MirroredStrategy",
    "MultiStepContext",
    "NcclAllReduce",
    "OneDeviceStrategy",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "ReplicaContext",
    "RunOptions",
    "Strategy",
    "StrategyExtended",
    "ValueContext",
    "cluster_resolver",
    "experimental",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]


def __getattr__(name: str) -> _Any:
    # Loaded on first use: most programs never name a resolver.
    if name == "cluster_resolver":
        return _importlib.import_module("unisono.distribute.cluster_resolver")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
