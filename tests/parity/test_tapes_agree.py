"""Random programs with tapes in tapes have the gradients of `jax.grad`, however run.

A program is a list of steps. Each step makes a value of the values before it: by an
operation, or as a gradient, whose steps are a program of their own in a tape. The model
computes with arrays that have a row for each replica, and with `jax.grad`.
"""

import dataclasses
import functools
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import unisono as tf
from tests import random_programs
from tests.parity.programs import EXECUTIONS, context, execute, mirrored, per_replica

WEIGHTS = jnp.array([1.0, -0.5])


@tf.custom_gradient
def bent(x):
    """A sine with a slope that is not that of a sine."""
    e = jnp.cos(x)

    def gradient(upstream):
        return upstream * (0.5 * x * e + 1.0)

    return jnp.sin(x), gradient


@jax.custom_jvp
def bent_model(x):
    return jnp.sin(x)


@bent_model.defjvp
def _(primals, tangents):
    (x,), (t,) = primals, tangents
    return bent_model(x), t * (0.5 * x * jnp.cos(x) + 1.0)


def loop(x):
    start = (tf.constant(0), x)
    return tf.while_loop(
        lambda i, _: i < 3,
        lambda i, y: (i + 1, 0.5 * y * jnp.cos(y)),
        start,
        maximum_iterations=3,
    )[1]


def loop_model(x):
    for _ in range(3):
        x = 0.5 * x * jnp.cos(x)
    return x


def branch(x):
    return tf.cond(x[0] > 0.3, lambda: x * x, lambda: jnp.sin(x))


def branch_model(x):
    return jnp.where(x[:, :1] > 0.3, x * x, jnp.sin(x))


def reduced(op):
    def model(x):
        found = jnp.sum(x, 0) if op == "SUM" else jnp.mean(x, 0)
        return jnp.broadcast_to(found, x.shape)

    return lambda x: context().all_reduce(op, x), model


def same(f):
    return f, f


# For each operation: what replicas do, and what the model does.
ONE = {
    "sin": same(jnp.sin),
    "square": (tf.square, jnp.square),
    "tanh": same(lambda x: jnp.tanh(x) + 0.25),
    "stop": (tf.stop_gradient, jax.lax.stop_gradient),
    "custom": (bent, bent_model),
    "pass": (tf.grad_pass_through(jnp.cos), lambda x: x + _cut(jnp.cos(x) - x)),
    "recompute": (tf.recompute_grad(jnp.cos), jnp.cos),
    "loop": (loop, loop_model),
    "cond": (branch, branch_model),
    "function": (tf.function(lambda x: bent(x) * x), lambda x: bent_model(x) * x),
    "all_reduce SUM": reduced("SUM"),
    "all_reduce MEAN": reduced("MEAN"),
}
TWO = {
    "add": same(lambda x, y: x + y),
    "multiply": same(lambda x, y: x * y),
    "fraction": same(lambda x, y: x / (2.0 + jnp.sin(y))),
}
# What waits for the other replicas cannot be in a jacobian, which is a `jax.vmap`.
ALONE = [name for name in ONE if not name.startswith("all_reduce")]


def _cut(x):
    return jax.lax.stop_gradient(x)


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation on values, by their numbers."""

    name: str
    values: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """The gradient of the last value of some steps by an earlier value."""

    how: str  # gradient, persistent or jacobian.
    source: int
    steps: tuple[Any, ...]


def steps(depth, known, names=tuple(ONE)):
    """Programs on `known` values, with tapes in at most `depth` tapes."""

    @st.composite
    def build(draw):
        made = []
        for number in range(known, known + draw(st.integers(1, 3))):
            values = st.integers(0, number - 1)
            kinds = ["one", "one", "two"] + ["gradient"] * (2 if depth else 0)
            kind = draw(st.sampled_from(kinds))
            if kind == "gradient":
                how = draw(st.sampled_from(("gradient", "persistent", "jacobian")))
                inner = ALONE if how == "jacobian" else names
                source = draw(values)
                body = draw(steps(depth - 1, number, tuple(inner)))
                made.append(Gradient(how, source, body))
            elif kind == "one":
                made.append(Op(draw(st.sampled_from(names)), (draw(values),)))
            else:
                name = draw(st.sampled_from(sorted(TWO)))
                made.append(Op(name, (draw(values), draw(values))))
        return tuple(made)

    return build()


def run(program, values):
    """What a replica does: the values, and the new ones behind them."""
    values = list(values)
    for step in program:
        if isinstance(step, Op):
            table = ONE if len(step.values) == 1 else TWO
            made = table[step.name][0](*[values[i] for i in step.values])
        else:
            made = differentiate(step, values)
        values.append(made)
    return values


def differentiate(step, values):
    source = values[step.source]
    with tf.GradientTape(persistent=step.how == "persistent") as tape:
        tape.watch(source)
        target = run(step.steps, values)[-1]
    if step.how == "jacobian":
        found = tape.jacobian(target, source, unconnected_gradients="zero")
        return WEIGHTS @ found
    if step.how == "persistent":
        tape.gradient(target, source)
    return tape.gradient(target, source, unconnected_gradients="zero")


def model(program, values):
    values = list(values)
    for step in program:
        if isinstance(step, Op):
            table = ONE if len(step.values) == 1 else TWO
            made = table[step.name][1](*[values[i] for i in step.values])
        else:
            made = jax.grad(functools.partial(total, step, values))(values[step.source])
        values.append(made)
    return values


def total(step, values, source):
    values = [*values[: step.source], source, *values[step.source + 1 :]]
    weights = WEIGHTS if step.how == "jacobian" else 1.0
    return jnp.sum(model(step.steps, values)[-1] * weights)


X = np.linspace(-0.7, 1.1, 16).reshape(8, 2).astype("float32")
V = np.array([0.6, -0.4], "float32")


def check(program, n, how):
    s = mirrored(n)
    with s.scope():
        v = tf.Variable(V)
    rows = np.broadcast_to(V, (n, 2))
    want = np.asarray(model(program, [jnp.asarray(X[:n]), jnp.asarray(rows)])[-1])
    hypothesis.assume(np.all(np.abs(want) < 1e3))

    def fn(x):
        return 1.0 * run(program, [x, v])[-1]

    found = execute(how, s, fn, args=(per_replica(s, *X[:n]),))
    got = np.asarray(s.experimental_local_results(found))
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3, err_msg=how)


@random_programs.tries(12)
@hypothesis.given(steps(2, 2), st.sampled_from([1, 2, 3]), st.sampled_from(EXECUTIONS))
def test_a_tape_in_a_tape_has_the_gradients_of_jax(program, n, how):
    check(program, n, how)


# TensorFlow's answers: what these return is a new tensor, also if nothing is to do.
NOTHING_TO_DO = {
    "all_reduce": lambda x: context().all_reduce("SUM", x),
    "all_gather": lambda x: context().all_gather(x, 0),
    "reshape": lambda x: tf.reshape(x, [2]),
    "transpose": lambda x: tf.transpose(x, [0]),
    "broadcast_to": lambda x: tf.broadcast_to(x, [2]),
    "reverse": lambda x: tf.reverse(x, []),
    "ensure_shape": lambda x: tf.ensure_shape(x, [2]),
    "concat": lambda x: tf.concat([x], 0),
    "identity": tf.identity,
}


@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("name", NOTHING_TO_DO)
def test_a_copy_made_before_the_tape_is_not_watched(name, how):
    def fn(x):
        y = NOTHING_TO_DO[name](x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            z = x * y
        return tape.gradient(z, x)

    found = execute(how, mirrored(1), fn, args=(per_replica(mirrored(1), V),))
    assert np.asarray(found).tolist() == pytest.approx(V.tolist())


def test_a_variable_that_was_given_a_copy_leaves_the_array_alone():
    s = mirrored(1)
    with s.scope():
        v = tf.Variable(V, aggregation=tf.VariableAggregation.MEAN)
    x = jnp.asarray(V)

    def fn(x):
        v.assign(context().all_reduce("SUM", x))

    s.run(fn, args=(x,))
    step = tf.function(lambda: s.run(lambda: v.assign_add(V)))
    step()
    step()
    assert x.tolist() == V.tolist()
    assert np.asarray(v).tolist() == pytest.approx((3 * V).tolist())
