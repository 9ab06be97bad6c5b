"""Functions that raise in the middle of an epoch: who goes on misses nothing else."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisono as uni
from tests.unit.input.pipelines import Dataset

PROPERTY = settings(max_examples=80, deadline=None, derandomize=True)


class Fails:
    """A function that raises for some numbers, as often as it is called."""

    def __init__(self, numbers):
        self.numbers = numbers

    def check(self, x):
        if int(x) in self.numbers:
            raise RuntimeError(f"number {int(x)}")
        return True

    def keep(self, x):
        self.check(x)
        return x

    def carry(self, state, x):
        self.check(x)
        return state + x, x


def pipelines(size, fails):
    source = Dataset.range(size)
    return {
        "map": source.map(fails.keep),
        "two maps": source.map(lambda x: x).map(fails.keep).map(lambda x: x),
        "filter": source.filter(fails.check),
        "scan": source.scan(np.int64(0), fails.carry),
        "threads": source.map(fails.keep, num_parallel_calls=3),
        "tuned": source.map(fails.keep, num_parallel_calls=-1),
    }


def expected(size, numbers, batch):
    """TensorFlow's rule: a batch in which an element fails is given up."""
    seen, block = [], []
    for x in range(size):
        if x in numbers:
            seen.append(f"number {x}")
            block = []
            continue
        block.append(x)
        if len(block) == batch:
            seen.append(block)
            block = []
    return seen + ([block] if block else [])


def seen_by(make, again=False):
    """What a loop sees that goes on after exceptions, maybe in another program."""
    iterator = iter(make())
    seen = []
    while True:
        if again:
            state = json.loads(json.dumps(iterator.get_state()))
            iterator.close()
            iterator = iter(make())
            iterator.set_state(state)
        try:
            seen.append(next(iterator).tolist())
        except StopIteration:
            iterator.close()
            return seen
        except RuntimeError as e:
            seen.append(str(e))


KINDS = sorted(pipelines(1, Fails(())))


@pytest.mark.feature("H02")
@pytest.mark.parametrize("kind", KINDS)
@PROPERTY
@given(
    st.integers(0, 40),
    st.sets(st.integers(0, 39), max_size=6),
    st.integers(1, 9),
    st.booleans(),
)
def test_only_the_batch_is_missing_in_which_an_element_failed(
    kind, size, numbers, batch, again
):
    fails = Fails(numbers)
    seen = seen_by(lambda: pipelines(size, fails)[kind].batch(batch), again)
    assert seen == expected(size, numbers, batch)


@PROPERTY
@given(st.integers(0, 40), st.sets(st.integers(0, 39), max_size=6), st.integers(1, 9))
def test_a_filter_that_keeps_few_loses_none_of_them(size, numbers, batch):
    fails = Fails(numbers)

    def make():
        kept = Dataset.range(size).filter(lambda x: fails.check(x) and x % 3 == 0)
        return kept.batch(batch)

    seen, block = [], []
    for x in range(size):
        if x in numbers:
            seen.append(f"number {x}")
            block = []
        elif x % 3 == 0:
            block.append(x)
            if len(block) == batch:
                seen.append(block)
                block = []
    assert seen_by(make) == seen + ([block] if block else [])


def ends(x):
    return next(iter([])) if x == 5 else x


@pytest.mark.parametrize(
    "transformed",
    [
        lambda d: d.map(ends),
        lambda d: d.map(ends, num_parallel_calls=2),
        lambda d: d.filter(lambda x: ends(x) is not None),
        lambda d: d.flat_map(lambda x: Dataset.from_tensors(ends(x))),
        lambda d: d.scan(np.int64(0), lambda s, x: (s, ends(x))),
        lambda d: d.map(ends).prefetch(2),
    ],
)
def test_a_function_cannot_end_the_data_by_accident(transformed, tmp_path):
    dataset = transformed(Dataset.range(8))
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(dataset)
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        dataset.save(tmp_path)


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("kind", ["generator", "map"])
def test_what_is_incomplete_is_not_kept(tmp_path, in_file, kind):
    failing = [True]

    def once(x):
        if x == 3 and failing[0]:
            raise OSError("network")
        return x

    def numbers():
        yield from map(once, range(6))

    if kind == "map":
        dataset = Dataset.range(6).map(once)
    else:
        spec = uni.TensorSpec((), np.int64)
        dataset = Dataset.from_generator(numbers, output_signature=spec)
    cached = dataset.cache(tmp_path / "c" if in_file else "")
    iterator = iter(cached)
    with pytest.raises(OSError, match="network"):
        list(iterator)
    # Whoever goes on comes to an end, which is not that of all elements.
    list(iterator)
    iterator.close()
    failing[0] = False
    assert [int(x) for x in cached] == list(range(6))
    assert [int(x) for x in cached] == list(range(6))


def test_threads_give_what_comes_before_an_exception_of_the_source():
    def fails(x):
        if x == 3:
            raise OSError("no 3")
        return x

    def made():
        return Dataset.range(10).map(fails).map(abs, num_parallel_calls=4)

    whole = [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [int(x) for x in made().ignore_errors()] == whole
    iterator, seen = iter(made()), []
    while len(seen) < len(whole):
        try:
            seen.append(int(next(iterator)))
        except OSError:
            assert seen == [0, 1, 2]
    assert seen == whole
    iterator.close()


def _fail_at_5(x):
    if x == 5:
        raise ValueError("bad element")
    return x


_FIVE_FAILS = Dataset.range(9).map(_fail_at_5)


@pytest.mark.parametrize(
    "zipped",
    [
        Dataset.zip(_FIVE_FAILS, Dataset.range(9)),
        Dataset.zip(Dataset.range(9), _FIVE_FAILS),
        _FIVE_FAILS.enumerate(),
    ],
    ids=["first", "second", "enumerate"],
)
def test_zip_keeps_the_pairs_together_behind_an_element_that_raised(zipped):
    pairs = [(int(a), int(b)) for a, b in zipped.ignore_errors()]
    assert pairs == [(n, n) for n in range(9) if n != 5]
    batches = [(a.tolist(), b.tolist()) for a, b in zipped.batch(4).ignore_errors()]
    assert batches == [([0, 1, 2, 3],) * 2, ([6, 7, 8],) * 2]
