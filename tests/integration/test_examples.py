"""The examples run, and say what they promise."""

import importlib.util
import os
import pathlib
import runpy
import subprocess
import sys

import pytest

# They compare several virtual devices with one.
pytestmark = pytest.mark.needs_devices(8)

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    """Returns what an example prints; in a process of its own, with its devices."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    # Small programs are compiled often here, and run for a moment.
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.feature("V01", "V08")
@pytest.mark.parametrize(
    ("name", "said"),
    [("keras_fit", "same=True"), ("keras_custom_loop", "accuracy 0.")],
)
def test_a_keras_example_runs(name, said):
    if importlib.util.find_spec("keras") is None:
        pytest.skip("Keras is not installed")
    told = run(name, "--replicas", "2", "--epochs", "2", "--images", "200")
    assert said in told


@pytest.mark.feature("V08", "V05", "S04")
def test_a_custom_loop_is_the_same_on_several_replicas_and_is_restored():
    told = run(
        "custom_training_loop", "--replicas", "2", "--epochs", "2", "--images", "110"
    )
    assert "restored on one device after epoch 2" in told
    assert "same=True" in told


@pytest.mark.feature("H01", "I01", "G01", "H24")
def test_every_way_to_distribute_input_reads_everything():
    assert "all examples were read" in run("distributed_input", "--replicas", "4")


@pytest.mark.feature("S06")
def test_what_one_strategy_saves_others_load():
    told = run("save_and_load", "--replicas", "2", "--images", "200")
    assert told.count("same=True") == 4


@pytest.mark.feature("V06")
def test_an_estimator_is_the_same_on_several_replicas():
    told = run("estimator", "--replicas", "2", "--steps", "12", "--images", "200")
    assert "same=True" in told


@pytest.mark.feature("T06")
def test_the_wide_and_deep_example_learns_on_parameter_servers():
    # In this process: its workers and servers are threads.
    main = runpy.run_path(str(EXAMPLES / "wide_and_deep.py"))["main"]
    losses, right = main(steps=200)
    assert losses[-1] < losses[0] and right > 0.5
