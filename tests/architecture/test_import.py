"""`import unisono` loads only jax and numpy, and starts nothing."""

import json
import subprocess
import sys

import pytest

# Rooms, and modules of rooms, that not every program enters.
ENTERED_LATER = (
    "cli", "estimator", "input.", "machines.tpu", "saving", "servers", "training",
    "workers.tpu_system",
)  # fmt: skip

PROGRAM = """
import json, os, socket, sys
import jax, numpy
from jax._src import xla_bridge

opened = []

class Socket(socket.socket):
    def __init__(self, *args, **kwargs):
        opened.append(repr(args))
        super().__init__(*args, **kwargs)

socket.socket = Socket
modules, environment = set(sys.modules), dict(os.environ)
import unisono
after = dict(os.environ)
print(json.dumps({
    "modules": sorted(set(sys.modules) - modules - set(sys.stdlib_module_names)),
    "backends": list(xla_bridge._backends),
    "sockets": opened,
    "environment": [
        k for k in environment | after if environment.get(k) != after.get(k)
    ],
}))
"""


@pytest.fixture(scope="module")
def found():
    """What `import unisono` changes in a fresh interpreter that has loaded jax."""
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_import_loads_only_jax_and_numpy(found):
    others = [n for n in found["modules"] if not n.startswith("unisono")]
    # Nothing more of JAX either: `jax.extend` takes as long as half of this package.
    assert others == [], "load it inside the function that needs it."


@pytest.mark.parametrize("change", ["backends", "sockets", "environment"])
def test_import_starts_and_changes_nothing(found, change):
    assert found[change] == []


def test_import_leaves_rooms_that_not_every_program_enters_for_later(found):
    entered = {name.split(".")[2] for name in found["modules"] if name.count(".") > 1}
    assert {"execution", "state", "strategies"} <= entered
    prefixes = tuple(f"unisono._src.{name}" for name in ENTERED_LATER)
    assert [name for name in found["modules"] if name.startswith(prefixes)] == []
    # Of the everyday names none: a function loads when it is first used.
    ops = [name for name in found["modules"] if name.startswith("unisono._src.ops.")]
    assert ops == []
