"""`unisono.distribute.coordinator` under TensorFlow's older names."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono.distribute import coordinator as _coordinator
from unisono.distribute.coordinator import (
    ClusterCoordinator as ClusterCoordinator,
    RemoteValue as RemoteValue,
)

PerWorkerValues = _coordinator.PerWorkerValue

_lazy_names.serve(__name__)
