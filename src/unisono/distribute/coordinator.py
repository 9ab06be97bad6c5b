"""Functions on the workers of a parameter server strategy: TensorFlow's names."""

from unisono._src.coordinator.cached_reads import cache_variable_reads
from unisono._src.coordinator.carrier import Carrier, Handle
from unisono._src.coordinator.cluster_coordinator import (
    ClusterCoordinator,
    experimental_get_current_worker_index,
)
from unisono._src.coordinator.per_worker import PerWorkerValue
from unisono._src.coordinator.remote_value import RemoteValue
from unisono._src.coordinator.resources import ClosureInputError
from unisono._src.coordinator.threads import ThreadCarrier

__all__ = [
    "Carrier",
    "ClosureInputError",
    "ClusterCoordinator",
    "Handle",
    "PerWorkerValue",
    "RemoteValue",
    "ThreadCarrier",
    "cache_variable_reads",
    "experimental_get_current_worker_index",
]
