"""Tables and streams of Hugging Face: types, gaps, positions."""

import datetime
import re

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.loaders.test_dispatch import distributed
from tests.unit.input.pipelines import COUNTS, Dataset, flat, resumed, saved

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def _no_progress_bars(monkeypatch):
    # They have a thread, which stays.
    tqdm = pytest.importorskip("tqdm")
    monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)


def table(**columns):
    return datasets.Dataset.from_dict(columns)


def stream(size=10, shards=1):
    return table(x=list(range(size))).to_iterable_dataset(num_shards=shards)


def xs(dataset):
    return [int(row["x"]) for row in dataset]


# Tables.


def test_types_are_those_of_the_table():
    large = table(x=[1, 2, 2**40, 4], y=[1.5, 2.0, 3.0, 4.0], b=[True, False] * 2)
    dataset = Dataset.from_loader(large)
    types = {"x": np.int64, "y": np.float64, "b": np.bool_}
    for made in (dataset, dataset.batch(2), dataset.shuffle(4, seed=1).batch(2)):
        assert {k: s.dtype for k, s in made.element_spec.items()} == types
        for element in made:
            assert {k: v.dtype for k, v in element.items()} == types
    types = {"x": datasets.Value("int8"), "y": datasets.Value("float32")}
    small = datasets.Dataset.from_dict(
        {"x": [1, 2], "y": [1.5, 2.0]}, features=datasets.Features(types)
    )
    streamed = Dataset.from_loader(small.to_iterable_dataset())
    assert streamed.element_spec["y"].dtype == np.float32
    assert streamed.element_spec == Dataset.from_loader(small).element_spec


def test_text_keeps_its_zero_bytes():
    texts = [b"a\0", b"", b"\0\0"]
    given = table(t=texts)
    for loader in (given, given.to_iterable_dataset()):
        (batch,) = Dataset.from_loader(loader).batch(3)
        assert batch["t"].tolist() == texts


def test_dates_name_their_column():
    given = table(fine=[1], when=[datetime.date(2020, 1, 1)])
    for loader in (given, given.to_iterable_dataset()):
        with pytest.raises(TypeError, match=r"column 'when'.*datetime\.date"):
            list(Dataset.from_loader(loader))


def test_columns_that_a_table_hides_are_not_read():
    given = table(a=[1, 2], b=[3, 4])
    given.set_format(None, columns=["b"])
    (batch,) = Dataset.from_loader(given).batch(2)
    assert {name: x.tolist() for name, x in batch.items()} == {"b": [3, 4]}


@pytest.mark.parametrize("n", COUNTS)
def test_an_empty_table_gives_no_steps(n):
    empty = table(x=[1, 2], t=["a", "b"], v=[[1], [2]]).select([])
    dataset = Dataset.from_loader(empty)
    assert list(dataset) == []
    assert dataset.element_spec["x"] == uni.TensorSpec((), np.int64)
    assert dataset.element_spec["v"] == uni.TensorSpec((None,), np.int64)
    assert list(distributed(n, dataset.batch(4))) == []


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 3],
        [1.0, None, 3.0],
        [True, None, False],
        ["a", None, "b"],
        [[1.0], [None], [3.0]],
        [{"a": 1}, {"a": None}, {"a": 2}],
    ],
)
def test_a_missing_value_names_its_column(values):
    dataset = Dataset.from_loader(table(fine=[1, 2, 3], bad=values))
    for made in (dataset, dataset.batch(3)):
        with pytest.raises(ValueError, match=r"column 'bad'.*null.*table\.filter"):
            list(made)
    # What is not a number is a number all the same.
    nan = Dataset.from_loader(table(x=[1.0, float("nan")])).batch(2)
    assert np.isnan(next(iter(nan))["x"][1])


@pytest.mark.parametrize("values", [[[1, 2, 3], [4]], [["a", "b", "c"], ["d"]]])
def test_a_column_of_different_lengths_is_padded(values):
    dataset = Dataset.from_loader(table(fine=[1, 2], words=values))
    wanted = r"column 'words'.*\(1,\), \(3,\).*padded_batch"
    with pytest.raises(uni.errors.InvalidArgumentError, match=wanted):
        list(dataset.batch(2))
    for order in (dataset, Dataset.from_loader(table(words=values[::-1]))):
        (batch,) = order.padded_batch(2)
        assert batch["words"].shape == (2, 3)


def test_a_row_that_is_no_array_names_its_column():
    uneven = Dataset.from_loader(table(words=[[[1, 2], [3]]]))
    with pytest.raises(ValueError, match=r"column 'words' is no array.*table\.map"):
        list(uneven)


def test_structures_in_a_column():
    nested = table(
        q=[{"a": i, "b": [i, i]} for i in range(4)],
        parts=[[{"c": i}, {"c": i + 1}] for i in range(4)],
    )
    dataset = Dataset.from_loader(nested)
    assert dataset.element_spec["q"]["b"].shape == (2,)
    assert dataset.element_spec["parts"]["c"].shape == (2,)
    (step,) = distributed(2, dataset.batch(4))
    assert flat(2, [step["q"]["a"]]) == [0, 1, 2, 3]
    assert flat(2, [step["parts"]["c"]]) == [[i, i + 1] for i in range(4)]


@pytest.mark.parametrize("kind", ["numpy", "jax", "torch"])
def test_a_table_with_a_format(kind):
    pytest.importorskip(kind)
    made = table(x=list(range(4)), v=[[i, i] for i in range(4)]).with_format(kind)
    (step,) = distributed(2, Dataset.from_loader(made).batch(4))
    assert flat(2, [step["v"]]) == [[i, i] for i in range(4)]
    assert Dataset.from_loader(made).element_spec["v"].shape == (2,)


def test_a_table_with_a_transform():
    made = table(x=[1, 2, 3, 4]).with_transform(
        lambda rows: {"y": [np.full(2, x) for x in rows["x"]]}
    )
    (step,) = distributed(2, Dataset.from_loader(made).batch(4))
    assert flat(2, [step["y"]]) == [[i, i] for i in range(1, 5)]


def test_images_are_the_same_in_a_stream():
    images = table(img=[[[i, i], [i, i]] for i in range(4)])
    for given in (images, images.to_iterable_dataset()):
        dataset = Dataset.from_loader(given)
        assert dataset.element_spec["img"] == uni.TensorSpec((2, 2), np.int64)
        (step,) = distributed(2, dataset.batch(4))
        assert flat(2, [step["img"]]) == images["img"][:]


# What is given to a strategy.


def test_rows_are_no_batches():
    tokens = table(ids=[[1, 2, 3, 4]] * 4, mask=[[1, 1, 1, 0]] * 4)
    for given in (tokens, tokens.to_iterable_dataset()):
        chosen = Dataset.from_loader(given).shuffle(4).take(3)
        for rows in (given, Dataset.from_loader(given), chosen):
            with pytest.raises(IndexError, match=r"from_loader\(table\)\.batch\("):
                distributed(2, rows)
        batched = distributed(2, Dataset.from_loader(given).batch(2))
        assert [step["ids"].values[0].shape for step in batched] == [(1, 4)] * 2
    # Rows that Hugging Face has batched.
    pairs = tokens.batch(2)
    dataset = distributed(2, Dataset.from_loader(pairs).unbatch().batch(2))
    assert [step["ids"].values[0].shape for step in dataset] == [(1, 4)] * 2
    dataset = distributed(2, tokens.to_iterable_dataset().batch(2))
    assert [step["ids"].values[0].shape for step in dataset] == [(1, 4)] * 2


def test_a_dict_of_splits_is_refused():
    splits = datasets.DatasetDict(train=table(x=[1]), test=table(x=[2]))
    for make in (Dataset.from_loader, lambda x: distributed(2, x)):
        with pytest.raises(TypeError, match=r"'train', 'test'.*d\['train'\]"):
            make(splits)


# Positions in streams.


@pytest.mark.parametrize("shards", [1, 2])
def test_iterations_of_one_stream_do_not_disturb_each_other(shards):
    dataset = Dataset.from_loader(stream(shards=shards))
    whole = xs(dataset)
    one, other = iter(dataset), iter(dataset)
    assert xs(next(one) for _ in range(5)) == whole[:5]
    assert xs(next(other) for _ in range(2)) == whole[:2]
    assert len(xs(dataset.take(3))) == 3
    states = saved(one), saved(other)
    assert [xs(resumed(dataset, s)) for s in states] == [whole[5:], whole[2:]]
    assert [xs(one), xs(other)] == [whole[5:], whole[2:]]


@pytest.mark.parametrize("buffer", [3, 100])
def test_a_shuffled_stream_loses_nothing(buffer):
    def make():
        shuffled = stream(shards=2).shuffle(seed=1, buffer_size=buffer)
        return Dataset.from_loader(shuffled)

    whole = xs(make())
    assert sorted(whole) == list(range(10))
    assert whole != sorted(whole)
    for stop in range(11):
        iterator = iter(make())
        for _ in range(stop):
            next(iterator)
        assert xs(resumed(make(), saved(iterator))) == whole[stop:]


def test_a_shuffle_without_a_seed_says_so(caplog):
    def make():
        return Dataset.from_loader(stream().shuffle(buffer_size=5))

    dataset = make()
    iterator = iter(dataset)
    seen = [next(iterator)["x"] for _ in range(4)]
    state = saved(iterator)
    # The same stream has the same order.
    assert sorted([*seen, *xs(resumed(dataset, state))]) == list(range(10))
    assert "seed" not in caplog.text
    list(resumed(make(), state))
    assert re.findall(r"without a seed.*shuffle\(seed=", caplog.text)


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_epoch_of_a_stream_is_part_of_its_position(shuffled):
    given = stream(shards=5)
    if shuffled:
        given = given.shuffle(seed=1, buffer_size=3)
    dataset = Dataset.from_loader(given)
    first = xs(dataset)
    given.set_epoch(1)
    whole = xs(dataset)
    assert sorted(whole) == sorted(first)
    assert whole != first
    iterator = iter(dataset)
    for _ in range(3):
        next(iterator)
    state = saved(iterator)
    given.set_epoch(0)
    assert xs(resumed(dataset, state)) == whole[3:]
    assert xs(dataset) == first
