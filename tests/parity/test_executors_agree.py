"""Random replica programs give the numbers of a model in plain Python, however run.

Eagerly, compiled once for all replicas, and compiled replica by replica (forced by an
argument whose shape differs between replicas).
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import hypothesis
import jax.numpy as jnp
import pytest
from hypothesis import strategies as st

import unisono as tf
from tests import random_programs
from tests.parity.programs import (
    EXECUTIONS,
    context,
    copies,
    execute,
    local,
    mirrored,
    number,
    numbers,
    on_read,
    per_replica,
    variable,
)

AGGREGATIONS = ("SUM", "MEAN", "ONLY_FIRST_REPLICA")
OPERATIONS = ("assign", "assign_add", "assign_sub")


@dataclasses.dataclass
class Model:
    """What the program has done so far, as lists of numbers."""

    x: list
    mirrored: dict
    on_read: list

    def combined(self, aggregation):
        first = self.x[0]
        total = sum(self.x)
        return {
            "SUM": total,
            "MEAN": total / len(self.x),
            "ONLY_FIRST_REPLICA": first,
        }[aggregation]


def applied(op, old, new):
    return {"assign": new, "assign_add": old + new, "assign_sub": old - new}[op]


# Each step: what replicas do, and what the model does. Values are kept small, so that
# float32 stays close to Python's numbers.


def assign_mirrored(aggregation, op):
    def run(x, made):
        return x + 0.25 * getattr(made[aggregation], op)(x)

    def model(m):
        new = applied(op, m.mirrored[aggregation], m.combined(aggregation))
        m.mirrored[aggregation] = new
        m.x = [x + 0.25 * new for x in m.x]

    return run, model


def assign_on_read(op):
    def run(x, made):
        return x - 0.5 * getattr(made["ON_READ"], op)(x)

    def model(m):
        m.on_read = [applied(op, old, x) for old, x in zip(m.on_read, m.x)]
        m.x = [x - 0.5 * new for x, new in zip(m.x, m.on_read)]

    return run, model


def read(key):
    def run(x, made):
        return 0.5 * x + 0.5 * made[key]

    def model(m):
        own = m.on_read if key == "ON_READ" else [m.mirrored[key]] * len(m.x)
        m.x = [0.5 * x + 0.5 * y for x, y in zip(m.x, own)]

    return run, model


def reduce_all(op):
    def run(x, made):
        return 0.25 * context().all_reduce(op, x) + 0.125 * number()

    def model(m):
        total = m.combined(op)
        m.x = [0.25 * total + 0.125 * i for i in numbers(len(m.x))]

    return run, model


def gather_all():
    def run(x, made):
        parts = context().all_gather(x[None], axis=0)
        return 0.5 * x + 0.25 * parts[0] - 0.25 * parts[-1]

    def model(m):
        first, last = m.x[0], m.x[-1]
        m.x = [0.5 * x + 0.25 * first - 0.25 * last for x in m.x]

    return run, model


def merge():
    def run(x, made):
        def merged(strategy, value, var):
            total = strategy.reduce("MEAN", value, axis=None)
            return total + 0.25 * var, value

        total, own = context().merge_call(merged, args=(x, made["ON_READ"]))
        return 0.5 * total - 0.5 * own

    def model(m):
        total = m.combined("MEAN") + 0.25 * sum(m.on_read)
        m.x = [0.5 * total - 0.5 * x for x in m.x]

    return run, model


def update(aggregation):
    def run(x, made):
        def merged(strategy, value, var):
            mean = strategy.extended.reduce_to("MEAN", value, var)
            strategy.extended.update(
                var, lambda v, y: v.assign(0.5 * v + y), args=(mean,)
            )

        context().merge_call(merged, args=(x, made[aggregation]))
        return x

    def model(m):
        m.mirrored[aggregation] = 0.5 * m.mirrored[aggregation] + m.combined("MEAN")

    return run, model


STEPS: dict[str, Callable[[], Any]] = {
    **{
        f"{op} {a}": functools.partial(assign_mirrored, a, op)
        for a in AGGREGATIONS
        for op in OPERATIONS
    },
    **{f"{op} ON_READ": functools.partial(assign_on_read, op) for op in OPERATIONS},
    **{f"read {a}": functools.partial(read, a) for a in (*AGGREGATIONS, "ON_READ")},
    **{f"all_reduce {op}": functools.partial(reduce_all, op) for op in ("SUM", "MEAN")},
    **{f"update {a}": functools.partial(update, a) for a in AGGREGATIONS},
    "all_gather": gather_all,
    "merge_call": merge,
}  # fmt: skip


def expected(names, n):
    model = Model(numbers(n), {a: 1.0 for a in AGGREGATIONS}, [1.0] * n)
    for name in names:
        STEPS[name]()[1](model)
    return [model.x, *[[model.mirrored[a]] * n for a in AGGREGATIONS], model.on_read]


def found(names, n, how, is_uneven):
    s = mirrored(n)
    made = {a: variable(s, 1.0, a) for a in AGGREGATIONS} | {"ON_READ": on_read(s, 1.0)}

    def fn(parts):
        x = number() + 0.0 * jnp.sum(parts)
        for name in names:
            x = STEPS[name]()[0](x, made)
        return x + 0.0 * number()

    lengths = [1 + (i if is_uneven else 0) for i in range(n)]
    parts = per_replica(s, *[[0.0] * length for length in lengths])
    x = execute(how, s, fn, args=(parts,))
    return [local(s, x), *[copies(v) for v in made.values()]]


@pytest.mark.feature("D12", "L02", "L07", "R06", "R08", "R12")
@pytest.mark.parametrize("is_uneven", [False, True], ids=["even", "uneven"])
@pytest.mark.parametrize("n", [2, 3])
@random_programs.tries(5)
@hypothesis.given(st.lists(st.sampled_from(sorted(STEPS)), min_size=3, max_size=10))
def test_every_executor_does_what_the_model_says(is_uneven, n, names):
    want = expected(names, n)
    for how in EXECUTIONS:
        got = found(names, n, how, is_uneven)
        for a, b in zip(got, want):
            assert a == pytest.approx(b, rel=1e-4, abs=1e-4), (how, names)


def test_every_step_is_tried_at_least_once():
    names = sorted(STEPS)
    for n in (1, 2):
        want = expected(names, n)
        for how in EXECUTIONS:
            for a, b in zip(found(names, n, how, False), want):
                assert a == pytest.approx(b, rel=1e-4, abs=1e-4), how
    assert tf.distribute.has_strategy() is False
