"""Eight virtual devices for every test and doctest, and the project's own plugins."""

import importlib.util
import os
import pathlib

import hypothesis

import unisono

# Keras asks for its backend once, when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

# Before anything starts JAX's backend: afterwards the number of devices is fixed.
unisono.config.set_virtual_devices(8)

# The same examples every time, however slow the machine; `pytest
# --hypothesis-profile=search` looks for new ones.
_PATIENT = {
    "deadline": None,
    "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile("same", derandomize=True, **_PATIENT)
hypothesis.settings.register_profile("search", **_PATIENT)
hypothesis.settings.load_profile("same")

pytest_plugins = (
    "pytester",
    "tests.plugins.features",
    "tests.plugins.leaks",
    "tests.plugins.public_doctests",
)

# A module of an integration imports its package; without the package there is
# nothing to collect.
_INTEGRATIONS = pathlib.Path("src/unisono/_src/integrations")
collect_ignore_glob = [
    str(_INTEGRATIONS / f"{package}*")
    for package in ("flax", "keras", "ray")
    if importlib.util.find_spec(package) is None
]
