"""The examples run, and say what they promise."""

import importlib.util
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest

from unisono._src.cli.check import command

# They compare several virtual devices with one.
pytestmark = pytest.mark.needs_devices(8)

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"

# Runs several programs in one process, to import the libraries only once.
TOGETHER = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
for given in sys.argv[2:]:
    name, *arguments = given.split()
    print(f"== {name}", flush=True)
    sys.argv = [name, *arguments]
    runpy.run_path(f"{sys.path[0]}/{name}.py", run_name="__main__")
"""


def run_python(*arguments):
    """Returns what a program prints; in a process of its own, with its devices."""
    # Small programs are compiled often here, and run for a moment.
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(name, *arguments):
    """Returns what an example prints."""
    return run_python(str(EXAMPLES / f"{name}.py"), *arguments)


@pytest.fixture(scope="module")
def told():
    """What the ported programs for one machine print, by their names."""
    if importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is not installed")
    printed = run_python(
        "-c",
        TOGETHER,
        str(EXAMPLES),
        "distributed_input --replicas 2",
        "keras_fit --replicas 2 --epochs 2 --images 200",
        "keras_custom_loop --replicas 2 --epochs 1 --images 200",
        "save_and_load --replicas 2 --images 200",
        "tpu --cores 2 --images 200",
        "multi_worker_custom_loop --epochs 1 --images 200",
    )
    parts = printed.split("== ")[1:]
    return {name: said for name, _, said in (p.partition("\n") for p in parts)}


@pytest.mark.feature("V01", "V08", "S06", "H01", "I01", "G01")
@pytest.mark.parametrize(
    ("name", "said", "times"),
    [
        ("distributed_input", "all examples were read", 1),
        ("keras_fit", "same=True", 1),
        ("keras_custom_loop", "restored on one device: accuracy 0.", 1),
        ("save_and_load", "same=True", 6),
        ("tpu", "a product on each of 2 cores: [[22.0, 28.0], [49.0, 64.0]]", 1),
        ("multi_worker_custom_loop", "epoch 1: loss ", 1),
    ],
)
def test_a_program_of_tensorflow_runs_here(told, name, said, times):
    assert told[name].count(said) == times


@pytest.mark.feature("V08", "V05", "S04")
def test_a_custom_loop_is_the_same_on_several_replicas_and_is_restored():
    told = run(
        "custom_training_loop", "--replicas", "2", "--epochs", "2", "--images", "110"
    )
    assert "restored on one device after epoch 2" in told
    assert "same=True" in told


@pytest.mark.feature("V06")
def test_an_estimator_is_the_same_on_several_replicas():
    told = run("estimator", "--replicas", "2", "--steps", "12", "--images", "200")
    assert "same=True" in told


def count_lines(name, folder):
    """Returns how many lines touch TensorFlow, and how many of them cannot stay."""
    program = (EXAMPLES / f"{name}.py").read_text()
    assert program.count("import unisono as tf\n") == 1
    path = folder / f"{name}.py"
    path.write_text(program.replace("import unisono as tf", "import tensorflow as tf"))
    checked, bad = command.check_files([path])
    assert not bad
    (file,) = json.loads(command.to_json(checked, bad))["files"]
    touched = {use["line"] for use in file["uses"]}
    changed = {
        use["line"] for use in file["uses"] if use["status"] not in ("same", "differs")
    }
    return len(touched), len(changed)


def test_at_least_97_of_100_lines_of_tensorflow_are_unchanged(tmp_path, monkeypatch):
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # Keras sets it itself.
    pytest.importorskip("keras")  # The checker looks its names up.
    table = re.findall(
        r"\| \[(\w+)\.py\]\(\w+\.py\) \|.*\| (\d+) \| (\d+) \|",
        (EXAMPLES / "README.md").read_text(),
    )
    wanted = {name: (int(n), int(m)) for name, n, m in table}
    assert len(wanted) == 7
    assert {name: count_lines(name, tmp_path) for name in wanted} == wanted
    for name, (touched, changed) in wanted.items():
        assert changed <= 0.03 * touched, name


@pytest.mark.feature("T06")
def test_the_wide_and_deep_example_learns_on_parameter_servers():
    # In this process: its workers and servers are threads.
    main = runpy.run_path(str(EXAMPLES / "wide_and_deep.py"))["main"]
    losses, right = main(steps=200)
    assert losses[-1] < losses[0] and right > 0.5
