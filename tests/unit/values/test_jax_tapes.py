"""Recordings on JAX's internals."""

import subprocess
import sys

import jax
import pytest

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


@pytest.mark.parametrize("module", jax_tapes.NEEDED)
def test_jax_has_what_tapes_are_made_of(module):
    missing = [name for name in jax_tapes.find_missing() if name.startswith(module)]
    assert not missing, (
        f"JAX {jax.__version__} does not have {missing}, which gradient tapes are made "
        "of. Find what replaced them, and change values/jax_tapes.py."
    )


def test_without_jaxs_internals_only_tapes_are_missing():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "GradientTape needs jax._src.interpreters.ad.backward_pass3" in done.stdout


def test_names_that_are_missing_are_found(monkeypatch):
    monkeypatch.setitem(jax_tapes.NEEDED, "jax._src.core", ("Tracer", "Unheard"))
    monkeypatch.setitem(jax_tapes.NEEDED, "jax._src.nowhere", ("anything",))
    assert jax_tapes.find_missing() == ["jax._src.core.Unheard", "jax._src.nowhere"]


def test_anything_but_a_value_of_a_tape_is_its_own_array():
    array = jax.numpy.ones(2)
    assert jax_tapes.lower(array) is array
    assert not jax_tapes.is_traced(array)
    assert jax.jit(lambda x: x * jax_tapes.is_traced(x))(array).tolist() == [1.0, 1.0]
