"""Functions for the memory of devices, and older names of ``tf.config``."""

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines import physical_devices as _physical_devices
from unisono._src.machines.devices import list_logical_devices as list_logical_devices
from unisono._src.machines.physical_devices import (
    enable_op_determinism as enable_op_determinism,
    enable_tensor_float_32_execution as enable_tensor_float_32_execution,
    get_device_details as get_device_details,
    get_memory_growth as get_memory_growth,
    get_memory_info as get_memory_info,
    get_visible_devices as get_visible_devices,
    list_physical_devices as list_physical_devices,
    set_memory_growth as set_memory_growth,
    set_visible_devices as set_visible_devices,
    tensor_float_32_execution_enabled as tensor_float_32_execution_enabled,
)

VirtualDeviceConfiguration = _physical_devices.LogicalDeviceConfiguration
get_virtual_device_configuration = _physical_devices.get_logical_device_configuration
set_virtual_device_configuration = _physical_devices.set_logical_device_configuration

_lazy_names.serve(__name__)
