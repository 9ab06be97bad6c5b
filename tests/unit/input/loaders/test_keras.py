"""What a `PyDataset` of Keras is told, and what it may leave out."""

import sys
from typing import Any

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.loaders.test_dispatch import distributed
from tests.unit.input.pipelines import Dataset, flat, resumed, saved


@pytest.fixture
def py_dataset(monkeypatch):
    if "keras" not in sys.modules:
        # Read when it is imported; without it Keras looks for TensorFlow.
        monkeypatch.setenv("KERAS_BACKEND", "jax")
        # Set by its import.
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    return pytest.importorskip("keras").utils.PyDataset


@pytest.fixture
def batches(py_dataset: Any):
    class Batches(py_dataset):
        def __init__(self, count, wrong=None):
            super().__init__()
            self.count, self.wrong = count, wrong
            self.told = []

        def __getitem__(self, index):
            if index == 1 and self.wrong is not None:
                raise self.wrong
            if index >= self.count:
                raise IndexError(index)
            self.told.append(index)
            return np.arange(2 * index, 2 * index + 2)

        def on_epoch_begin(self):
            self.told.append("begin")

        def on_epoch_end(self):
            self.told.append("end")

    return Batches


@pytest.fixture
def sized(batches: Any):
    class Sized(batches):
        def __len__(self):
            return self.count

    return Sized


def test_epochs_begin_and_end(sized):
    loader = sized(2)
    dataset = distributed(2, loader)
    assert [flat(2, dataset) for _ in range(2)] == [[0, 1, 2, 3]] * 2
    assert loader.told == ["begin", 0, 1, "end"] * 2


def test_a_look_at_the_spec_is_no_epoch(sized):
    loader = sized(1)
    assert Dataset.from_loader(loader).element_spec.shape == (None,)
    assert loader.told == [0]


def test_an_epoch_that_is_continued_begins(sized):
    iterator = iter(distributed(1, sized(3)))
    next(iterator)
    loader = sized(3)
    assert flat(1, resumed(distributed(1, loader), saved(iterator))) == [2, 3, 4, 5]
    assert loader.told == ["begin", 1, 2, "end"]


def test_a_number_of_batches_need_not_be_known(batches):
    loader = batches(3)
    dataset = distributed(2, loader)
    assert int(dataset.cardinality) == uni.data.UNKNOWN_CARDINALITY
    assert flat(2, dataset) == [0, 1, 2, 3, 4, 5]
    assert loader.told == ["begin", 0, 1, 2, "end"]
    iterator = iter(distributed(2, batches(3)))
    next(iterator)
    assert flat(2, resumed(distributed(2, loader), saved(iterator))) == [2, 3, 4, 5]


@pytest.mark.parametrize("kind", [StopIteration, IndexError, ValueError])
def test_an_exception_does_not_end_the_data(sized, kind):
    iterator = iter(distributed(2, sized(3, wrong=kind("missing"))))
    assert flat(2, [next(iterator)]) == [0, 1]
    wanted = RuntimeError if kind is StopIteration else kind
    with pytest.raises(wanted, match=r"StopIteration|missing"):
        next(iterator)
    assert flat(2, iterator) == [4, 5]
