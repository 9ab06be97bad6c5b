"""Code can ask how it runs."""

import jax.numpy as jnp

import unisono


def test_code_knows_whether_it_is_traced():
    seen = []

    @unisono.function
    @unisono.autograph.experimental.do_not_convert()
    def look(x):
        known = unisono.get_static_value(jnp.ones(2) if x is None else x)
        seen.append((unisono.executing_eagerly(), unisono.inside_function(), known))
        return unisono.is_symbolic_tensor(x)

    assert bool(look(jnp.asarray(1)))
    unisono.config.experimental_run_functions_eagerly(True)
    try:
        assert not look(jnp.asarray(1))
    finally:
        unisono.config.run_functions_eagerly(False)
    assert seen == [(False, True, None), (True, False, 1)]
