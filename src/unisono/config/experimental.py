"""Memory of devices, and older names of ``tf.config``."""

import typing as _typing

from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.devices import list_logical_devices
from unisono._src.machines.physical_devices import (
    LogicalDeviceConfiguration,
    enable_op_determinism,
    enable_tensor_float_32_execution,
    get_device_details,
    get_logical_device_configuration,
    get_memory_growth,
    get_memory_info,
    get_visible_devices,
    list_physical_devices,
    set_logical_device_configuration,
    set_memory_growth,
    set_visible_devices,
    tensor_float_32_execution_enabled,
)

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.config.experimental", {})

VirtualDeviceConfiguration = LogicalDeviceConfiguration
get_virtual_device_configuration = get_logical_device_configuration
set_virtual_device_configuration = set_logical_device_configuration

# Tells what to write for TensorFlow's names that are not here.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.make_lookups("unisono.config.experimental", {})

__all__ = [
    "VirtualDeviceConfiguration",
    "enable_op_determinism",
    "enable_tensor_float_32_execution",
    "get_device_details",
    "get_memory_growth",
    "get_memory_info",
    "get_virtual_device_configuration",
    "get_visible_devices",
    "list_logical_devices",
    "list_physical_devices",
    "set_memory_growth",
    "set_virtual_device_configuration",
    "set_visible_devices",
    "tensor_float_32_execution_enabled",
]
