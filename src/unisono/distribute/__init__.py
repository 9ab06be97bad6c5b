"""Strategies, replica contexts and distributed values: names of ``tf.distribute``."""

import typing as _typing

from unisono._src.execution.contexts import ReplicaContext as ReplicaContext
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.foundation.options import (
    ReduceOp as ReduceOp,
    RunOptions as RunOptions,
)
from unisono._src.strategies.base import Strategy as Strategy
from unisono._src.strategies.cross_device_ops import (
    CrossDeviceOps as CrossDeviceOps,
    HierarchicalCopyAllReduce as HierarchicalCopyAllReduce,
    NcclAllReduce as NcclAllReduce,
    ReductionToOneDevice as ReductionToOneDevice,
)
from unisono._src.strategies.current import (
    experimental_set_strategy as experimental_set_strategy,
    get_replica_context as get_replica_context,
    get_strategy as get_strategy,
    has_strategy as has_strategy,
    in_cross_replica_context as in_cross_replica_context,
)
from unisono._src.strategies.extended import StrategyExtended as StrategyExtended
from unisono._src.strategies.function_contexts import (
    MultiStepContext as MultiStepContext,
    ValueContext as ValueContext,
)
from unisono._src.strategies.mirrored import (
    CentralStorageStrategy as CentralStorageStrategy,
    MirroredStrategy as MirroredStrategy,
)
from unisono._src.strategies.one_device import OneDeviceStrategy as OneDeviceStrategy
from unisono._src.values.distributed import (
    DistributedValues as DistributedValues,
    Mirrored as Mirrored,
    PerReplica as PerReplica,
)
from unisono.distribute import experimental as experimental

# Loaded on first use: not every program reads data, has several workers or a TPU.
if _typing.TYPE_CHECKING:
    from unisono._src.input.api.distributed_dataset import (
        DistributedDataset as DistributedDataset,
        DistributedIterator as DistributedIterator,
    )
    from unisono._src.input.distribution.input_options import (
        InputContext as InputContext,
        InputOptions as InputOptions,
        InputReplicationMode as InputReplicationMode,
    )
    from unisono._src.servers.parameter_server import (
        ParameterServerStrategy as ParameterServerStrategy,
    )
    from unisono._src.servers.ray.task_server import Server as Server
    from unisono._src.state.sharded_variable import ShardedVariable as ShardedVariable
    from unisono._src.strategies.multi_worker import (
        MultiWorkerMirroredStrategy as MultiWorkerMirroredStrategy,
    )
    from unisono._src.strategies.tpu import TPUStrategy as TPUStrategy
    from unisono.distribute import (
        cluster_resolver as cluster_resolver,
        coordinator as coordinator,
    )

_lazy_names.serve(__name__)
