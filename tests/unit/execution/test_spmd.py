"""One program for all replicas: results, variables, and when it cannot serve them."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import (
    context,
    copies,
    local,
    mirrored,
    number,
    numbers,
    per_replica,
    plain,
    variable,
)

PerReplica = unisono.distribute.PerReplica


def run(strategy, fn, *args):
    """Runs `fn` in one program of all replicas, and returns the local results."""
    step = unisono.function(lambda *given: strategy.run(fn, args=given))
    return local(strategy, step(*args))


def test_each_replica_returns_its_own_part():
    strategy = mirrored(4)
    x = per_replica(strategy, *numbers(4))
    assert run(strategy, lambda x: {"y": x * number(), "z": 1}, x) == [
        {"y": n * n, "z": 1} for n in numbers(4)
    ]


@pytest.mark.parametrize(("replicas", "calls"), [(1, 1), (2, 2), (4, 4), (8, 2)])
def test_the_function_is_traced_for_each_of_few_replicas(replicas, calls):
    strategy, seen = mirrored(replicas), []
    run(strategy, lambda: seen.append(0))
    assert len(seen) == calls


def test_a_function_that_merges_is_traced_once():
    strategy, seen = mirrored(2), []

    def replica():
        seen.append(0)
        total = context().merge_call(lambda s, x: s.reduce("SUM", x, None), (number(),))
        return total * 2.0

    assert run(strategy, replica) == [6.0, 6.0]
    assert len(seen) == 1


def test_a_value_for_another_number_of_replicas_is_an_error():
    x = PerReplica([jnp.float32(i) for i in range(3)])
    with pytest.raises(IndexError, match="has 3 values but the strategy has 2"):
        run(mirrored(2), lambda x: x, x)


def test_copies_that_would_differ_are_an_error_that_names_the_variable():
    strategy = mirrored(2)
    v = variable(strategy, 0.0, name="weights")
    with pytest.raises(ValueError, match="weights"):
        run(strategy, lambda: v.assign(number()))
    assert copies(v) == [0.0, 0.0]


def test_a_variable_gets_what_all_replicas_have_computed_together():
    strategy = mirrored(2)
    v = variable(strategy, 1.0, aggregation="MEAN")
    run(strategy, lambda: v.assign(v + context().all_reduce("SUM", number())))
    assert copies(v) == [4.0, 4.0]


def test_replicas_that_make_other_programs_take_turns():
    strategy, counter = mirrored(2), iter(range(100))
    assert run(strategy, lambda: jnp.float32(next(counter) % 2)) in (
        [0.0, 1.0],
        [1.0, 0.0],
    )


def test_a_value_that_another_strategy_keeps_for_each_replica_is_read_as_one():
    outer, strategy = mirrored(4), mirrored(2)
    with outer.scope():
        v = unisono.Variable(
            2.0,
            synchronization=unisono.VariableSynchronization.ON_READ,
            aggregation=unisono.VariableAggregation.SUM,
        )
    step = unisono.function(lambda: v.read_value() * jnp.ones(2))
    assert plain(step()) == [8.0, 8.0]
    assert run(strategy, lambda: number() * 3.0) == [3.0, 6.0]


def test_a_failed_step_leaves_variables_as_they_were():
    strategy = mirrored(2)
    v = variable(strategy, 1.0, aggregation="MEAN")

    def replica(x):
        v.assign_add(jnp.float32(1.0))
        if np.shape(x) == (3,):
            raise KeyError("three")
        return v.read_value()

    with pytest.raises(KeyError, match="three"):
        run(strategy, replica, np.zeros(3, np.float32))
    assert copies(v) == [1.0, 1.0]
    assert run(strategy, replica, np.zeros(2, np.float32)) == [2.0, 2.0]


def test_results_of_python_that_differ_are_noticed():
    strategy, calls = mirrored(2), []

    def count(x):
        calls.append(0)
        return len(calls), x * 2

    first, second = (n for n, _ in run(strategy, count, jnp.ones(1)))
    assert second == first + 1


def test_zeros_of_other_signs_are_other_programs():
    zeros = iter([0.0, -0.0] * 4)
    found = run(mirrored(2), lambda x: x / next(zeros), jnp.ones(()))
    assert sorted(map(float, found)) == [-np.inf, np.inf]
