"""Keras runs on JAX where nobody chose; on another backend it is refused where used."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("keras")

PROGRAM = """
import keras, unisono as uni
uni.config.set_virtual_devices(2)
strategy = uni.distribute.MirroredStrategy()
with strategy.scope():
    v = uni.Variable(1.0)
    print(strategy.reduce("SUM", strategy.run(lambda: v + 1), axis=None).item())
    try:
        keras.layers.Dense(2).build((None, 3))
    except RuntimeError as e:
        print(e)
keras.layers.Dense(2).build((None, 3))
print("built outside")
"""


def output_of(program, home, **environment):
    """Runs a program for which nothing else is set, and returns the lines it prints."""
    unset = ("KERAS_BACKEND", "KERAS_HOME", "KERAS_NNX_ENABLED")
    inherited = {k: v for k, v in os.environ.items() if k not in unset}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | {"HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.needs_devices(4)
@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"KERAS_BACKEND": "numpy"}, "Keras runs on the backend 'numpy'"),
        (
            {"KERAS_BACKEND": "jax", "KERAS_NNX_ENABLED": "1"},
            "Keras was told to make its layers NNX modules",
        ),
    ],
)
def test_variables_are_refused_and_scopes_are_not(environment, told, tmp_path):
    total, message, last = output_of(PROGRAM, tmp_path, **environment)
    assert float(total) == 4
    assert message.startswith(told)
    assert last == "built outside"


BACKUP = """
import os, sys
import unisono as uni
assert "keras" not in sys.modules
before = os.environ.get("KERAS_BACKEND")
try:
    uni.keras.callbacks.BackupAndRestore("backup")
except RuntimeError as error:
    print(error)
    assert "keras" not in sys.modules and os.environ.get("KERAS_BACKEND") == before
    os.environ["KERAS_BACKEND"] = "jax"  # As the error says.
    uni.keras.callbacks.BackupAndRestore("backup")
import keras
print(keras.backend.backend(), os.environ.get("KERAS_BACKEND") or "unset")
"""


FIRST_USE = """
import sys
import unisono as tf, unisono.keras
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope(), strategy.scope():
    assert "keras" not in sys.modules
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
print(model.weights[0].distribute_strategy is strategy)
print(tf.keras.layers.Dense(1).build((None, 1)) is None)
print(tf.keras.distribution.distribution())
print(tf.keras.backend.backend())
"""


def test_keras_runs_on_jax_where_nothing_is_chosen(tmp_path):
    assert output_of(BACKUP, tmp_path) == ["jax jax"]
    # Keras has written its default into a new file; that is no choice either.
    written = json.loads((tmp_path / ".keras" / "keras.json").read_text())
    assert written["backend"] == "tensorflow"
    # Used first in a scope, it takes part in it.
    found = output_of(FIRST_USE, tmp_path, KERAS_BACKEND="")
    assert found == ["True", "True", "None", "jax"]


def test_another_backend_in_the_environment_is_refused_with_the_cure(tmp_path):
    error, after = output_of(BACKUP, tmp_path, KERAS_BACKEND="torch")
    assert error.startswith("The environment variable KERAS_BACKEND names 'torch'")
    assert error.endswith('os.environ["KERAS_BACKEND"] = "jax"')
    assert after == "jax jax"


def test_another_backend_in_the_file_is_refused_with_the_cure(tmp_path):
    file = tmp_path / ".keras" / "keras.json"
    file.parent.mkdir()
    file.write_text('{"backend": "torch"}')
    error, after = output_of(BACKUP, tmp_path)
    assert error.startswith(f"The file {file} names 'torch' as the backend of Keras")
    assert error.endswith('os.environ["KERAS_BACKEND"] = "jax"')
    assert after == "jax jax"


IMPORTED = """
import os, sys
import unisono as tf
assert "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    import keras  # The scope that is open hears of it.
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
print(keras.backend.backend(), os.environ["KERAS_BACKEND"])
print(model.weights[0].distribute_strategy is strategy)
doubled = tf.concat([keras.Input((2,))] * 2, -1)
print(doubled.shape, keras.optimizers.SGD(0.5).lr.numpy())
"""

CHOSEN = """
import os, sys, unisono as tf
import keras
print(keras.backend.backend(), os.environ.get("KERAS_BACKEND", "unset"))
print(hasattr(keras.Model, "save_spec"))
"""

MIXED = """
import os, sys, types, unisono as tf
sys.modules["tensorflow"] = types.ModuleType("tensorflow")
try:
    import keras
except Exception as error:  # This TensorFlow is empty, and Keras wants it.
    print("tensorflow" in str(error), "KERAS_BACKEND" in os.environ)
"""


@pytest.mark.needs_devices(4)
def test_keras_that_is_imported_after_unisono_is_that_of_unisono_keras(tmp_path):
    found = output_of(IMPORTED, tmp_path)
    assert found == ["jax jax", "True", "(None, 4) 0.5"]


def test_a_choice_of_the_program_holds_when_it_imports_keras(tmp_path):
    chosen = output_of(CHOSEN, tmp_path, KERAS_BACKEND="numpy")
    assert chosen == ["numpy numpy", "False"]
    file = tmp_path / ".keras" / "keras.json"
    file.write_text('{"backend": "numpy"}')
    assert output_of(CHOSEN, tmp_path) == ["numpy unset", "False"]


def test_a_program_that_has_loaded_tensorflow_chooses_for_itself(tmp_path):
    assert output_of(MIXED, tmp_path) == ["True False"]


LOADED = """
import os
os.environ["KERAS_BACKEND"] = "numpy"
import keras
del os.environ["KERAS_BACKEND"]
import unisono as uni
try:
    uni.keras.callbacks.BackupAndRestore("backup")
except RuntimeError as error:
    print(error)
print(keras.backend.backend(), os.environ.get("KERAS_BACKEND") or "unset")
"""


def test_a_keras_that_is_loaded_with_another_backend_is_refused(tmp_path):
    error, after = output_of(LOADED, tmp_path)
    assert error.startswith("Keras runs on the backend 'numpy'")
    assert "KERAS_BACKEND=jax before keras is imported" in error
    assert after == "numpy unset"
