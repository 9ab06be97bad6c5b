"""`unisono.distribute.coordinator` under TensorFlow's older names."""

from unisono._src.coordinator.cluster_coordinator import ClusterCoordinator
from unisono._src.coordinator.per_worker import PerWorkerValue as PerWorkerValues
from unisono._src.coordinator.remote_value import RemoteValue

__all__ = ["ClusterCoordinator", "PerWorkerValues", "RemoteValue"]
