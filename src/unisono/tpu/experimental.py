"""Names that TensorFlow keeps under ``tf.tpu.experimental``."""

from unisono._src.tpu.assignment import DeviceAssignment
from unisono._src.tpu.system import initialize_tpu_system, shutdown_tpu_system
from unisono._src.tpu.topology import Topology

__all__ = [
    "DeviceAssignment",
    "Topology",
    "initialize_tpu_system",
    "shutdown_tpu_system",
]
