"""`import unisono` loads only jax and numpy, and starts nothing."""

import json
import subprocess
import sys
import textwrap

LOADED_LATER = (
    "flax", "google.protobuf", "google_crc32c", "grain", "greenlet", "keras", "optax",
    "orbax", "ray",
    "rich", "tensorstore",
)  # fmt: skip


def run_python(code):
    """Runs `code` in a fresh interpreter and returns what it prints, as JSON."""
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_import_loads_only_jax_and_numpy():
    loaded = run_python(
        """
        import json, sys
        import jax, numpy
        before = set(sys.modules)
        import unisono
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(json.dumps(sorted(new - set(sys.stdlib_module_names) - {"unisono"})))
        """
    )
    assert not [name for name in loaded if name not in ("jax", "jaxlib", "numpy")], (
        f"expected no package beyond jax and numpy, received {loaded}; load it inside "
        "the function that needs it."
    )


def test_import_leaves_every_other_dependency_for_later():
    loaded = run_python(
        f"""
        import json, sys
        import unisono
        print(json.dumps([n for n in {[*LOADED_LATER, "typer"]!r} if n in sys.modules]))
        """
    )
    assert loaded == []


def test_import_starts_no_backend():
    backends = run_python(
        """
        import json
        import unisono
        from jax._src import xla_bridge
        print(json.dumps(list(xla_bridge._backends)))
        """
    )
    assert backends == []


def test_import_opens_no_socket():
    opened = run_python(
        """
        import json, socket

        opened = []

        class Socket(socket.socket):
            def __init__(self, *args, **kwargs):
                opened.append(repr(args))
                super().__init__(*args, **kwargs)

        socket.socket = Socket
        import unisono
        print(json.dumps(opened))
        """
    )
    assert opened == []


def test_import_leaves_the_environment_as_it_was():
    changed = run_python(
        """
        import json, os
        import jax
        before = dict(os.environ)
        import unisono
        after = dict(os.environ)
        print(json.dumps([k for k in before | after if before.get(k) != after.get(k)]))
        """
    )
    assert changed == []


def test_import_leaves_rooms_that_not_every_program_enters_for_later():
    loaded = run_python(
        """
        import json, sys
        import unisono
        print(json.dumps(sorted(n for n in sys.modules if n.startswith("unisono"))))
        """
    )
    entered = {name.split(".")[2] for name in loaded if name.count(".") > 1}
    assert {"execution", "state", "strategies"} <= entered
    assert not entered & {"cli", "estimator", "saving"}
    # Of the everyday names only the lists: a function loads when it is first used.
    ops = {name for name in loaded if name.startswith("unisono._src.ops.")}
    assert {name.split(".")[3] for name in ops} <= {"facades"}
    unused = ("profiler", "progress", "tensorboard")
    later = ["input.", "machines.tpu", "workers.tpu_system"]
    later += [f"training.{module}" for module in unused]
    prefixes = tuple(f"unisono._src.{name}" for name in later)
    assert [name for name in loaded if name.startswith(prefixes)] == []
