"""Scopes of TensorFlow: names, devices, and leaving a compiled function."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from types import TracebackType
from typing import ClassVar, final

import jax

from unisono._src.foundation import ambient, errors
from unisono._src.foundation.tensorflow_names.everyday import everyday_name
from unisono._src.machines import devices
from unisono._src.machines.devices import LogicalDevice
from unisono._src.ops import bodies
from unisono._src.values import jax_traces

__all__ = [
    "get_current_name_scope",
    "init_scope",
    "name_scope",
]


@everyday_name("name_scope")
@final
class name_scope:
    """Prefixes the names of variables and operations that a block creates.

    Args:
        name: the prefix, which is appended to those of the blocks around it. If it ends
            with ``/``, it replaces them. An empty string removes them.

    Raises:
        ValueError: `name` is not a string.

    >>> import unisono
    >>> with name_scope("outer"), name_scope("inner") as full:
    ...     print(full, unisono.Variable(1.0, name="v").name)
    outer/inner/ outer/inner/v:0
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ValueError("name for name_scope must be a string.")
        self._name = name
        self._open: list[contextlib.ExitStack] = []

    @property
    def name(self) -> str:
        """The name that was passed to the constructor."""
        return self._name

    def __enter__(self) -> str:
        frame = ambient.current()
        whole = self._name
        if whole and not whole.endswith("/"):
            whole = f"{frame.names}{whole}/"
        stack = contextlib.ExitStack()
        stack.enter_context(ambient.push(names=whole))
        # Only names of a program being traced are ever shown. Replicas that take turns
        # would leave JAX's stack of names in another order than they entered it.
        is_alone = getattr(frame.port, "made", None) is None
        if is_alone and self._name and not jax_traces.is_clean():
            stack.enter_context(jax.named_scope(self._name.rstrip("/")))
        self._open.append(stack)
        return whole

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.pop().close()


@everyday_name("get_current_name_scope")
def get_current_name_scope() -> str:
    """Returns the names of the open `name_scope` blocks, without the last ``/``.

    >>> with name_scope("outer"), name_scope("inner"):
    ...     get_current_name_scope()
    'outer/inner'
    """
    return ambient.current().names.removesuffix("/")


_log = logging.getLogger("unisono")


@final
class _SoftPlacement:
    """Holds whether missing devices may be replaced, and which ones were."""

    is_on = True
    told: ClassVar[set[str]] = set()


@everyday_name("config.set_soft_device_placement")
def set_soft_device_placement(enabled: bool) -> None:
    """Sets whether `device` uses the default device if a device does not exist.

    Args:
        enabled: True (the initial setting), or False to raise an error instead.

    >>> import unisono
    >>> unisono.config.set_soft_device_placement(True)
    """
    _SoftPlacement.is_on = bool(enabled)


@everyday_name("config.get_soft_device_placement")
def get_soft_device_placement() -> bool:
    """Returns whether `device` uses the default device if a device does not exist.

    >>> import unisono
    >>> unisono.config.get_soft_device_placement()
    True
    """
    return _SoftPlacement.is_on


@everyday_name("device", difference="It has no effect in a `function` or in replicas.")
def device(
    device_name: str | LogicalDevice | jax.Device | None,
) -> contextlib.AbstractContextManager[None]:
    """Returns a context manager that creates the values of its block on a device.

    It has no effect in a compiled `function` or in a replica, where the strategy
    determines the devices.

    Args:
        device_name: a name such as ``"/GPU:0"``, ``"CPU:1"`` or
            ``"/job:localhost/task:0/device:CPU:0"``. None, or a name without a kind of
            device, means the default device.

    Raises:
        InvalidArgumentError: the device does not exist, and
            `config.set_soft_device_placement(False)` was called. Otherwise a warning
            is logged, and the block uses the default device.
        ValueError: `device_name` is not the name of a device.

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
        return devices.resolve([_short_name(parsed)])[1][0]
    except ValueError:
        _report_missing(str(parsed))
        return None


def _short_name(found: devices.DeviceName) -> str:
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


@everyday_name(
    "init_scope",
    difference=(
        "In a replica of a compiled step the block runs in cross-replica context."
    ),
)
@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Runs a block eagerly and outside tapes, even while a function is traced.

    The block runs each time the `function` is traced, not when the compiled program
    runs. It reads and assigns variables as code outside the function does, and cannot
    use arrays that the function computes. In a replica of a compiled step, the block
    runs in cross-replica context.

    Raises:
        TypeError: the block uses an array that the function computes.

    >>> import unisono
    >>> count = unisono.Variable(0)
    >>> @unisono.function
    ... def step(x):
    ...     with unisono.init_scope():
    ...         count.assign_add(1)
    ...     return x + 1
    >>> int(step(1)), int(step(1)), int(count.numpy())
    (2, 2, 1)
    """
    frame = ambient.current()
    # A tape never follows the block. In a program it also leaves replica and frame, but
    # keeps the strategy, its placement, and how variables are made and named.
    changes = {"tape": None}
    if bodies.is_traced():
        mode = ambient.REPLICA if frame.strategy is None else ambient.CROSS
        outside = ambient.ROOT._replace(
            strategy=frame.strategy,
            mode=mode,
            placement=frame.placement,
            creators=frame.creators,
            outer_creators=frame.outer_creators,
            names=frame.names,
        )
        changes = outside._asdict()
    with ambient.push(**changes), jax_traces.compute_at_once():
        try:
            yield
        except jax.errors.UnexpectedTracerError as error:
            raise TypeError(
                "The block of init_scope uses an array that the function around it "
                "computes. It runs while the function is traced, when that array has "
                "no value yet: move the line out of the block."
            ) from error
