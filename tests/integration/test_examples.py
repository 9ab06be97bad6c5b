"""The examples run, and say what they promise."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.feature("V01", "V08")
@pytest.mark.parametrize(
    ("name", "said"),
    [("keras_fit", "same=True"), ("keras_custom_loop", "accuracy 0.")],
)
def test_a_keras_example_runs(name, said):
    pytest.importorskip("keras")
    # In a process of its own: it makes its virtual devices itself.
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    command += ["--replicas", "2", "--epochs", "2", "--images", "200"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
