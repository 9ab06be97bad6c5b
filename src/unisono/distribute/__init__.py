"""Strategies, replica contexts and distributed values: ``tf.distribute``'s names."""

import typing as _typing

from unisono._src.execution.contexts import ReplicaContext
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import ReduceOp, RunOptions
from unisono._src.strategies.base import Strategy
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
from unisono._src.strategies.function_contexts import MultiStepContext, ValueContext
from unisono._src.strategies.mirrored import CentralStorageStrategy, MirroredStrategy
from unisono._src.strategies.one_device import OneDeviceStrategy
from unisono._src.values.distributed import DistributedValues, Mirrored, PerReplica
from unisono.distribute import experimental

if _typing.TYPE_CHECKING:
    from unisono._src.input.api.distributed_dataset import (
        DistributedDataset,
        DistributedIterator,
    )
    from unisono._src.input.distribution.dataset_functions import InputContext
    from unisono._src.input.distribution.input_options import (
        InputOptions,
        InputReplicationMode,
    )
    from unisono._src.servers.parameter_server import ParameterServerStrategy
    from unisono._src.servers.ray.task_server import Server
    from unisono._src.state.sharded_variable import ShardedVariable
    from unisono._src.strategies.multi_worker import MultiWorkerMirroredStrategy
    from unisono._src.strategies.tpu import TPUStrategy
    from unisono.distribute import cluster_resolver, coordinator

# Loaded on first use: not every program reads data, has several workers or a TPU.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.distribute",
        {
            "DistributedDataset": "unisono._src.input.api.distributed_dataset",
            "DistributedIterator": "unisono._src.input.api.distributed_dataset",
            "InputContext": "unisono._src.input.distribution.dataset_functions",
            "InputOptions": "unisono._src.input.distribution.input_options",
            "InputReplicationMode": "unisono._src.input.distribution.input_options",
            "MultiWorkerMirroredStrategy": "unisono._src.strategies.multi_worker",
            "ParameterServerStrategy": "unisono._src.servers.parameter_server",
            "Server": "unisono._src.servers.ray.task_server",
            "ShardedVariable": "unisono._src.state.sharded_variable",
            "TPUStrategy": "unisono._src.strategies.tpu",
            "cluster_resolver": "unisono.distribute",
            "coordinator": "unisono.distribute",
        },
    )

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
    "ParameterServerStrategy",
    "PerReplica",
    "ReduceOp",
    "ReductionToOneDevice",
    "ReplicaContext",
    "RunOptions",
    "Server",
    "ShardedVariable",
    "Strategy",
    "StrategyExtended",
    "TPUStrategy",
    "ValueContext",
    "cluster_resolver",
    "coordinator",
    "experimental",
    "experimental_set_strategy",
    "get_replica_context",
    "get_strategy",
    "has_strategy",
    "in_cross_replica_context",
]
