"""Processors are listed and split as in TensorFlow."""

import json
import os
import subprocess
import sys

import pytest

import unisono

config = unisono.config


def test_there_is_one_physical_cpu():
    (cpu,) = config.list_physical_devices("CPU")
    assert repr(cpu) == (
        "PhysicalDevice(name='/physical_device:CPU:0', device_type='CPU')"
    )
    assert cpu in config.get_visible_devices()
    assert config.experimental.list_physical_devices("CPU") == [cpu]


def test_the_cpu_is_split_before_jax_starts_and_not_later():
    code = """
import json, unisono
config = unisono.config
cpu = config.list_physical_devices("CPU")[0]
config.list_physical_devices()
assert config.get_logical_device_configuration(cpu) is None
config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration()] * 3)
found = len(config.list_logical_devices("CPU"))
try:
    config.set_logical_device_configuration(cpu, [config.LogicalDeviceConfiguration()])
except RuntimeError as error:
    print(json.dumps([found, str(error)]))
"""
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, said = json.loads(done.stdout)
    assert found == 3
    assert said.startswith("Virtual devices cannot be modified after being initialized")


def test_what_cannot_be_had_is_refused():
    (cpu,) = config.list_physical_devices("CPU")
    limited = config.LogicalDeviceConfiguration(memory_limit=10)
    with pytest.raises(ValueError, match="memory limit on CPU"):
        config.set_logical_device_configuration(cpu, [limited])
    with pytest.raises(ValueError, match="memory growth on non-GPU"):
        config.experimental.set_memory_growth(cpu, True)
    with pytest.raises(RuntimeError, match="after being initialized"):
        config.set_visible_devices([], "CPU")
    unknown = config.PhysicalDevice("/physical_device:GPU:99", "GPU")
    with pytest.raises(ValueError, match="Unrecognized device"):
        config.set_visible_devices(unknown)
    with pytest.raises(ValueError, match="Unrecognized device"):
        config.get_logical_device_configuration(unknown)
    assert set(config.experimental.get_memory_info("CPU:0")) == {"current", "peak"}
