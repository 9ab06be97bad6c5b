"""TPU systems, topologies and device assignments: names of ``tf.tpu.experimental``."""

from unisono._src.cluster.resolvers.tpu import TPUSystemMetadata as TPUSystemMetadata
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.tpu import core_grid as _core_grid
from unisono._src.machines.tpu.device_assignment import (
    DeviceAssignment as DeviceAssignment,
)
from unisono._src.workers.tpu_system import (
    initialize_tpu_system as initialize_tpu_system,
    shutdown_tpu_system as shutdown_tpu_system,
)

Topology = _core_grid.TPUTopology

_lazy_names.serve(__name__)
