"""Schedules functions on the workers of a `ParameterServerStrategy`."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.servers.carrier import Carrier as Carrier, Handle as Handle
from unisono._src.servers.cluster_coordinator import (
    ClusterCoordinator as ClusterCoordinator,
    cache_variable_reads as cache_variable_reads,
    experimental_get_current_worker_index as experimental_get_current_worker_index,
)
from unisono._src.servers.per_worker import (
    PerWorkerValue as PerWorkerValue,
    RemoteValue as RemoteValue,
)
from unisono._src.servers.ray.carrier import RayCarrier as RayCarrier
from unisono._src.servers.resources import ClosureInputError as ClosureInputError
from unisono._src.servers.threads import ThreadCarrier as ThreadCarrier

_lazy_names.serve(__name__)
