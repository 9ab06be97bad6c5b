"""What every test and doctest shares: examples to try, and the project's plugins."""

import importlib.util
import os
import pathlib

# Keras asks for its backend once, when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

pytest_plugins = (
    "pytester",
    "tests.plugins.features",
    "tests.plugins.leaks",
    "tests.plugins.memory",
    "tests.plugins.platforms",
    "tests.plugins.public_doctests",
    "tests.plugins.tools",
)

# A module of an integration imports its package; without the package there is
# nothing to collect.
_INTEGRATIONS = pathlib.Path("src/unisono/_src/integrations")
collect_ignore_glob = [
    str(_INTEGRATIONS / f"{package}*")
    for package in ("flax", "keras", "ray")
    if importlib.util.find_spec(package) is None
]
