"""The machine that the tests run on: how its devices are named.

The suite runs on eight virtual CPU devices, and a part of it on whatever the option
`--platform` names. A test that works on either asks here for its devices.
"""

import pathlib

import jax
import pytest

from unisono._src.machines import devices

ROOT = pathlib.Path(__file__).parents[1]


class _Machine:
    """Holds what the plugin for platforms knows.

    Attributes:
        backend: the backend whose devices the tests use; None is eight virtual CPUs.
        is_collecting: whether pytest is importing a test module.
    """

    backend = None
    is_collecting = False


def choose(backend):
    """Have the tests use the devices of a JAX backend that shall be started."""
    _Machine.backend = backend


def set_collecting(is_collecting):
    """Say whether pytest is importing a test module."""
    _Machine.is_collecting = is_collecting


def local_devices():
    """Returns the devices that the tests use."""
    return jax.local_devices(backend=_Machine.backend or "cpu")


def name(index):
    """Returns the short name of a device; without such a device the test is skipped.

    Raises:
        RuntimeError: if a module asks for a second device while it is imported. One
            device would make pytest stop there, because it cannot skip a test yet.
    """
    if index and _Machine.is_collecting:
        raise RuntimeError("Ask for several devices in a test, not beside it.")
    there = local_devices()
    kind = devices.kind_of(there[0])
    if index >= len(there):
        pytest.skip(f"needs {index + 1} devices; this machine has {len(there)} {kind}")
    return f"{kind}:{index}"


def names(count):
    """Returns the names of the first devices; without so many the test is skipped."""
    return [name(i) for i in reversed(range(count))][::-1]


def names_up_to(count):
    """Returns the names of so many devices, or of all there are."""
    return names(min(count, len(local_devices())))


def another():
    """Returns the name of a device that is not the default one, if there are two."""
    return names_up_to(2)[-1]


def check_all_ours(given):
    """Skip the running test if it names a device of another kind, or one too many."""
    for device in map(devices.parse, given):
        kind = devices.kind_of(local_devices()[0])
        if device.kind != kind:
            pytest.skip(f"names a {device.kind} itself")
        name(device.index)
