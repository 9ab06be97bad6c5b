"""`device`: a block whose values are made on a device of the program's choice."""

from __future__ import annotations

import contextlib
import logging
from typing import ClassVar, final

import jax

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.machines import devices
from unisono._src.machines.devices import LogicalDevice
from unisono._src.values import jax_traces

_log = logging.getLogger("unisono")


@final
class _SoftPlacement:
    """Holds whether missing devices may be replaced, and which ones were."""

    is_on = True
    told: ClassVar[set[str]] = set()


@everyday_name("config.set_soft_device_placement")
def set_soft_device_placement(enabled: bool) -> None:
    """Sets whether `device` takes the default device for one that is missing.

    Args:
        enabled: True, as at the start, or False to get an error.

    >>> import unisono
    >>> unisono.config.set_soft_device_placement(True)
    """
    _SoftPlacement.is_on = bool(enabled)


@everyday_name("config.get_soft_device_placement")
def get_soft_device_placement() -> bool:
    """Returns whether `device` takes the default device for one that is missing.

    >>> import unisono
    >>> unisono.config.get_soft_device_placement()
    True
    """
    return _SoftPlacement.is_on


@everyday_name(
    "device", difference="It changes nothing in a `function` and in replicas."
)
def device(
    device_name: str | LogicalDevice | jax.Device | None,
) -> contextlib.AbstractContextManager[None]:
    """Returns a context manager whose block makes its values on a device.

    In a compiled `function` and in a replica it changes nothing: the strategy has
    placed them.

    Args:
        device_name: a name such as ``"/GPU:0"``, ``"CPU:1"`` or
            ``"/job:localhost/task:0/device:CPU:0"``; a name without a kind of device,
            or None, means the default device.

    Raises:
        InvalidArgumentError: there is no such device, and
            `config.set_soft_device_placement(False)` was called. Otherwise the log says
            so, and the block uses the default device.
        ValueError: it is no name of a device.

    >>> import jax.numpy as jnp
    >>> with device("/CPU:1"):
    ...     print(jnp.zeros(2).devices())
    {CpuDevice(id=1)}
    """
    found = _find(device_name)
    frame = ambient.current()
    is_placed = frame.port is not None or frame.mode == ambient.UPDATE
    if is_placed or frame.state is not None or not jax_traces.is_clean():
        return contextlib.nullcontext()
    chosen: contextlib.AbstractContextManager[None] = jax.default_device(found)
    return chosen


def _find(given: object) -> jax.Device | None:
    """Returns the device of a name, or None for the default one."""
    if given is None or isinstance(given, jax.Device):
        return given
    if not isinstance(given, (str, LogicalDevice)):
        raise ValueError(f"Expecting a string device name. Got {type(given)}({given})")
    text = given if isinstance(given, str) else given.name
    keys = {part.partition(":")[0].lower() for part in text.strip("/ ").split("/")}
    # Such a name says on which machine, and not on which device.
    if not keys - {"", "job", "task", "replica"}:
        return None
    parsed = devices.parse(text)
    if parsed.kind not in ("CPU", "GPU", "TPU"):
        raise ValueError(
            f"Unknown attribute '{parsed.kind}' is encountered while parsing the "
            f"device spec: '{text}'."
        )
    try:
        return devices.resolve([short_name(parsed)])[1][0]
    except ValueError:
        _report_missing(str(parsed))
        return None


def short_name(found: devices.DeviceName) -> str:
    """Returns the short name of a device of this process."""
    return f"{found.kind}:{found.index}"


def _report_missing(wanted: str) -> None:
    """Says that there is no such device, in the log or as an error."""
    kinds = ("CPU", "GPU", "TPU")
    there = [d.name for kind in kinds for d in devices.list_logical_devices(kind)]
    have = ", ".join(there)
    if not _SoftPlacement.is_on:
        raise errors.InvalidArgumentError(
            f"Could not satisfy device specification '{wanted}'. "
            f"enable_soft_placement=0. All available devices [{have}]."
        )
    if wanted not in _SoftPlacement.told:
        _SoftPlacement.told.add(wanted)
        _log.warning(
            "There is no device %s; the block uses the default device. There are: %s. "
            "unisono.config.set_soft_device_placement(False) makes this an error.",
            wanted,
            have,
        )
