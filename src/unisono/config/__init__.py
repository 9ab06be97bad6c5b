"""Functions that list and set up devices, under the names of ``tf.config``.

`run_functions_eagerly` chooses whether functions run compiled. `set_virtual_devices` is
not in TensorFlow.
"""

import typing as _typing

from unisono._src.execution.call_modes import (
    functions_run_eagerly as functions_run_eagerly,
    run_functions_eagerly as run_functions_eagerly,
)
from unisono._src.foundation import lazy_names as _lazy_names
from unisono._src.machines.devices import (
    LogicalDevice as LogicalDevice,
    list_logical_devices as list_logical_devices,
    set_virtual_devices as set_virtual_devices,
)

# Loaded on first use: not every program has a TPU, or says how devices are split.
if _typing.TYPE_CHECKING:
    from unisono._src.machines.physical_devices import (
        LogicalDeviceConfiguration as LogicalDeviceConfiguration,
        PhysicalDevice as PhysicalDevice,
        get_logical_device_configuration as get_logical_device_configuration,
        get_visible_devices as get_visible_devices,
        list_physical_devices as list_physical_devices,
        set_logical_device_configuration as set_logical_device_configuration,
        set_visible_devices as set_visible_devices,
    )
    from unisono._src.ops.scopes import (
        get_soft_device_placement as get_soft_device_placement,
        set_soft_device_placement as set_soft_device_placement,
    )
    from unisono._src.workers.tpu_system import (
        experimental_connect_to_cluster as experimental_connect_to_cluster,
    )
    from unisono.config import (
        experimental as experimental,
        optimizer as optimizer,
        threading as threading,
    )


# Older names of TensorFlow.
experimental_functions_run_eagerly = functions_run_eagerly
experimental_run_functions_eagerly = run_functions_eagerly

_lazy_names.serve(__name__)
