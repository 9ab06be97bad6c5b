"""Resolvers, which find the processes of a job and say which of them this one is."""

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
