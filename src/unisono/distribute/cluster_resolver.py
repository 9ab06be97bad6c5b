"""Resolvers, which find the processes of a job, and which of them this process is."""

from unisono._src.cluster.cluster_tasks import ClusterSpec as ClusterSpec
from unisono._src.cluster.resolvers.base import (
    ClusterResolver as ClusterResolver,
    Explanation as Explanation,
)
from unisono._src.cluster.resolvers.google import (
    GCEClusterResolver as GCEClusterResolver,
)
from unisono._src.cluster.resolvers.kubernetes import (
    KubernetesClusterResolver as KubernetesClusterResolver,
    KubernetesExecutableLocation as KubernetesExecutableLocation,
)
from unisono._src.cluster.resolvers.mpi import MPIClusterResolver as MPIClusterResolver
from unisono._src.cluster.resolvers.ray import RayClusterResolver as RayClusterResolver
from unisono._src.cluster.resolvers.simple import (
    SimpleClusterResolver as SimpleClusterResolver,
    UnionClusterResolver as UnionClusterResolver,
)
from unisono._src.cluster.resolvers.slurm import (
    SlurmClusterResolver as SlurmClusterResolver,
)
from unisono._src.cluster.resolvers.tf_config import (
    TFConfigClusterResolver as TFConfigClusterResolver,
)
from unisono._src.cluster.resolvers.tpu import TPUClusterResolver as TPUClusterResolver
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.workers import tpu_system as _tpu_system

_tpu_system.install()

UnionResolver = UnionClusterResolver

_lazy_names.serve(__name__)
