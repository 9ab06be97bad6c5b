"""Strategies and everything around them, at TensorFlow's names."""

import importlib as _importlib
import typing as _typing

from unisono._src.contexts import ReplicaContext
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
from unisono._src.strategies.tpu import TPUStrategy
from unisono._src.values import DistributedValues, Mirrored, PerReplica
from unisono.distribute import experimental

if _typing.TYPE_CHECKING:
    from unisono._src.input.choices import (
        InputContext,
        InputOptions,
        InputReplicationMode,
    )
    from unisono._src.input.distributed import (
        DistributedDataset,
        DistributedIterator,
    )
    from unisono.distribute import cluster_resolver

# Loaded on first use: not every program reads data or names a resolver.
_LATER = {
    "DistributedDataset": "unisono._src.input.distributed",
    "DistributedIterator": "unisono._src.input.distributed",
    "InputContext": "unisono._src.input.choices",
    "InputOptions": "unisono._src.input.choices",
    "InputReplicationMode": "unisono._src.input.choices",
    "cluster_resolver": "unisono.distribute",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'unisono.distribute' has no attribute {name!r}")
    if _LATER[name] == "unisono.distribute":
        return _importlib.import_module(f"unisono.distribute.{name}")
    return getattr(_importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


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
    "TPUStrategy",
    "ValueContext",
    "cluster_resolver",
    "experimental",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
