"""TPU systems, topologies and device assignments: ``tf.tpu.experimental``'s names."""

from unisono._src.machines.tpu.core_grid import TPUTopology as Topology
from unisono._src.machines.tpu.device_assignment import DeviceAssignment
from unisono._src.workers.tpu_system import initialize_tpu_system, shutdown_tpu_system

__all__ = [
    "DeviceAssignment",
    "Topology",
    "initialize_tpu_system",
    "shutdown_tpu_system",
]
