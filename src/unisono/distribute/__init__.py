"""Strategies and everything around them, at TensorFlow's names."""

from unisono._src.contexts import ReplicaContext
from unisono._src.feeds import HostIterator as DistributedIterator
from unisono._src.input.distributed import DistributedDataset
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
from unisono._src.strategies.multi_worker import MultiWorkerMirroredStrategy
from unisono._src.strategies.multistep import MultiStepContext
from unisono._src.strategies.one_device import OneDeviceStrategy
from unisono._src.values import DistributedValues, Mirrored, PerReplica
from unisono.distribute import experimental

__all__ = [
    "CentralStorageStrategy",
    "CrossDeviceOps",
    "DistributedDataset",
    "DistributedIterator",
    "DistributedValues",
    "HierarchicalCopyAllReduce",
    "Mirrored",
    "MirroredStrategy",
    "MultiStepContext",
    "MultiWorkerMirroredStrategy",
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
    "experimental",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
