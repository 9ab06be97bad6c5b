"""TPU systems, topologies and device assignments: ``tf.tpu.experimental``'s names."""

import typing as _typing

from unisono._src.cluster.tpu_metadata import TPUSystemMetadata
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.tpu.core_grid import TPUTopology as Topology
from unisono._src.machines.tpu.device_assignment import DeviceAssignment
from unisono._src.workers.tpu_system import initialize_tpu_system, shutdown_tpu_system

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.tpu.experimental", {})

__all__ = [
    "DeviceAssignment",
    "TPUSystemMetadata",
    "Topology",
    "initialize_tpu_system",
    "shutdown_tpu_system",
]
