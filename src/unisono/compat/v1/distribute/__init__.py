"""Strategies of ``tf.compat.v1.distribute``, whose `reduce` needs no `axis`."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.strategies import version_1 as _version_1
from unisono._src.strategies.version_1 import get_loss_reduction as get_loss_reduction
from unisono.compat.v1.distribute import experimental as experimental
from unisono.distribute import (
    CrossDeviceOps as CrossDeviceOps,
    HierarchicalCopyAllReduce as HierarchicalCopyAllReduce,
    NcclAllReduce as NcclAllReduce,
    ReduceOp as ReduceOp,
    ReductionToOneDevice as ReductionToOneDevice,
    ReplicaContext as ReplicaContext,
    RunOptions as RunOptions,
    Strategy as Strategy,
    StrategyExtended as StrategyExtended,
    experimental_set_strategy as experimental_set_strategy,
    get_replica_context as get_replica_context,
    get_strategy as get_strategy,
    has_strategy as has_strategy,
    in_cross_replica_context as in_cross_replica_context,
)

# Loaded on first use: not every program reads data or has several workers.
if _typing.TYPE_CHECKING:
    from unisono.distribute import (
        InputContext as InputContext,
        InputReplicationMode as InputReplicationMode,
        Server as Server,
        cluster_resolver as cluster_resolver,
    )

MirroredStrategy = _version_1.MirroredStrategyV1
OneDeviceStrategy = _version_1.OneDeviceStrategyV1

_lazy_names.serve(__name__)
