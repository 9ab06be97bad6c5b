"""Functions on the workers of a parameter server strategy: TensorFlow's names."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.servers.carrier import Carrier, Handle
from unisono._src.servers.cluster_coordinator import (
    ClusterCoordinator,
    cache_variable_reads,
    experimental_get_current_worker_index,
)
from unisono._src.servers.per_worker import PerWorkerValue
from unisono._src.servers.ray.carrier import RayCarrier
from unisono._src.servers.remote_value import RemoteValue
from unisono._src.servers.resources import ClosureInputError
from unisono._src.servers.threads import ThreadCarrier

if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.distribute.coordinator", {}
    )

__all__ = [
    "Carrier",
    "ClosureInputError",
    "ClusterCoordinator",
    "Handle",
    "PerWorkerValue",
    "RayCarrier",
    "RemoteValue",
    "ThreadCarrier",
    "cache_variable_reads",
    "experimental_get_current_worker_index",
]
