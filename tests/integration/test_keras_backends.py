"""A Keras that runs on another backend than JAX is refused where it is used."""

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
def test_variables_are_refused_and_scopes_are_not(environment, told):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    total, message, last = done.stdout.splitlines()
    assert float(total) == 4
    assert message.startswith(told)
    assert last == "built outside"
