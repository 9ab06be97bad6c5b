"""Resolvers, which find the processes of a job and say which of them this one is."""

import typing as _typing

from unisono._src.cluster.cluster_tasks import ClusterSpec
from unisono._src.cluster.explanation import Explanation
from unisono._src.cluster.resolvers.base import ClusterResolver
from unisono._src.cluster.resolvers.gce import GCEClusterResolver
from unisono._src.cluster.resolvers.kubernetes import (
    KubernetesClusterResolver,
    KubernetesExecutableLocation,
)
from unisono._src.cluster.resolvers.mpi import MPIClusterResolver
from unisono._src.cluster.resolvers.ray import RayClusterResolver
from unisono._src.cluster.resolvers.simple import (
    SimpleClusterResolver,
    UnionClusterResolver,
)
from unisono._src.cluster.resolvers.simple import UnionClusterResolver as UnionResolver
from unisono._src.cluster.resolvers.slurm import SlurmClusterResolver
from unisono._src.cluster.resolvers.tf_config import TFConfigClusterResolver
from unisono._src.cluster.resolvers.tpu import TPUClusterResolver
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.workers import tpu_system as _tpu_system

_tpu_system.install()

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.distribute.cluster_resolver", {}
    )

__all__ = [
    "ClusterResolver",
    "ClusterSpec",
    "Explanation",
    "GCEClusterResolver",
    "KubernetesClusterResolver",
    "KubernetesExecutableLocation",
    "MPIClusterResolver",
    "RayClusterResolver",
    "SimpleClusterResolver",
    "SlurmClusterResolver",
    "TFConfigClusterResolver",
    "TPUClusterResolver",
    "UnionClusterResolver",
    "UnionResolver",
]
