"""What `import unisono` may cost: jax, numpy, and nothing that is started."""

import json
import resource
import subprocess
import sys
import textwrap

MAX_RATIO_TO_JAX = 1.3
ROUNDS = 5

LOADED_LATER = (
    "flax", "grain", "greenlet", "keras", "optax", "orbax", "ray", "rich",
    "tensorstore",
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


def spent():
    """Processor time of child processes, which others on the machine do not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_import_takes_little_longer_than_that_of_jax():
    best = {"jax": float("inf"), "unisono": float("inf")}
    for _ in range(ROUNDS):  # Interleaved, so that a busy machine slows both.
        for name in best:
            start = spent()
            run_python(f"import {name}; print(0)")
            best[name] = min(best[name], spent() - start)
    ratio = best["unisono"] / best["jax"]
    assert ratio < MAX_RATIO_TO_JAX, (
        f"expected less than {MAX_RATIO_TO_JAX}× the time of `import jax`, received "
        f"{ratio:.2f}× ({best}); `python -X importtime` shows where."
    )
