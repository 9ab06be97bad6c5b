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
    from unisono._src.workers.tpu_system import experimental_connect_to_cluster

# Loaded on first use: not every program has a TPU.
if not _typing.TYPE_CHECKING:  # A checker would take any name for one of these.
    __getattr__, __dir__ = _lazy_names.names(
        "unisono.config",
        {"experimental_connect_to_cluster": "unisono._src.workers.tpu_system"},
    )

__all__ = [
    "LogicalDevice",
    "experimental_connect_to_cluster",
    "functions_run_eagerly",
    "list_logical_devices",
    "run_functions_eagerly",
    "set_virtual_devices",
]
