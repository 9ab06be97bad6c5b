"""What every test and doctest shares: examples to try, and the project's plugins."""

import importlib.metadata
import importlib.util
import os
import pathlib
import sys

# Keras asks for its backend once, when it is imported.
os.environ["KERAS_BACKEND"] = "jax"

# Most of the time goes into compiling programs that run for a millisecond. XLA compiles
# them two to five times faster when it does not optimise the machine code. With
# JAX_DISABLE_MOST_OPTIMIZATIONS=0 in the environment the tests run optimised code.
# Processes that tests start inherit both variables.
if not any(argument.startswith("--platform") for argument in sys.argv):
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    is_quick = os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] not in ("0", "false")
    # The flag is gone from later versions of XLA, which end the process over it.
    if is_quick and importlib.metadata.version("jaxlib").startswith("0.10."):
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{given} --xla_cpu_use_fusion_emitters=false"
    # Many tests compile equal programs. JAX stores each program here and reads it back,
    # in this run and in later ones; `tests.plugins.compiled` says how. With
    # JAX_ENABLE_COMPILATION_CACHE=0 in the environment every test compiles its own.
    stored = pathlib.Path(__file__).parent / "build" / "compiled"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(stored))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1e9")

pytest_plugins = (
    "pytester",
    "tests.plugins.compiled",
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
