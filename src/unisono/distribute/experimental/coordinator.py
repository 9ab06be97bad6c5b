"""`unisono.distribute.coordinator` under TensorFlow's older names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.servers.cluster_coordinator import ClusterCoordinator
from unisono._src.servers.per_worker import PerWorkerValue as PerWorkerValues
from unisono._src.servers.remote_value import RemoteValue

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.distribute.experimental.coordinator", {}
    )

__all__ = ["ClusterCoordinator", "PerWorkerValues", "RemoteValue"]
