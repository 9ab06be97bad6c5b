"""Finds the JAX devices that names in TensorFlow's spellings mean."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, final

import jax

from unisono._src.foundation import cpu_threads, jax_internals, whole_numbers
from unisono._src.foundation.tensorflow_names.everyday import everyday_name

_NUMBER = re.compile(r"[0-9]{1,5}")
_FORCED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")
# XLA joins the all-reduces of a program to one of many arrays, for which it calls Gloo
# once per array, and goes on with the next array after one has failed. Gloo then takes
# the rest of the failed call for the next one, and aborts the process if that is longer
# (decision 0028). All-reduces of one array each make as many calls, and end with the
# first that fails.
_ONE_ARRAY_PER_REDUCTION = "--xla_disable_hlo_passes=cpu-all-reduce-combiner"


@final
@dataclasses.dataclass(frozen=True, order=True)
class DeviceName:
    """A parsed device name; `str` gives the canonical full spelling.

    >>> str(parse("/gpu:1"))
    '/job:localhost/replica:0/task:0/device:GPU:1'
    """

    kind: str
    index: int
    job: str = "localhost"
    task: int = 0
    replica: int = 0

    def __str__(self) -> str:
        return (
            f"/job:{self.job}/replica:{self.replica}/task:{self.task}"
            f"/device:{self.kind}:{self.index}"
        )


@dataclasses.dataclass(frozen=True)
class LogicalDevice:
    """A device in the list that `unisono.config.list_logical_devices` returns.

    You can pass it to a strategy in place of a device name.

    Attributes:
        name: the device's name, such as ``/device:CPU:0``.
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``.

    >>> import unisono
    >>> first, second, *_ = unisono.config.list_logical_devices("CPU")
    >>> second.name, second.device_type
    ('/device:CPU:1', 'CPU')
    >>> unisono.distribute.MirroredStrategy([first, second]).num_replicas_in_sync
    2
    """

    name: str
    device_type: str


def parse(name: object) -> DeviceName:
    """Reads a device name such as ``GPU:0``, ``/gpu:0`` or ``/device:CPU:0``.

    Also takes a `LogicalDevice` or a `jax.Device`.

    Raises:
        ValueError: it is not a device's name.

    >>> parse("cpu:3").index, parse("/job:worker/task:1/device:CPU:0").job
    (3, 'worker')
    """
    if isinstance(name, jax.Device):
        return _name_of(name)
    text = name.name if isinstance(name, LogicalDevice) else name
    if not isinstance(text, str) or not text.strip("/ "):
        raise ValueError(f"Expected a device name such as 'GPU:0', received {name!r}.")
    fields: dict[str, str] = {}
    for part in text.strip("/ ").split("/"):
        key, _, rest = part.partition(":")
        key = key.lower()
        # In full names the kind stands behind `device:`, in short ones at the start.
        if key == "device":
            key, _, rest = rest.partition(":")
        if key.lower() in ("job", "task", "replica"):
            fields[key.lower()] = rest
        else:
            fields["kind"], fields["index"] = key.upper(), rest or "0"
    try:
        return DeviceName(
            fields["kind"],
            _parse_number(fields["index"]),
            fields.get("job", "localhost"),
            _parse_number(fields.get("task", "0")),
            _parse_number(fields.get("replica", "0")),
        )
    except (KeyError, ValueError):
        raise ValueError(
            f"Cannot read the device name {text[:200]!r}; expected a form such as "
            "'GPU:0', '/gpu:0' or '/job:worker/task:0/device:CPU:0'."
        ) from None


def _parse_number(text: str) -> int:
    """Returns the number, from 0, that a text of digits stands for.

    Raises:
        ValueError: there is something else, or a number that no device has.
    """
    # `int` would read signs, spaces, underscores and the digits of other scripts.
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _name_of(device: jax.Device) -> DeviceName:
    # A name counts the devices of one kind in this process, while `device.id` counts
    # those of all processes.
    same = [d for d in jax.local_devices(backend=device.client.platform)]
    return DeviceName(kind_of(device), same.index(device))


def names_of(found: Sequence[jax.Device], job: str, task: int) -> list[str]:
    """Returns the canonical names of all devices of one task, in their order."""
    kinds = [kind_of(d) for d in found]
    return [str(DeviceName(k, i, job, task)) for i, k in enumerate(kinds)]


def kind_of(device: jax.Device) -> str:
    """Returns the kind of a device: ``"CPU"``, ``"GPU"`` or ``"TPU"``."""
    is_gpu = device.platform in ("cuda", "rocm", "gpu")
    return "GPU" if is_gpu else device.platform.upper()


def count_wanted_cpus() -> int | None:
    """Returns the number of CPU devices that XLA's flag or JAX's option asks for.

    Returns:
        The number; None if neither is set.
    """
    flag = _FORCED.search(os.environ.get("XLA_FLAGS", ""))
    if flag:
        return int(flag.group(1))
    # JAX defines the attributes of its options at run time.
    options: Any = jax.config
    configured: int = options.jax_num_cpu_devices
    return configured if configured > 0 else None


@final
class _Backend:
    """The way in which JAX's backend was started; a process can start it only once."""

    pool_is_large: bool = False


_backend = _Backend()


def set_virtual_devices(count: int) -> None:
    """Splits the CPU into `count` devices, for programs without accelerators.

    Call it before anything uses JAX's devices: the number cannot change afterwards.

    >>> import unisono
    >>> unisono.config.set_virtual_devices(8)
    >>> len(unisono.config.list_logical_devices("CPU"))
    8

    Args:
        count: how many CPU devices JAX should have.

    Raises:
        TypeError: `count` is not a whole number.
        ValueError: `count` is not positive.
        RuntimeError: JAX is already running with a different number of devices.
    """
    count = whole_numbers.integer(count, "count")
    if count < 1:
        raise ValueError(f"Expected at least one virtual device, received {count}.")
    if is_started():
        have = len(jax.devices("cpu"))
        if have != count:
            raise RuntimeError(
                f"JAX is already running with {have} CPU device(s), so it cannot be "
                f"given {count}. Call unisono.config.set_virtual_devices({count}) "
                "before the first strategy, variable or array of the program."
            )
        return
    if count_wanted_cpus() != count:
        # XLA's flag would win over JAX's option.
        os.environ["XLA_FLAGS"] = _FORCED.sub("", os.environ.get("XLA_FLAGS", ""))
        jax.config.update("jax_num_cpu_devices", count)


def is_started() -> bool:
    """Whether JAX's backend already runs."""
    # JAX has no public way to ask this that does not start the backend.
    return jax_internals.backends_are_initialized()


def start(has_peers: bool = False, stall_seconds: float = 0.0) -> None:
    """Starts JAX's backend with a thread pool that is large enough for collectives.

    Does nothing where the backend already runs. See docs/decisions/0005.

    Args:
        has_peers: whether other processes take part in collectives.
        stall_seconds: how long a collective may wait for them; 0 for XLA's default.
    """
    if is_started():
        return
    count = count_wanted_cpus() or 1
    shares_pool = count > 1
    if not shares_pool and not has_peers:
        jax.local_devices()
        return
    wanted = {}
    if shares_pool:
        # A single device is faster with the pool that XLA makes by itself.
        wanted[cpu_threads.VARIABLE] = str(cpu_threads.count_threads(count))
    if has_peers:
        flags = [os.environ.get("XLA_FLAGS", ""), _ONE_ARRAY_PER_REDUCTION]
        if stall_seconds:
            # Else native code waits on, and Python can raise nothing (decision 0013).
            seconds = max(1, round(stall_seconds))
            flags.append(f"--xla_cpu_collective_timeout_seconds={seconds}")
        wanted["XLA_FLAGS"] = " ".join(flags)
    with _set_environment(wanted):
        # JAX starts all its backends with the first question for a device.
        jax.local_devices(backend="cpu")
        _backend.pool_is_large = shares_pool


@contextlib.contextmanager
def _set_environment(wanted: dict[str, str]) -> Iterator[None]:
    """Sets variables that XLA reads once, while it starts, and restores them after."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def has_large_pool() -> bool:
    """Whether `start` has made a thread pool that is large enough for any step."""
    return _backend.pool_is_large


def resolve(names: Iterable[object]) -> tuple[tuple[str, ...], tuple[jax.Device, ...]]:
    """Returns the canonical names and the JAX devices of the named devices.

    Makes virtual CPU devices for names such as ``CPU:3`` if JAX has not started yet.

    Raises:
        AssertionError: a device is named twice.
        TypeError: it is no list of names.
        ValueError: there is no such device.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(
            "Expected a list of device names such as ['GPU:0', 'GPU:1'], received "
            f"{names!r}."
        )
    parsed = [parse(n) for n in names]
    texts = tuple(str(p) for p in parsed)
    if len(set(texts)) != len(texts):
        raise AssertionError(f"No duplicates allowed in `devices` argument: {texts}")
    cpus = [p.index + 1 for p in parsed if p.kind == "CPU"]
    # Naming a device asks for it, unless the program has asked for a number itself.
    if cpus and not is_started() and count_wanted_cpus() is None and max(cpus) > 1:
        jax.config.update("jax_num_cpu_devices", max(cpus))
    start()
    return texts, tuple(_find(p) for p in parsed)


def _find(name: DeviceName) -> jax.Device:
    try:
        # JAX raises if it has no devices of a kind at all.
        there = jax.local_devices(backend=name.kind.lower())
    except RuntimeError:
        there = []
    if name.index < len(there):
        return there[name.index]
    have = ", ".join(f"{name.kind}:{i}" for i in range(len(there))) or "none"
    if name.kind == "CPU":
        remedy = (
            f"call unisono.config.set_virtual_devices({name.index + 1}) before the "
            "first strategy, variable or array of the program"
        )
    else:
        remedy = "choose one of those, or CPU devices"
    raise ValueError(
        f"There is no device {name.kind}:{name.index}; JAX has these of its kind: "
        f"{have}. To change that, {remedy}."
    )


def default_names() -> tuple[str, ...]:
    """Returns the names of this process's accelerators, else of its CPU devices."""
    start()
    return tuple(str(_name_of(d)) for d in jax.local_devices())


@everyday_name(
    "config.list_logical_devices", "config.experimental.list_logical_devices"
)
def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """Returns the devices of this process, of all types or of one type.

    >>> import unisono
    >>> [d.name for d in unisono.config.list_logical_devices("CPU")][:2]
    ['/device:CPU:0', '/device:CPU:1']
    >>> unisono.config.list_logical_devices("GPU")
    []

    Args:
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``; None lists the kind that JAX
            uses by default.

    Returns:
        The devices; an empty list if this process has none of the type.

    Raises:
        TypeError: `device_type` is not a string.
    """
    if device_type is not None and not isinstance(device_type, str):
        raise TypeError(
            "`device_type` must be 'CPU', 'GPU', 'TPU' or None, received "
            f"{device_type!r}."
        )
    start()
    try:
        found = jax.local_devices(backend=device_type.lower() if device_type else None)
    except RuntimeError:
        return []
    names = [_name_of(d) for d in found]
    return [LogicalDevice(f"/device:{n.kind}:{n.index}", n.kind) for n in names]
