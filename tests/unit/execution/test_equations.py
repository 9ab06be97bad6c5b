"""Comparing the programs that two calls of a function gave."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unisono._src.execution import equations


def traced(fn):
    # A function of its own each time: JAX remembers the traces of functions.
    return jax.make_jaxpr(lambda x: fn(x))(jnp.ones(3))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.nn.relu(x) @ x,
        lambda x: jax.lax.scan(lambda c, y: (c + y, y), 0.0, x)[0],
        lambda x: jax.grad(lambda y: jnp.sum(jax.nn.softmax(y)))(x),
        lambda x: jax.lax.cond(x[0] > 0, lambda: x * 2, lambda: x),
        lambda x: jnp.where(x > 0, x, jnp.nan) + np.array([np.nan, 1, 2], np.float32),
    ],
    ids=["custom_jvp", "scan", "grad", "cond", "nan"],
)
def test_two_traces_of_one_function_are_the_same_program(fn):
    assert equations.is_same(traced(fn), traced(fn))


def test_a_number_that_changes_between_calls_is_seen():
    count = itertools.count(1)
    assert not equations.is_same(*(traced(lambda x: x * next(count)) for _ in "ab"))


def test_an_array_that_changes_between_calls_is_seen():
    rng = np.random.default_rng(0)
    fn = lambda x: x + rng.normal(size=3)  # noqa: E731
    assert not equations.is_same(traced(fn), traced(fn))


def test_a_number_inside_a_body_is_seen():
    count = itertools.count(1)

    def fn(x):
        k = float(next(count))
        return jax.lax.scan(lambda c, y: (c + k * y, y), 0.0, x)[0]

    assert not equations.is_same(traced(fn), traced(fn))


def test_other_operations_operands_or_lengths_differ():
    base = traced(lambda x: x + x * 2)
    for other in (lambda x: x - x * 2, lambda x: x * 2 + x, lambda x: x + x * 2 + x):
        assert not equations.is_same(base, traced(other))


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda x: jnp.sin(x) * 2, True),
        # The shapes inside a sum differ, but not what is done.
        (lambda x: x.sum(), True),
        (lambda x: x * x.size, False),
        (lambda x: x if x.size > 3 else x + 1, False),
        (lambda x: jnp.sin(x) if x.size > 3 else jnp.cos(x), False),
        (lambda x: x * np.arange(x.size), False),
        (lambda x: x - 2.0 if x.size > 3 else 2.0 - x, False),
        (lambda x: x - x * x if x.size > 3 else x * x - x, False),
        (lambda x: [x, x + 1] if x.size > 3 else [x + 1, x], False),
        (lambda x: [x, 0.0] if x.size > 3 else [x, 1.0], False),
        (lambda x: [x] if x.size > 3 else [x, x], False),
        (lambda x: jnp.concatenate([x] * x.size), False),
    ],
)
def test_it_is_known_whether_operations_depend_on_a_shape(fn, expected):
    made = [jax.make_jaxpr(lambda x: fn(x))(jnp.ones(n)) for n in (3, 4)]
    assert equations.has_same_operations(*made) is expected
