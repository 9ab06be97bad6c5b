"""Running code knows which trace of JAX it belongs to, and can leave it."""

import jax
import jax.numpy as jnp
import pytest

from unisono._src.values import jax_traces


def test_gradients_are_looked_through_and_programs_are_not():
    assert jax_traces.is_clean()
    assert jax_traces.is_eager(jax_traces.current())
    seen = []

    def note(x):
        base, reading = jax_traces.base_trace(), jax_traces.reading_trace()
        seen.append((jax_traces.is_eager(base), jax_traces.is_eager(reading)))
        assert not jax_traces.is_clean()
        return x * 2.0

    jax.grad(note)(1.0)
    jax.vmap(note)(jnp.ones(2))
    jax.jit(note)(1.0)
    # A `vmap` has values of its own, and JAX caches no program of it.
    assert seen == [(True, True), (False, True), (False, False)]


def test_a_trace_says_whether_it_is_that_of_a_jit():
    seen = []

    def note(carry, _):
        seen.append(jax_traces.is_for_jit(jax_traces.current()))
        return carry, None

    @jax.jit
    def step(x):
        seen.append(jax_traces.is_for_jit(jax_traces.current()))
        return jax.lax.scan(note, x, None, length=2)[0]

    step(1.0)
    assert seen[0] is True
    assert set(seen[1:]) == {False}


def test_code_computes_at_once_inside_a_program():
    made = []

    @jax.jit
    def step(x):
        with jax_traces.compute_at_once():
            made.append(float(jnp.ones(()) + 1.0))
        with pytest.raises(jax.errors.ConcretizationTypeError):
            float(x)
        return x

    step(1.0)
    assert made == [2.0]


def test_the_array_behind_a_gradient_is_known_and_that_of_a_program_is_not():
    found = []

    def note(x):
        found.append(jax_traces.concrete_value(x))
        return x * 1.0

    jax.grad(note)(3.0)
    jax.jit(note)(3.0)
    assert float(found[0]) == 3.0
    assert found[1] is None
