"""Tests see the same devices on every machine, and a GPU run reports what it ran."""

import os

import jax
import pytest

from tests import machine

PLUGIN = ("-p", "tests.plugins.platforms", "-p", "no:cacheprovider")

TESTS = """
    import jax.numpy as jnp
    import numpy as np
    import pytest

    import unisono as uni
    from tests import machine

    def test_reads_an_array():
        assert float(jnp.ones(3).sum()) == 3.0

    def test_runs_on_the_device():
        strategy = uni.distribute.MirroredStrategy(machine.names(1))
        assert strategy.extended.worker_devices[0].endswith("GPU:0")
        assert np.asarray(strategy.run(lambda: jnp.ones(2))).tolist() == [1.0, 1.0]

    def test_makes_no_array():
        assert np.ones(3).sum() == 3.0

    def test_names_a_cpu():
        uni.distribute.OneDeviceStrategy("CPU:0")

    def test_asks_for_two():
        uni.distribute.MirroredStrategy(machine.names(2))

    @pytest.mark.needs_devices(4)
    def test_is_marked():
        assert False

    @pytest.mark.accelerator
    def test_is_for_accelerators():
        jnp.ones(3).tolist()

    def test_needs_a_package():
        import a_package_that_nobody_has

    def test_fails():
        assert jnp.ones(()) == 2
"""


def test_every_test_sees_eight_cpu_devices_here_and_in_processes():
    assert [d.platform for d in jax.devices()] == ["cpu"] * 8
    assert os.environ["JAX_PLATFORMS"] == "cpu"
    assert machine.names(3) == ["CPU:0", "CPU:1", "CPU:2"]
    assert machine.names_up_to(9)[-1] == "CPU:7"
    assert machine.another() == "CPU:1"


@pytest.fixture
def run(pytester, monkeypatch):
    """Returns a function that runs the tests above in a new process."""
    monkeypatch.setenv("PYTHONPATH", f"{machine.ROOT}:{machine.ROOT / 'src'}")
    pytester.makepyfile(TESTS)
    return lambda option: pytester.runpytest_subprocess(*PLUGIN, option)


def test_a_run_on_one_device_says_what_ran_there_and_what_did_not(run):
    result = run("--platform=pretend-gpu")
    result.assert_outcomes(passed=3, failed=1, skipped=5)
    result.stdout.fnmatch_lines_random(
        [
            "*1 skipped: made no array on the device",
            "*1 skipped: names a CPU itself",
            "*1 skipped: needs 2 devices; this machine has 1 GPU",
            "*1 skipped: needs 4 devices; this machine has 1 GPU",
            "*1 skipped: a_package_that_nobody_has is not installed",
            "*3 ran with arrays on the device, 1 failed",
        ]
    )


def test_a_run_on_a_gpu_that_is_not_there_stops_at_once(run, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    result = run("--platform=gpu")
    assert result.ret != 0
    assert "passed" not in result.stdout.str()


def test_a_module_that_asks_for_two_devices_beside_its_tests_is_refused(run, pytester):
    pytester.makepyfile(test_early="from tests import machine; machine.names(2)")
    result = run("--platform=cpu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*Ask for several devices in a test, not beside it."])
