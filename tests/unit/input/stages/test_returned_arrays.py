"""What functions return: one array filled again and again, or new ones."""

import numpy as np
import pytest

from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset, flat
from unisono._src.input.stages import mapping


def refilled(shape):
    """Functions that return the same memory on every call."""
    kept = np.zeros((2, *shape))

    def whole(x):
        kept[:] = x
        return kept

    def view(x):
        kept[:] = x
        return kept[0]

    def parts(x):
        kept[:] = x
        return {"a": kept, "b": (kept[1:], x)}

    return whole, view, parts


def first(x):
    return x["b"][0] if isinstance(x, dict) else x


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize(
    "way",
    [
        lambda d: d,
        lambda d: d.batch(2).unbatch(),
        lambda d: d.shuffle(3, seed=1).take(5),
        lambda d: d.prefetch(2),
    ],
)
def test_a_function_may_fill_one_array_again_and_again(which, way):
    function = refilled((3,))[which]
    dataset = Dataset.range(5).map(function)
    found = [float(first(x).flat[0]) for x in list(way(dataset))]
    assert sorted(found) == [0, 1, 2, 3, 4]


def test_distributed_batches_do_not_change_later():
    function = refilled((4,))[1]
    dataset = Dataset.range(6).map(function)
    steps = list(mirrored(2).experimental_distribute_dataset(dataset))
    assert flat(2, steps) == [float(i) for i in range(6) for _ in range(4)]


def test_what_a_scan_gives_does_not_change_later():
    kept = np.zeros(2)

    def add(state, x):
        kept[:] = state + x
        return state + x, kept

    found = list(Dataset.range(5).scan(np.int64(0), add))
    assert [x[0] for x in found] == [0, 1, 3, 6, 10]


def address(x):
    return x.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: (x + 1).reshape(2, 3),
        lambda x: (x + 1)[1:],
        lambda x: x,
        lambda x: x[2:],
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_new_arrays_and_those_given_are_not_copied(function, nested):
    where = []

    def noted(x):
        made = function(x)
        where.append(address(made))
        return {"a": (made,)} if nested else made

    made = mapping.apply(noted, np.arange(6.0))
    assert address(made["a"][0] if nested else made) == where[0]


@pytest.mark.parametrize(
    "kept",
    [
        np.zeros(4).reshape(2, 2),
        np.zeros(5)[1:],
        np.frombuffer(bytearray(32), np.float64),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_a_view_that_is_filled_again_and_again(kept, nested):
    def fill(i):
        kept[:] = i
        return {"a": kept} if nested else kept

    found = list(Dataset.range(4).map(fill))
    assert [float((x["a"] if nested else x).flat[0]) for x in found] == [0, 1, 2, 3]
