"""Devices of this process."""

import typing as _typing

from unisono._src import later as _later
from unisono._src.devices import (
    LogicalDevice,
    list_logical_devices,
    set_virtual_devices,
)

if _typing.TYPE_CHECKING:
    from unisono._src.tpu.system import experimental_connect_to_cluster

# Loaded on first use: not every program has a TPU.
__getattr__, __dir__ = _later.names(
    "unisono.config", {"experimental_connect_to_cluster": "unisono._src.tpu.system"}
)

__all__ = [
    "LogicalDevice",
    "experimental_connect_to_cluster",
    "list_logical_devices",
    "set_virtual_devices",
]
