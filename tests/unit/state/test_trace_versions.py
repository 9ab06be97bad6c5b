"""What JAX remembers of functions that read variables, outside programs."""

import jax
import jax.numpy as jnp
import pytest

import unisono


def _scanned(v):
    """The sum of two readings of a variable, in a body that JAX remembers."""
    return float(jax.lax.scan(lambda c, _: (c + v, None), 0.0, None, 2)[0])


@pytest.mark.parametrize("how", ["eagerly", "by a compiled step"])
def test_a_reading_makes_jax_compile_again_once_and_not_after_every_change(how):
    v = unisono.Variable(1.0)
    step = unisono.function(lambda: v.assign_add(1.0))
    change = step if how == "by a compiled step" else lambda: v.assign_add(1.0)
    change()
    traced = []

    @jax.jit
    def double(x):
        traced.append(x)
        return 2 * x

    def traces_of_a_change():
        before = len(traced)
        change()
        assert float(double(jnp.float32(3.0))) == 6.0
        return len(traced) - before

    double(jnp.float32(3.0))
    assert _scanned(v) == 4.0
    # JAX keeps nothing of what read the variable; what it does not read is lost too.
    assert traces_of_a_change() == 1
    assert [traces_of_a_change() for _ in range(3)] == [0, 0, 0]
    assert _scanned(v) == 12.0
    assert traces_of_a_change() == 1
