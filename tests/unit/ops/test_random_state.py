"""Which random numbers are the same, and which are not."""

from typing import Any

import jax
import numpy as np
import pytest

import unisono
from tests.threads import at_once, repeated
from tests.unit.servers.clusters import cluster

random = unisono.random


def _numbers(x):
    return [round(float(v), 5) for v in x]


def test_a_function_draws_other_numbers_at_each_call_and_restarts_with_the_seed():
    def make():
        return unisono.function(lambda: body())

    def body():
        return [random.uniform([]), random.uniform([]), random.normal([], seed=1),
                random.normal([], seed=1)]  # fmt: skip

    draw, other = make(), make()
    random.set_seed(3)
    first, second = _numbers(draw()), _numbers(draw())
    assert first[0] != first[1]
    assert first[2] == first[3]
    assert not set(first) & set(second)
    random.set_seed(3)
    assert _numbers(draw()) == first
    assert _numbers(other()) == first
    assert draw.experimental_get_tracing_count() == 1


def _draw():
    return random.uniform([], seed=1)


@unisono.function
def _draw_everywhere(x):
    """Returns numbers of operations with one seed, from all parts of a program."""
    nothing = unisono.zeros([])
    return {
        "top": _draw(),
        "branches": unisono.cond(x > 0, _draw, _draw),
        "inner": unisono.cond(
            x > 0,
            lambda: _draw() + unisono.cond(x > 1, _draw, lambda: nothing) * 100,
            lambda: nothing,
        ),
        "case": unisono.switch_case(unisono.cast(x, unisono.int32), [_draw, _draw]),
        "rounds": unisono.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y * 100 + _draw()), (0, nothing)
        )[1],
        "rows": unisono.map_fn(lambda row: row + _draw(), unisono.zeros([2])),
        "last": _draw(),
    }


# How far the stream of each operation has come, as TensorFlow gives it. The rounds of a
# loop and the rows of a map are in order here; TensorFlow runs them at the same time.
_ADVANCES: tuple[tuple[float, dict[str, Any]], ...] = (
    (2.0, {"top": 0, "branches": 0, "inner": (0, 0), "case": 0, "last": 0}),
    (2.0, {"top": 1, "branches": 1, "inner": (1, 1), "case": 1, "last": 1}),
    (-1.0, {"top": 2, "branches": 0, "inner": None, "case": 2, "last": 2}),
    (0.5, {"top": 3, "branches": 2, "inner": (2, None), "case": 0, "last": 3}),
    (2.0, {"top": 4, "branches": 3, "inner": (3, 2), "case": 3, "last": 4}),
)


def test_each_operation_with_a_seed_has_its_own_numbers_wherever_it_stands():
    random.set_seed(7)
    # Eagerly there is one stream, and its numbers are TensorFlow's.
    stream = [float(_draw()) for _ in range(15)]
    random.set_seed(7)
    for call, (x, wanted) in enumerate(_ADVANCES):
        found = _draw_everywhere(unisono.constant(x))
        for name in ("top", "branches", "case", "last"):
            assert float(found[name]) == stream[wanted[name]], (call, name)
        numbers = [0.0 if i is None else stream[i] for i in wanted["inner"] or (None,)]
        inner = sum(number * 100**i for i, number in enumerate(numbers))
        assert float(found["inner"]) == pytest.approx(inner), call
        one, two, three = stream[3 * call : 3 * call + 3]
        rounds = one * 10_000 + two * 100 + three
        assert float(found["rounds"]) == pytest.approx(rounds), call
        assert [float(row) for row in found["rows"]] == stream[2 * call : 2 * call + 2]
    assert _draw_everywhere.experimental_get_tracing_count() == 1


def test_a_seed_gives_a_compiled_function_the_numbers_of_eager_code():
    def draw():
        return [
            *(random.uniform([301], seed=3), random.normal([5, 7], seed=3)),
            *(random.truncated_normal([129], seed=3), random.uniform([2], seed=5)),
            random.uniform([9], 0, 100, unisono.int32, seed=3),
        ]

    random.set_seed(2)
    eager = [draw() for _ in range(2)]
    random.set_seed(2)
    compiled = unisono.function(draw)
    for wanted in eager:
        for one, other in zip(compiled(), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.needs_devices(2)
def test_operations_of_replicas_have_their_own_numbers_too():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica(x):
        return _draw(), unisono.cond(x > 0, _draw, lambda: unisono.zeros([]))

    @unisono.function
    def step(x):
        return [*strategy.run(replica, (x,)), strategy.run(_draw)]

    random.set_seed(7)
    found = [
        [_numbers(value.values) for value in step(unisono.constant(1.0))]
        for _ in range(2)
    ]
    for top, branch, other_run in found:
        assert top == branch == other_run
    assert len({number for call in found for number in call[0]}) == 4


@pytest.mark.needs_devices(2)
@pytest.mark.parametrize("wrap", [lambda f: f, unisono.function])
def test_replicas_draw_different_numbers_and_the_same_of_a_seed(wrap):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica():
        return (
            random.uniform([3])[0],
            random.uniform([3], seed=4)[0],
            random.stateless_uniform([3], [1, 2])[0],
        )

    step = wrap(lambda: strategy.run(replica))
    random.set_seed(3)
    results = [step(), step()]
    for drawn in zip(*results, strict=True):
        found = [float(v) for x in drawn for v in x.values]
        assert len(set(found)) in (4, 1), found
    assert len({float(v) for x in results for v in x[2].values}) == 1
    random.set_seed(3)
    again = step()
    assert _numbers(again[0].values) == _numbers(results[0][0].values)


def test_the_seed_decides_the_order_of_shuffled_datasets():
    def orders():
        random.set_seed(8)
        made = [unisono.data.Dataset.range(30).shuffle(30) for _ in range(2)]
        return [[int(x) for x in dataset] for dataset in made]

    first, second = orders()
    assert first != second
    assert orders() == [first, second]


def test_plain_jit_is_refused_instead_of_giving_the_same_numbers():
    with pytest.raises(RuntimeError, match="Use unisono"):
        jax.jit(lambda: random.uniform([2]))()
    with pytest.raises(RuntimeError, match="before the function"):
        unisono.function(lambda: random.set_seed(3))()


def test_threads_that_draw_with_one_seed_get_different_numbers():
    random.set_seed(1)
    seen = []
    draw = repeated(lambda: seen.append(float(random.uniform([], seed=7))), 30)
    at_once(draw, draw)
    assert len(set(seen)) == 60


def test_threads_that_call_a_new_function_draw_different_numbers():
    step, seen = unisono.function(lambda: random.uniform([])), []
    at_once(*[repeated(lambda: seen.append(float(step())), 5)] * 4)
    assert len(set(seen)) == 20
    assert step.experimental_get_tracing_count() == 1


def test_without_a_seed_numbers_differ_again():
    unisono.random.set_seed(7)
    first = unisono.random.uniform([4]).tolist()
    unisono.random.set_seed(None)
    second, third = (unisono.random.uniform([4]).tolist() for _ in range(2))
    assert first != second != third
    draw = unisono.function(lambda: unisono.random.uniform([4]))
    assert draw().tolist() != draw().tolist()
    # An operation with a seed of its own goes on as in a program without `set_seed`.
    own = [unisono.random.uniform([2], seed=3).tolist() for _ in range(2)]
    unisono.random.set_seed(None)
    assert [unisono.random.uniform([2], seed=3).tolist() for _ in range(2)] == own


def test_numbers_in_a_loop_for_servers_are_refused_with_what_to_write():
    with cluster() as (_, coordinator):

        @unisono.function
        def step():
            def body(i, total):
                return i + 1, total + unisono.random.uniform([2])

            start = [0, unisono.zeros([2])]
            return unisono.while_loop(lambda i, _: i < 3, body, start)[1]

        with pytest.raises(RuntimeError, match="Draw all of them before"):
            coordinator.schedule(step)

        @unisono.function
        def replacement():
            x = unisono.random.uniform([], 0, 2**30, unisono.int32)

            def body(i, total):
                drawn = unisono.random.stateless_uniform([2], seed=[x, i])
                return i + 1, total + drawn

            start = [0, unisono.zeros([2])]
            return unisono.while_loop(lambda i, _: i < 3, body, start)[1]

        first, second = (coordinator.schedule(replacement).fetch() for _ in range(2))
        assert first.tolist() != second.tolist()
        assert first.min() > 0 and first.max() < 3
    # The servers are gone, and with them the state of these numbers.
    unisono.random.set_seed(1)
