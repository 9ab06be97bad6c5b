"""Device names in every spelling, and virtual CPU devices."""

import os
import subprocess
import sys
import textwrap
from typing import Any

import jax
import pytest

import unisono
from unisono._src.machines import devices

FULL = "/job:localhost/replica:0/task:0/device:{}"


@pytest.mark.feature("T01")
@pytest.mark.parametrize(
    ("spelling", "want"),
    [
        ("CPU:0", FULL.format("CPU:0")),
        ("cpu:3", FULL.format("CPU:3")),
        ("CPU", FULL.format("CPU:0")),
        ("/CPU:1", FULL.format("CPU:1")),
        ("/gpu:1", FULL.format("GPU:1")),
        ("GPU:12", FULL.format("GPU:12")),
        ("TPU:0", FULL.format("TPU:0")),
        ("/device:GPU:2", FULL.format("GPU:2")),
        ("device:cpu:2", FULL.format("CPU:2")),
        ("/job:localhost/replica:0/task:0/device:CPU:1", FULL.format("CPU:1")),
        (
            "/job:worker/task:1/device:CPU:0",
            "/job:worker/replica:0/task:1/device:CPU:0",
        ),
        (
            "/job:worker/replica:2/task:1/gpu:3",
            "/job:worker/replica:2/task:1/device:GPU:3",
        ),
        (" CPU:4 ", FULL.format("CPU:4")),
    ],
)
def test_a_device_name_is_read_in_every_spelling(spelling, want):
    assert str(devices.parse(spelling)) == want
    assert str(devices.parse(want)) == want


@pytest.mark.parametrize(
    "wrong",
    ["", "/", "CPU:x", "CPU:1:2", "/job:worker", "/task:x/device:CPU:0", 3, None],
)
def test_what_is_no_device_name_is_refused_with_an_example(wrong):
    with pytest.raises(ValueError, match="'GPU:0'"):
        devices.parse(wrong)


def test_a_listed_device_and_a_jax_device_are_names_too():
    listed = unisono.config.list_logical_devices("CPU")
    assert [d.name for d in listed] == [f"/device:CPU:{i}" for i in range(8)]
    assert {d.device_type for d in listed} == {"CPU"}
    assert listed == unisono.config.list_logical_devices("cpu")
    for i, d in enumerate(listed):
        assert str(devices.parse(d)) == FULL.format(f"CPU:{i}")
        assert str(devices.parse(jax.devices("cpu")[i])) == FULL.format(f"CPU:{i}")
    assert unisono.config.list_logical_devices("TPU") == []
    assert unisono.config.list_logical_devices() == listed


def test_names_are_resolved_to_the_devices_of_jax():
    names, found = devices.resolve(["CPU:3", "/cpu:1"])
    assert names == (FULL.format("CPU:3"), FULL.format("CPU:1"))
    assert found == (jax.devices("cpu")[3], jax.devices("cpu")[1])


def test_a_device_named_twice_is_refused():
    with pytest.raises(AssertionError, match="No duplicates"):
        devices.resolve(["CPU:0", "/device:cpu:0"])


def test_a_missing_device_is_refused_with_what_there_is_and_what_to_do():
    with pytest.raises(ValueError, match=r"no device CPU:8.*set_virtual_devices\(9\)"):
        devices.resolve(["CPU:8"])
    with pytest.raises(ValueError, match=r"no device TPU:0.*none"):
        devices.resolve(["TPU:0"])


def test_the_number_of_virtual_devices_is_fixed_once_jax_runs():
    unisono.config.set_virtual_devices(8)
    with pytest.raises(RuntimeError, match=r"already running with 8 .* given 4"):
        unisono.config.set_virtual_devices(4)
    with pytest.raises(ValueError, match="at least one"):
        unisono.config.set_virtual_devices(0)
    assert len(jax.devices("cpu")) == 8


# A fresh process for each: JAX's backend is started only once.


def run_fresh(program, **environment):
    """Runs a program in a new interpreter and returns what it printed."""
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC")}
    source = os.path.dirname(os.path.dirname(unisono.__file__))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**kept, "PYTHONPATH": source, "JAX_PLATFORMS": "cpu", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_naming_a_virtual_device_makes_it_and_leaves_the_environment_alone():
    assert run_fresh(
        """
        import os
        before = dict(os.environ)
        import unisono, jax
        s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:2"])
        print(s.num_replicas_in_sync, len(jax.devices("cpu")))
        print(dict(os.environ) == before)
        print(int(s.reduce("SUM", s.run(lambda: jax.numpy.ones(())), axis=None)))
        """
    ) == ["2", "3", "True", "2"]


def test_virtual_devices_are_asked_for_before_jax_starts():
    assert run_fresh(
        """
        import unisono, jax
        unisono.config.set_virtual_devices(5)
        unisono.config.set_virtual_devices(3)
        print(unisono.distribute.MirroredStrategy().num_replicas_in_sync)
        unisono.config.set_virtual_devices(3)
        try:
            unisono.config.set_virtual_devices(4)
        except RuntimeError as error:
            print("set_virtual_devices(4)" in str(error), "3" in str(error))
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    ) == ["3", "True", "True"]


def test_the_flag_of_xla_is_honoured():
    assert run_fresh(
        """
        import unisono
        print(unisono.distribute.MirroredStrategy().num_replicas_in_sync)
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    ) == ["2"]


def test_a_backend_that_runs_already_is_named_as_the_reason():
    assert run_fresh(
        """
        import jax.numpy as jnp
        jnp.ones(())
        import unisono
        try:
            unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        except ValueError as error:
            print("set_virtual_devices(2)" in str(error), "before" in str(error))
        print(unisono.distribute.MirroredStrategy().num_replicas_in_sync)
        """
    ) == ["True", "True", "1"]


@pytest.mark.parametrize(
    "wrong", ["CPU:-1", "CPU:+1", "CPU: 1", "CPU:1_0", "CPU:١", "CPU:" + "9" * 5000]
)
def test_only_digits_number_a_device(wrong):
    with pytest.raises(ValueError, match="Cannot read the device name"):
        devices.parse(wrong)


@pytest.mark.parametrize("wrong", [{}, [], 1, b"CPU"])
def test_a_type_of_devices_is_text(wrong):
    with pytest.raises(TypeError, match="`device_type` must be 'CPU'"):
        devices.list_logical_devices(wrong)


@pytest.mark.parametrize("wrong", [1, 1.5, "CPU:0"])
def test_devices_of_a_strategy_are_a_list(wrong):
    with pytest.raises(TypeError, match="Expected a list of device names"):
        unisono.distribute.MirroredStrategy(wrong)


def test_a_number_of_virtual_devices_is_a_whole_number():
    half: Any = 1.5
    with pytest.raises(TypeError, match="count must be a whole number"):
        devices.set_virtual_devices(half)
