"""Functions that list and set up devices, under the names of ``tf.config``.

`run_functions_eagerly` says how functions are called. `set_virtual_devices` is not in
TensorFlow.
"""

import typing as _typing

from unisono._src.execution.function import (
    functions_run_eagerly,
    run_functions_eagerly,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.devices import (
    LogicalDevice,
    list_logical_devices,
    set_virtual_devices,
)

if _typing.TYPE_CHECKING:
    from unisono._src.machines.physical_devices import (
        LogicalDeviceConfiguration,
        PhysicalDevice,
        get_logical_device_configuration,
        get_visible_devices,
        list_physical_devices,
        set_logical_device_configuration,
        set_visible_devices,
    )
    from unisono._src.ops.device_scope import (
        get_soft_device_placement,
        set_soft_device_placement,
    )
    from unisono._src.workers.tpu_system import experimental_connect_to_cluster
    from unisono.config import experimental, optimizer, threading

# Loaded on first use: not every program has a TPU, or says how devices are split.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    _physical = "unisono._src.machines.physical_devices"
    __getattr__, __dir__ = _lazy_names.make_lookups(
        "unisono.config",
        {
            "LogicalDeviceConfiguration": _physical,
            "PhysicalDevice": _physical,
            "experimental": "unisono.config",
            "experimental_connect_to_cluster": "unisono._src.workers.tpu_system",
            "get_logical_device_configuration": _physical,
            "get_soft_device_placement": "unisono._src.ops.device_scope",
            "get_visible_devices": _physical,
            "list_physical_devices": _physical,
            "optimizer": "unisono.config",
            "set_logical_device_configuration": _physical,
            "set_soft_device_placement": "unisono._src.ops.device_scope",
            "set_visible_devices": _physical,
            "threading": "unisono.config",
        },
    )

# Older names of TensorFlow.
experimental_functions_run_eagerly = functions_run_eagerly
experimental_run_functions_eagerly = run_functions_eagerly

__all__ = [
    "LogicalDevice",
    "LogicalDeviceConfiguration",
    "PhysicalDevice",
    "experimental",
    "experimental_connect_to_cluster",
    "experimental_functions_run_eagerly",
    "experimental_run_functions_eagerly",
    "functions_run_eagerly",
    "get_logical_device_configuration",
    "get_soft_device_placement",
    "get_visible_devices",
    "list_logical_devices",
    "list_physical_devices",
    "optimizer",
    "run_functions_eagerly",
    "set_logical_device_configuration",
    "set_soft_device_placement",
    "set_virtual_devices",
    "set_visible_devices",
    "threading",
]
