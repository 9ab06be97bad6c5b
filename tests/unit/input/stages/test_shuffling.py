"""The law of shuffling through a buffer."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.unit.input.pipelines import Dataset, numbers, resumed, saved

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)


def sources(size):
    """As rows that are chosen by number, and as elements that must be kept."""
    return Dataset.range(size), Dataset.range(size).map(lambda x: x)


@PROPERTY
@given(st.integers(0, 400), st.integers(1, 40), st.integers(-5, 2**40))
def test_no_element_comes_before_the_buffer_can_hold_it(size, buffer, seed):
    rows, elements = (d.shuffle(buffer, seed=seed) for d in sources(size))
    order = numbers(rows)
    assert sorted(order) == list(range(size))
    assert all(x <= place + buffer - 1 for place, x in enumerate(order))
    assert numbers(elements) == order
    assert numbers(rows.batch(7)) == numbers(elements.batch(7))


@PROPERTY
@given(st.integers(0, 60), st.integers(1, 60), st.integers(1, 9), st.booleans())
def test_the_order_does_not_depend_on_how_many_are_read_at_once(
    size, buffer, block, as_rows
):
    def made():
        return sources(size)[0 if as_rows else 1].shuffle(buffer, seed=3)

    one_by_one = numbers(made())
    assert numbers(made().batch(block)) == one_by_one


@PROPERTY
@given(
    st.integers(0, 30),
    st.lists(st.integers(1, 40), min_size=2, max_size=3),
    st.integers(0, 30),
    st.booleans(),
)
def test_shuffles_of_shuffles_go_on_where_they_stopped(size, windows, stop, as_rows):
    def made():
        dataset = sources(size)[0 if as_rows else 1]
        for seed, window in enumerate(windows):
            dataset = dataset.shuffle(window, seed=seed)
        return dataset

    whole = numbers(made())
    assert sorted(whole) == list(range(size))
    iterator = iter(made())
    begun = [int(x) for _, x in zip(range(stop), iterator)]
    assert begun + numbers(resumed(made(), saved(iterator))) == whole


def test_a_position_in_a_shuffle_of_other_data_is_refused():
    iterator = iter(Dataset.range(20).shuffle(20, seed=1))
    next(iterator)
    state = iterator.get_state()
    with pytest.raises(ValueError, match="20 elements, and this one has 21"):
        iter(Dataset.range(21).shuffle(99, seed=1)).set_state(state)


def test_a_position_in_an_order_that_numpy_does_not_give_any_more_is_refused():
    iterator = iter(Dataset.range(20).shuffle(20, seed=1))
    next(iterator)
    state = iterator.get_state()
    order = state["position"]["source"]["source"]
    order["row"] = (order["row"] + 1) % 20
    with pytest.raises(ValueError, match="NumPy shuffles differently"):
        iterator.set_state(state)


def test_every_element_of_the_buffer_may_come_first():
    firsts = {
        numbers(Dataset.range(9).shuffle(4, seed=i).take(1))[0] for i in range(99)
    }
    assert firsts == {0, 1, 2, 3}


def test_whole_shuffles_are_even():
    counts = np.zeros((5, 5), int)
    for seed in range(400):
        for place, x in enumerate(numbers(Dataset.range(5).shuffle(5, seed=seed))):
            counts[place, x] += 1
    # 80 expected; more than five standard deviations would be 40 off.
    assert abs(counts - 80).max() < 40


@pytest.mark.parametrize("make", [0, 1], ids=["rows", "elements"])
def test_the_order_changes_with_each_iteration_unless_told_otherwise(make):
    def source():
        return sources(30)[make]

    for changing in (None, True):
        dataset = source().shuffle(30, seed=1, reshuffle_each_iteration=changing)
        assert numbers(dataset) != numbers(dataset)
        epochs = numbers(dataset.repeat(2))
        assert epochs[:30] != epochs[30:]
        assert sorted(epochs[:30]) == sorted(epochs[30:]) == list(range(30))
    fixed = source().shuffle(30, seed=1, reshuffle_each_iteration=False)
    assert numbers(fixed.repeat(2)) == numbers(fixed) * 2
    assert numbers(source().shuffle(30)) != numbers(source().shuffle(30))


def test_the_same_seed_gives_the_same_orders_in_every_program():
    def orders():
        dataset = Dataset.range(20).shuffle(6, seed=4)
        return [numbers(dataset) for _ in range(3)]

    assert orders() == orders()


def or_else(iterator):
    """The next number; None instead of an exception, -1 at the end."""
    try:
        return int(next(iterator, -1))
    except OSError:
        return None


def rest_of(iterator):
    return [x for x in iter(lambda: or_else(iterator), -1) if x is not None]


@pytest.mark.parametrize("failing", [None, 70, 150])
@pytest.mark.parametrize("kind", ["indices", "elements"])
def test_every_position_in_a_large_shuffle_is_right(kind, failing):
    def checked(x):
        if x == failing:
            raise OSError(f"no {x}")
        return x

    def made():
        dataset = Dataset.range(200)
        if kind == "elements":
            dataset = dataset.map(checked)
        return dataset.shuffle(80, seed=2)

    whole = rest_of(iter(made()))
    iterator, seen = iter(made()), []
    while len(seen) < len(whole):
        # Taken at every step, so that most of them count from an earlier one.
        state = saved(iterator)
        if len(seen) % 9 == 0:
            assert rest_of(resumed(made(), state)) == whole[len(seen) :]
        one = or_else(iterator)
        seen.extend([] if one is None else [one])
    assert seen == whole
