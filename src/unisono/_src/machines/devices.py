"""Device names in TensorFlow's spellings, and the JAX devices they mean."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import final

import jax
from jax._src import xla_bridge

from unisono._src.foundation import cpu_threads
from unisono._src.foundation.public_names import publish

_PART = re.compile(r"(job|replica|task|device|[a-z]+):([^/]*)", re.IGNORECASE)
_FORCED = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


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
    """A device as `unisono.config.list_logical_devices` lists it."""

    name: str
    device_type: str


def parse(name: object) -> DeviceName:
    """Read a device name such as ``GPU:0``, ``/gpu:0`` or ``/device:CPU:0``.

    Also takes a `LogicalDevice` or a `jax.Device`.

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
        if key == "device":
            key, _, rest = rest.partition(":")
        if key.lower() in ("job", "task", "replica"):
            fields[key.lower()] = rest
        else:
            fields["kind"], fields["index"] = key.upper(), rest or "0"
    try:
        return DeviceName(
            fields["kind"],
            int(fields["index"]),
            fields.get("job", "localhost"),
            int(fields.get("task", "0")),
            int(fields.get("replica", "0")),
        )
    except (KeyError, ValueError):
        raise ValueError(
            f"Cannot read the device name {text!r}; expected a form such as 'GPU:0', "
            "'/gpu:0' or '/job:worker/task:0/device:CPU:0'."
        ) from None


def _name_of(device: jax.Device) -> DeviceName:
    same = [d for d in jax.local_devices(backend=device.client.platform)]
    return DeviceName(kind_of(device), same.index(device))


def names_of(found: Sequence[jax.Device], job: str, task: int) -> list[str]:
    """Canonical names of all devices of one task, in their order."""
    kinds = [kind_of(d) for d in found]
    return [str(DeviceName(k, i, job, task)) for i, k in enumerate(kinds)]


def kind_of(device: jax.Device) -> str:
    """``"CPU"``, ``"GPU"`` or ``"TPU"``."""
    is_gpu = device.platform in ("cuda", "rocm", "gpu")
    return "GPU" if is_gpu else device.platform.upper()


def virtual_cpus_wanted() -> int | None:
    """The number of CPU devices asked of XLA by flag or JAX option, if any."""
    flag = _FORCED.search(os.environ.get("XLA_FLAGS", ""))
    if flag:
        return int(flag.group(1))
    configured = jax.config._read("jax_num_cpu_devices")
    return configured if configured > 0 else None


@final
class _Backend:
    """What is known of JAX's backend; it can be started only once."""

    pool_is_large: bool = False


_backend = _Backend()


def set_virtual_devices(count: int) -> None:
    """Split the CPU into `count` devices, for programs without accelerators.

    Call it before anything uses JAX's devices: the number cannot change afterwards.

    Args:
        count: how many CPU devices there shall be.

    Raises:
        ValueError: `count` is not positive.
        RuntimeError: JAX's backend runs already with another number.
    """
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
    if virtual_cpus_wanted() != count:
        os.environ["XLA_FLAGS"] = _FORCED.sub("", os.environ.get("XLA_FLAGS", ""))
        jax.config.update("jax_num_cpu_devices", count)


def is_started() -> bool:
    """Whether JAX's backend runs already."""
    # JAX has no public way to ask this that does not start the backend.
    return xla_bridge.backends_are_initialized()


def start(has_peers: bool = False, stall_seconds: float = 0.0) -> None:
    """Start JAX's backend, with a thread pool that CPU collectives need.

    Args:
        has_peers: whether other processes take part in collectives.
        stall_seconds: how long a collective may wait for them; 0 leaves it to XLA.
    """
    if is_started():
        return
    count = virtual_cpus_wanted() or 1
    shares_pool = count > 1
    if not shares_pool and not has_peers:
        jax.local_devices()
        return
    wanted = {}
    if shares_pool:
        # A single device needs no more than XLA takes by itself, and is faster so.
        wanted[cpu_threads.VARIABLE] = str(cpu_threads.threads(count))
    if stall_seconds:
        flag = f"--xla_cpu_collective_timeout_seconds={max(1, round(stall_seconds))}"
        wanted["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    with _environment(wanted):
        jax.local_devices(backend="cpu")
        _backend.pool_is_large = shares_pool


@contextlib.contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Variables that XLA reads once, while it starts."""
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


def pool_is_large() -> bool:
    """Whether the CPU client was started here, with threads to spare."""
    return _backend.pool_is_large


def resolve(names: Iterable[object]) -> tuple[tuple[str, ...], tuple[jax.Device, ...]]:
    """Canonical names and JAX devices; virtual CPU devices are made if still possible.

    Raises:
        AssertionError: a device is named twice.
        ValueError: there is no such device.
    """
    parsed = [parse(n) for n in names]
    texts = tuple(str(p) for p in parsed)
    if len(set(texts)) != len(texts):
        raise AssertionError(f"No duplicates allowed in `devices` argument: {texts}")
    cpus = [p.index + 1 for p in parsed if p.kind == "CPU"]
    if cpus and not is_started() and virtual_cpus_wanted() is None and max(cpus) > 1:
        jax.config.update("jax_num_cpu_devices", max(cpus))
    start()
    return texts, tuple(_find(p) for p in parsed)


def _find(name: DeviceName) -> jax.Device:
    try:
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
    """All accelerators of this process, else all of its CPU devices."""
    start()
    return tuple(str(_name_of(d)) for d in jax.local_devices())


def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """The devices of this process, by type if one is given.

    Args:
        device_type: ``"CPU"``, ``"GPU"`` or ``"TPU"``; None lists the default kind.
    """
    start()
    try:
        found = jax.local_devices(backend=device_type.lower() if device_type else None)
    except RuntimeError:
        return []
    names = [_name_of(d) for d in found]
    return [LogicalDevice(f"/device:{n.kind}:{n.index}", n.kind) for n in names]


publish("unisono.config", LogicalDevice, list_logical_devices, set_virtual_devices)
