"""Adds the `--platform` option, which selects the devices that tests run on.

By default tests run on eight virtual CPU devices on any machine, because they rely on
the number and the names of the devices. `--platform=gpu` runs the tests that one GPU
can run. It skips a test that needs several devices or names a CPU. A test that passes
without an array on the GPU has proven nothing about it, and counts as skipped too.
`--platform=pretend-gpu` selects the same tests on a machine without a GPU: there, a
single CPU device has the name of a GPU.
"""

import collections
import dataclasses
import os
import re

import jax
import numpy as np
import pytest
from jax._src import array, xla_bridge

import unisono
from tests import machine
from unisono._src.machines import devices


@dataclasses.dataclass(frozen=True)
class Platform:
    """Holds the devices of a platform.

    Attributes:
        backends: the backends that JAX starts; tests run on the first one.
        cpus: the number of virtual CPU devices.
    """

    backends: str
    cpus: int


PLATFORMS = {
    "cpu": Platform("cpu", 8),
    "gpu": Platform("cuda,cpu", 1),
    "pretend-gpu": Platform("cpu", 1),
}

_MISSING = re.compile(r"ModuleNotFoundError: No module named '((?!unisono|tests)\w+)")


def pytest_addoption(parser):
    """Adds `--platform`."""
    parser.addoption(
        "--platform",
        choices=sorted(PLATFORMS),
        default="cpu",
        help="the devices to run on: eight virtual CPUs (cpu), or GPUs",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Sets the devices of JAX, here and in the processes that tests start."""
    name = config.getoption("--platform")
    platform = PLATFORMS[name]
    os.environ["JAX_PLATFORMS"] = platform.backends
    jax.config.update("jax_platforms", platform.backends)
    unisono.config.set_virtual_devices(platform.cpus)
    config.addinivalue_line(
        "markers", "needs_devices(count): skipped where there are fewer devices"
    )
    config.addinivalue_line(
        "markers", "accelerator: left out on the CPU, where other tests prove the same"
    )
    if name != "cpu":
        backend = "gpu" if name == "gpu" else "cpu"
        config.pluginmanager.register(Gpus(backend), "unisono-gpus")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Refuses a module that asks for several devices while it is imported."""
    machine.set_collecting(True)
    try:
        return (yield)
    finally:
        machine.set_collecting(False)


def pytest_collection_modifyitems(config, items):
    """Deselects on the CPU the tests that are marked `accelerator`."""
    if config.getoption("--platform") == "cpu":
        left_out = [i for i in items if i.get_closest_marker("accelerator")]
        items[:] = [i for i in items if not i.get_closest_marker("accelerator")]
        config.hook.pytest_deselected(items=left_out)


class Gpus:
    """Runs the tests that the GPUs can run, and checks that they use the GPUs."""

    def __init__(self, backend):
        self.backend = backend
        self.failed = 0
        self.ran, self.skipped = collections.Counter(), collections.Counter()
        self._read = False  # whether the running test read an array of the device

    def pytest_sessionstart(self):
        """Starts the backend, and checks every device name from now on."""
        # Processes that tests start share the device's memory with this one.
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        # Tests compare with NumPy, but GPUs multiply float32 matrices in fewer bits by
        # default.
        jax.config.update("jax_default_matmul_precision", "highest")
        if jax.default_backend() != self.backend:
            raise pytest.UsageError(
                f"JAX has no {self.backend} here; it runs on {jax.default_backend()}."
            )
        if self.backend == "cpu":
            self._pretend()
        self._client = jax.devices()[0].client
        machine.choose("gpu")
        self._check_names()
        self._watch_reads()

    def _pretend(self):
        """Gives the CPU the name of a GPU.

        NumPy reads a CPU array without calling `_value`, so `np.asarray` is watched.
        """
        xla_bridge._backends["cuda"] = jax.devices()[0].client
        devices.kind_of = lambda device: "GPU"
        asarray = np.asarray

        def ask(x, *args, **kwargs):
            self._read = self._read or (isinstance(x, jax.Array) and self._is_ours(x))
            return asarray(x, *args, **kwargs)

        setattr(np, "asarray", ask)  # noqa: B010

    def _check_names(self):
        resolve = devices.resolve

        def resolve_ours(names):
            names = list(names)
            machine.check_all_ours(names)
            return resolve(names)

        devices.resolve = resolve_ours

    def _watch_reads(self):
        # Compiled code makes arrays without calling Python, but reading one calls
        # `_value`.
        value = array.ArrayImpl._value

        def read(this):
            self._read = self._read or self._is_ours(this)
            return value.fget(this)

        setattr(array.ArrayImpl, "_value", property(read))  # noqa: B010

    def _is_ours(self, x):
        return not isinstance(x, jax.core.Tracer) and any(
            d.client is self._client for d in x.devices()
        )

    def pytest_runtest_setup(self, item):
        """Skips a test that is marked to need more devices than there are."""
        for mark in item.iter_markers("needs_devices"):
            machine.names(*mark.args)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Skips a test that passes without an array of the device."""
        before = {id(x) for x in jax.live_arrays(self.backend)}
        self._read = False
        result = yield
        assert jax.default_backend() == self.backend
        if not self._read and all(
            id(x) in before for x in jax.live_arrays(self.backend)
        ):
            pytest.skip("made no array on the device")
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        """Skips a module whose package is not installed."""
        report = yield
        return self._skipped_if_missing(report, collector)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item):
        """Skips a test whose package is not installed."""
        report = yield
        return self._skipped_if_missing(report, item)

    def _skipped_if_missing(self, report, node):
        missing = report.failed and _MISSING.search(str(report.longrepr))
        if missing:
            report.outcome = "skipped"
            reason = f"Skipped: {missing.group(1)} is not installed"
            report.longrepr = (str(node.path), 0, reason)
        return report

    def pytest_collectreport(self, report):
        """Counts a module that was skipped or could not be collected."""
        self._count(report)

    def pytest_runtest_logreport(self, report):
        """Counts a test once, whatever phase it ended in."""
        if report.when == "call" or report.outcome != "passed":
            if report.outcome == "passed":
                self.ran[report.nodeid.partition("::")[0]] += 1
            self._count(report)

    def _count(self, report):
        self.failed += report.outcome == "failed"
        if report.outcome == "skipped":
            reason = report.longrepr[2] if report.longrepr else "expected to fail"
            self.skipped[reason.removeprefix("Skipped: ")] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter):
        """Prints how many tests ran on the device, and why others did not."""
        device = jax.local_devices(backend=self.backend)[0]
        terminalreporter.section(f"on {device.device_kind} ({self.backend})")
        for module, count in self.ran.items():
            terminalreporter.write_line(f"{count:6} ran: {module}")
        for reason, count in self.skipped.most_common():
            terminalreporter.write_line(f"{count:6} skipped: {reason.splitlines()[0]}")
        terminalreporter.write_line(
            f"{self.ran.total():6} ran with arrays on the device, {self.failed} failed",
            bold=True,
        )
