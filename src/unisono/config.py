"""Devices of this process."""

from unisono._src.devices import (
    LogicalDevice,
    list_logical_devices,
    set_virtual_devices,
)

__all__ = ["LogicalDevice", "list_logical_devices", "set_virtual_devices"]
