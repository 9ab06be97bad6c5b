"""The processors of the machine, and how they are split into the devices of JAX.

A machine has one physical CPU here, as in TensorFlow. What is said about devices counts
until JAX's backend starts, which the first array, variable or strategy does.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from typing import ClassVar, final

import jax

from unisono._src.cluster import accelerators
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.machines import devices
from unisono._src.machines.devices import LogicalDevice

_KINDS = ("CPU", "GPU", "TPU")
# Without one of these packages JAX does not use a GPU that is there.
_CUDA = ("jax_cuda12_plugin", "jax_cuda13_plugin")


@everyday_name("config.PhysicalDevice")
@final
@dataclasses.dataclass(frozen=True)
class PhysicalDevice:
    """A processor of the machine, in the list of `list_physical_devices`.

    Attributes:
        name: the processor's name, such as ``/physical_device:CPU:0``.
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``.

    >>> PhysicalDevice(name="/physical_device:CPU:0", device_type="CPU").device_type
    'CPU'
    """

    name: str
    device_type: str


@everyday_name(
    "config.LogicalDeviceConfiguration",
    "config.experimental.VirtualDeviceConfiguration",
)
@final
@dataclasses.dataclass(frozen=True)
class LogicalDeviceConfiguration:
    """One of the devices that a processor is split into.

    Attributes:
        memory_limit: the memory of the device in megabytes. JAX cannot limit it, so
            any value except None raises an error when it is set.
        experimental_priority: not used; must be None for CPUs.
        experimental_device_ordinal: not used.

    >>> LogicalDeviceConfiguration().memory_limit is None
    True
    """

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


@final
class _Choices:
    """The program's settings of the processors."""

    logical: ClassVar[dict[PhysicalDevice, list[LogicalDeviceConfiguration]]] = {}
    visible: ClassVar[dict[str, list[PhysicalDevice]]] = {}


@everyday_name(
    "config.list_physical_devices", "config.experimental.list_physical_devices"
)
def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the processors of this machine, of all types or of one type.

    It does not start JAX's backend, so you can still set how they are used.

    Args:
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``; None for all.

    >>> import unisono
    >>> unisono.config.list_physical_devices("CPU")
    [PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')]
    """
    wanted = _KINDS if device_type is None else (device_type,)
    return [
        PhysicalDevice(f"/physical_device:{kind}:{i}", kind)
        for kind in wanted
        for i in range(_count(kind))
    ]


def _count(kind: str) -> int:
    if kind == "CPU":
        return 1
    # After the start JAX tells; before it, asking JAX would start it.
    if devices.is_started() and kind not in _Choices.visible:
        return len(devices.list_logical_devices(kind)) if kind in _KINDS else 0
    # JAX defines the attributes of its options at run time.
    platforms = (getattr(jax.config, "jax_platforms", None) or "").lower().split(",")
    if platforms[0] == "cpu" and kind not in _Choices.visible:
        return 0
    if kind == "GPU" and not any(map(importlib.util.find_spec, _CUDA)):
        return 0
    return accelerators.count().get(kind, 0)


@everyday_name("config.get_visible_devices", "config.experimental.get_visible_devices")
def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """Returns the processors that the program uses.

    Args:
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``; None for all.

    >>> import unisono
    >>> [d.device_type for d in unisono.config.get_visible_devices("CPU")]
    ['CPU']
    """
    wanted = _KINDS if device_type is None else (device_type,)
    return [
        found
        for kind in wanted
        for found in _Choices.visible.get(kind, list_physical_devices(kind))
    ]


@everyday_name(
    "config.set_visible_devices",
    "config.experimental.set_visible_devices",
    difference="The CPU cannot be hidden.",
)
def set_visible_devices(
    devices: PhysicalDevice | Sequence[PhysicalDevice], device_type: str | None = None
) -> None:
    """Chooses the processors that the program uses, before JAX has started.

    Args:
        devices: some of the processors that `list_physical_devices` returns. If there
            are none of a type, the program uses no processor of that type.
        device_type: the type of processors to choose; None for all types.

    Raises:
        RuntimeError: JAX has already started with other processors.
        ValueError: a processor does not exist or has another type, or the CPU or some
            chips of a TPU would be hidden.

    >>> import unisono
    >>> unisono.config.set_visible_devices(unisono.config.list_physical_devices("CPU"))
    """
    chosen = [devices] if isinstance(devices, PhysicalDevice) else list(devices)
    there = list_physical_devices()
    for one in chosen:
        if one not in there:
            raise ValueError(f"Unrecognized device: {one}")
        if device_type is not None and one.device_type != device_type:
            raise ValueError(f"Unrecognized device: {one}; it is no {device_type}.")
    for kind in _KINDS if device_type is None else (device_type,):
        _show([d for d in chosen if d.device_type == kind], kind)


def _show(chosen: list[PhysicalDevice], kind: str) -> None:
    """Lets JAX use the chosen processors of a kind, and no others of it."""
    before = get_visible_devices(kind)
    if chosen == before:
        return
    if is_started():
        raise RuntimeError("Visible devices cannot be modified after being initialized")
    if kind == "CPU":
        raise ValueError("The CPU cannot be hidden: programs always use it.")
    if kind == "TPU" and chosen:
        raise ValueError(
            "Some TPU chips cannot be hidden; set TPU_VISIBLE_CHIPS before the program "
            "starts, or give the strategy the devices that it shall use."
        )
    if chosen:
        numbers = ",".join(d.name.rpartition(":")[2] for d in chosen)
        jax.config.update("jax_cuda_visible_devices", numbers)
    else:
        jax.config.update("jax_platforms", "cpu")
    _Choices.visible[kind] = chosen


is_started = devices.is_started


@everyday_name(
    "config.set_logical_device_configuration",
    "config.experimental.set_virtual_device_configuration",
    difference="A GPU cannot be split, and its memory cannot be limited.",
)
def set_logical_device_configuration(
    device: PhysicalDevice, logical_devices: Sequence[LogicalDeviceConfiguration]
) -> None:
    """Splits the CPU into several devices, before JAX has started.

    Args:
        device: one of `list_physical_devices`.
        logical_devices: a `LogicalDeviceConfiguration` for each device.

    Raises:
        NotImplementedError: `device` is a GPU or TPU, and you ask for several devices
            or a memory limit.
        RuntimeError: JAX has already started with a different number of devices.
        ValueError: `device` does not exist, `logical_devices` is empty, or you set a
            memory limit or a priority for a CPU.

    >>> import unisono
    >>> cpu = unisono.config.list_physical_devices("CPU")[0]
    >>> eight = [unisono.config.LogicalDeviceConfiguration()] * 8
    >>> unisono.config.set_logical_device_configuration(cpu, eight)
    >>> len(unisono.config.list_logical_devices("CPU"))
    8
    """
    _check_exists(device)
    wanted = list(logical_devices)
    if device.device_type != "CPU":
        if len(wanted) == 1 and wanted[0].memory_limit is None:
            _Choices.logical[device] = wanted
            return
        raise NotImplementedError(
            f"JAX cannot split a {device.device_type} into several devices, nor limit "
            "its memory to a number of megabytes. Set XLA_PYTHON_CLIENT_MEM_FRACTION "
            "before the program starts to limit the memory; test with several devices "
            "on the CPU."
        )
    for one in wanted:
        if one.memory_limit is not None:
            raise ValueError(
                "Setting memory limit on CPU virtual devices is currently not supported"
            )
        if one.experimental_priority is not None:
            raise ValueError(
                "Setting experimental_priority on CPU virtual devices is currently not "
                "supported"
            )
    if not wanted:
        raise ValueError("`logical_devices` must name at least one device.")
    try:
        devices.set_virtual_devices(len(wanted))
    except RuntimeError as error:
        raise RuntimeError(
            f"Virtual devices cannot be modified after being initialized. {error}"
        ) from None
    _Choices.logical[device] = wanted


@everyday_name(
    "config.get_logical_device_configuration",
    "config.experimental.get_virtual_device_configuration",
)
def get_logical_device_configuration(
    device: PhysicalDevice,
) -> list[LogicalDeviceConfiguration] | None:
    """Returns how a processor is split into devices; None if this was not set.

    Args:
        device: one of `list_physical_devices`.

    Raises:
        ValueError: there is no such processor.

    >>> import unisono
    >>> cpu = unisono.config.list_physical_devices("CPU")[0]
    >>> unisono.config.set_logical_device_configuration(
    ...     cpu, [unisono.config.LogicalDeviceConfiguration()] * 8
    ... )
    >>> len(unisono.config.get_logical_device_configuration(cpu))
    8
    """
    _check_exists(device)
    return _Choices.logical.get(device)


def _check_exists(device: PhysicalDevice) -> None:
    if device not in list_physical_devices():
        raise ValueError(f"Unrecognized device: {device!r}")


@everyday_name(
    "config.experimental.set_memory_growth",
    difference="The setting applies to all GPUs of the process.",
)
def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Lets JAX allocate GPU memory when it needs it, instead of most of it at once.

    The setting applies to all GPUs of the process. Set it before JAX has started.

    Args:
        device: a GPU from `list_physical_devices`.
        enable: whether JAX allocates memory when it needs it.

    Raises:
        RuntimeError: JAX has already started.
        ValueError: `device` is not a GPU.

    >>> import unisono
    >>> for gpu in unisono.config.list_physical_devices("GPU"):
    ...     unisono.config.experimental.set_memory_growth(gpu, True)
    """
    _check_exists(device)
    if device.device_type != "GPU":
        raise ValueError(
            "Cannot set memory growth on non-GPU and non-Pluggable devices"
        )
    if get_memory_growth(device) == enable:
        return
    if is_started():
        raise RuntimeError(
            "Physical devices cannot be modified after being initialized"
        )
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false" if enable else "true"


@everyday_name("config.experimental.get_memory_growth")
def get_memory_growth(device: PhysicalDevice) -> bool:
    """Returns whether JAX allocates GPU memory when it needs it.

    Args:
        device: a GPU of `list_physical_devices`.

    Raises:
        ValueError: there is no such processor.

    >>> import unisono
    >>> unisono.config.experimental.get_memory_growth(
    ...     unisono.config.list_physical_devices("CPU")[0]
    ... )
    False
    """
    _check_exists(device)
    told = os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "true").lower()
    return device.device_type == "GPU" and told in ("false", "0")


@everyday_name("config.experimental.get_memory_info")
def get_memory_info(device: str | LogicalDevice) -> dict[str, int]:
    """Returns the number of bytes in use on a device: ``current`` and ``peak``.

    Args:
        device: the name of a device, such as ``"GPU:0"``.

    Raises:
        ValueError: there is no such device.

    >>> sorted(get_memory_info("CPU:0"))
    ['current', 'peak']
    """
    found = devices.resolve([device])[1][0]
    # The CPU counts nothing.
    told = found.memory_stats() or {}
    return {
        "current": int(told.get("bytes_in_use", 0)),
        "peak": int(told.get("peak_bytes_in_use", 0)),
    }


@everyday_name(
    "config.experimental.get_device_details",
    difference="The details of a GPU do not include `compute_capability`.",
)
def get_device_details(device: PhysicalDevice) -> dict[str, str]:
    """Returns the details of a processor; an empty dictionary for a CPU.

    Args:
        device: one of `list_physical_devices`.

    Returns:
        For a GPU or TPU, its ``device_name``. This starts JAX, if it has not started.

    Raises:
        ValueError: there is no such processor.

    >>> import unisono
    >>> (cpu,) = unisono.config.list_physical_devices("CPU")
    >>> unisono.config.experimental.get_device_details(cpu)
    {}
    """
    _check_exists(device)
    if device.device_type == "CPU":
        return {}
    found = devices.resolve([device.name.removeprefix("/physical_device:")])[1][0]
    return {"device_name": found.device_kind}


@everyday_name("config.experimental.enable_op_determinism")
def enable_op_determinism() -> None:
    """Makes GPUs compute the same numbers in every run.

    Call it before JAX has started. CPUs and TPUs always compute the same numbers.

    Raises:
        RuntimeError: JAX has already started, and has a GPU.

    >>> import unisono
    >>> unisono.config.experimental.enable_op_determinism()
    """
    flag = "--xla_gpu_deterministic_ops=true"
    flags = os.environ.get("XLA_FLAGS", "")
    if flag in flags or not list_physical_devices("GPU"):
        return
    if is_started():
        raise RuntimeError(
            "enable_op_determinism was called after JAX has started. Call it before "
            "the first strategy, variable or array of the program."
        )
    os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()


@everyday_name("config.experimental.enable_tensor_float_32_execution")
def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Sets whether GPUs may multiply float32 matrices with fewer bits (the default).

    Args:
        enabled: False to use all bits of float32.

    >>> enable_tensor_float_32_execution(True)
    """
    jax.config.update("jax_default_matmul_precision", None if enabled else "float32")


@everyday_name("config.experimental.tensor_float_32_execution_enabled")
def tensor_float_32_execution_enabled() -> bool:
    """Returns whether GPUs may multiply float32 matrices with fewer bits.

    >>> tensor_float_32_execution_enabled()
    True
    """
    told = getattr(jax.config, "jax_default_matmul_precision", None)
    return told not in ("float32", "highest")
