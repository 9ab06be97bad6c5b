"""Data sources: examples that are read by their numbers, as TensorFlow Datasets has."""

import collections.abc
import json

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.pipelines import flat, mirrored

Dataset = uni.data.Dataset


class Source(collections.abc.Sequence):
    """What `tfds.data_source` returns: dicts of arrays, by number or many at a time."""

    def __init__(self, size, *bad):
        self.size, self.bad = size, bad
        self.asked = []

    def __len__(self):
        return self.size

    def __getitem__(self, key):
        return self.__getitems__([key])[0]

    def __getitems__(self, keys):
        assert all(type(key) is int for key in keys)
        self.asked.append(list(keys))
        if set(keys) & set(self.bad):
            raise ValueError(f"cannot decode one of {keys}")
        return [
            {"x": np.full(2, k, np.float32), "label": np.int64(k), "name": b"n"}
            for k in keys
        ]


def labels(dataset):
    return [np.asarray(e["label"]).tolist() for e in dataset]


def test_examples_have_the_types_of_the_source():
    dataset = Dataset.from_loader(Source(5))
    assert dataset.element_spec == {
        "x": uni.TensorSpec((2,), np.float32),
        "label": uni.TensorSpec((), np.int64),
        "name": uni.TensorSpec((), object),
    }
    assert len(dataset) == 5
    (first, second) = dataset.batch(3)
    assert first["x"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert second["label"].dtype == np.int64
    assert first["name"].tolist() == [b"n"] * 3


def test_a_batch_is_one_question_and_only_its_rows_are_read():
    source = Source(10)
    dataset = Dataset.from_loader(source).shuffle(10, seed=1).skip(2).batch(4)
    found = labels(dataset)
    assert len(source.asked) == 2
    assert source.asked == found


def test_a_pass_over_the_source_goes_on_anywhere_without_reading_again():
    def build():
        return Dataset.from_loader(Source(9)).shuffle(9, seed=4).repeat(2).batch(2)

    whole = labels(build())
    for place in range(len(whole) + 1):
        iterator = iter(build())
        for _ in range(place):
            next(iterator)
        source = Source(9)
        again = Dataset.from_loader(source).shuffle(9, seed=4).repeat(2).batch(2)
        other = iter(again)
        other.set_state(json.loads(json.dumps(iterator.get_state())))
        source.asked.clear()
        assert labels(other) == whole[place:]
        assert len(source.asked) == len(whole) - place


def test_an_example_that_cannot_be_read_is_the_only_one_missing():
    dataset = Dataset.from_loader(Source(6, 0, 3)).map(lambda row: row)
    assert labels(dataset.ignore_errors()) == [1, 2, 4, 5]
    iterator = iter(dataset.prefetch(4))
    found = []
    for _ in range(6):
        try:
            found.append(int(next(iterator)["label"]))
        except ValueError:
            found.append("error")
    iterator.close()
    assert found == ["error", 1, 2, "error", 4, 5]


def test_examples_are_batched_before_they_are_split_over_replicas():
    with pytest.raises(IndexError, match=r"Source\(8\) gives single.*batch\(size\)"):
        mirrored(2).experimental_distribute_dataset(Source(8))
    dataset = Dataset.from_loader(Source(8)).batch(4)
    steps = mirrored(2).experimental_distribute_dataset(dataset.map(lambda e: e["x"]))
    assert flat(2, steps) == [[k, k] for k in map(float, range(8))]


def test_an_empty_source_says_so():
    dataset = Dataset.from_loader(Source(0))
    assert list(dataset) == []
    with pytest.raises(ValueError, match=r"empty data source: Source\(0\)"):
        dataset.element_spec  # noqa: B018


def test_a_source_that_gives_too_few_examples_is_refused():
    class Short(Source):
        def __getitems__(self, keys):
            return super().__getitems__(keys)[:1]

    with pytest.raises(ValueError, match="asked for 4 examples and gave 1"):
        list(Dataset.from_loader(Short(4)).batch(4))
