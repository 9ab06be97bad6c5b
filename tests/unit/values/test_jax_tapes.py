"""Recordings on JAX's internals."""

import subprocess
import sys

import jax

from unisono._src.values import jax_tapes

# What the rest of the library does on a JAX without one of these names.
WITHOUT = """
import jax.numpy as jnp
from jax._src.interpreters import ad
kept = ad.backward_pass3
del ad.backward_pass3
import unisono
ad.backward_pass3 = kept  # JAX itself needs it.
v = unisono.Variable(3.0)
value, gradient = unisono.value_and_grad(lambda: v * v, v)()
assert float(gradient) == 6.0
assert float(unisono.function(lambda: v * 2.0)()) == 6.0
try:
    unisono.GradientTape()
except NotImplementedError as error:
    print(error)
"""


def test_without_jaxs_internals_only_tapes_are_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "GradientTape needs jax._src.interpreters.ad.backward_pass3" in done.stdout


def test_anything_but_a_value_of_a_tape_is_its_own_array():
    array = jax.numpy.ones(2)
    assert jax_tapes.lower(array) is array
    assert not jax_tapes.is_traced(array)
    assert jax.jit(lambda x: x * jax_tapes.is_traced(x))(array).tolist() == [1.0, 1.0]
