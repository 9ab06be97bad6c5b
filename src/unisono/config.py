"""Devices of this process."""

from unisono._src.devices import (
    LogicalDevice,
    list_logical_devices,
    set_virtual_devices,
)
from unisono._src.tpu.system import experimental_connect_to_cluster

__all__ = [
    "LogicalDevice",
    "experimental_connect_to_cluster",
    "list_logical_devices",
    "set_virtual_devices",
]
