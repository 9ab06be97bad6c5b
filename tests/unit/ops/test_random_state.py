"""Which random numbers are the same, and which are not."""

import jax
import pytest

import unisono

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
