"""Compiled programs: which calls share one, and what each computes."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from unisono._src.execution import programs

precision = operator.attrgetter("jax_default_matmul_precision")


@pytest.fixture
def made(monkeypatch):
    """Returns the programs that were made since."""
    found = []
    plain = programs.Program.__init__

    def init(self, first):
        plain(self, first)
        found.append(self)

    monkeypatch.setattr(programs.Program, "__init__", init)
    return found


def ones(size):
    return np.ones(size, np.float32)


def test_one_program_serves_all_shapes(made):
    v = unisono.Variable(0.0)
    step = unisono.function(lambda x: v.assign_add(x.sum()))
    for size in (1, 2, 3, 2, 1):
        step(ones(size))
    assert float(v.numpy()) == 9.0
    assert (len(made), step.experimental_get_tracing_count()) == (1, 3)


def test_shapes_for_which_other_variables_are_written_have_their_own_program(made):
    v, w = unisono.Variable(0.0), unisono.Variable(0.0)

    @unisono.function
    def step(x):
        (v if x.size == 1 else w).assign(x.sum())

    for size in (2, 1, 3, 1):
        step(ones(size))
    assert (float(v.numpy()), float(w.numpy())) == (1.0, 3.0)
    assert len(made) == 2


def test_shapes_for_which_other_variables_are_read_have_their_own_program(made):
    v, w = unisono.Variable(2.0), unisono.Variable(3.0)
    step = unisono.function(lambda x: x.sum() * (v if x.size == 1 else w))
    assert [float(step(ones(n))) for n in (1, 2, 1, 2)] == [2.0, 6.0, 2.0, 6.0]
    assert len(made) == 2


def test_shapes_for_which_python_is_called_have_their_own_program(made):
    v, seen = unisono.Variable(1.0), []

    @unisono.function
    def step(x):
        if x.size > 1:
            jax.debug.callback(lambda n: seen.append(int(n)), x.size)
        return v.assign_add(x.sum())

    assert [float(step(ones(n))) for n in (1, 2, 1, 2)] == [2.0, 4.0, 5.0, 7.0]
    assert (len(made), seen) == (2, [2, 2])


def test_a_setting_of_jax_has_a_trace_of_its_own():
    seen = []

    @unisono.function
    def product(x):
        seen.append(precision(jax.config))
        return x @ x

    x = np.eye(2, dtype=np.float32)
    product(x)
    with jax.default_matmul_precision("highest"):
        product(x)
        product(x)
    product(x)
    assert seen == [None, "highest"]


def test_a_released_program_runs_again(made):
    v = unisono.Variable(1.0)
    step = unisono.function(lambda: v.assign_add(1.0))
    step()
    made[0].release()
    assert float(step()) == 3.0


def test_the_first_call_of_python_is_named():
    def fn(x):
        jax.debug.print("{x}", x=x)
        return jax.lax.cond(x > 0, lambda: x, lambda: -x)

    def quiet(x):
        return jax.lax.cond(x > 0, lambda: x, lambda: -x)

    found = [
        programs.find_callback(jax.make_jaxpr(f)(jnp.float32(1.0)).jaxpr)
        for f in (fn, jax.jit(fn), quiet)
    ]
    assert found[0] is not None and found[0] == found[1]
    assert found[2] is None
