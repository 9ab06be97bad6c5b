"""`sample_from_datasets` with weights of every kind."""

import collections

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.pipelines import resumed, saved

D = uni.data.Dataset


def letters(count=10_000):
    return [D.from_tensors(letter).repeat(count) for letter in "abc"]


def read(dataset, count=None):
    found = dataset if count is None else dataset.take(count)
    return [x.decode() for x in found.as_numpy_iterator()]


def test_without_any_weight_there_is_nothing():
    made = D.sample_from_datasets(letters(3), weights=[0.0, 0.0, 0.0])
    assert read(made) == []
    assert made.element_spec == uni.TensorSpec((), "string")


def test_each_draw_may_have_weights_of_its_own():
    turns = np.eye(3, dtype=np.float32)[[2, 0, 1, 1, 2]]
    weights = D.from_tensor_slices(turns)
    assert read(D.sample_from_datasets(letters(), weights)) == list("cabbc")


def test_weights_of_draws_need_not_add_up_to_one():
    weights = D.from_tensors([1.0, 3.0, 0.0]).repeat()
    drawn = read(D.sample_from_datasets(letters(), weights, seed=1), 2000)
    counts = collections.Counter(drawn)
    assert counts["c"] == 0 and abs(counts["b"] - 1500) < 120


def test_draws_with_weights_of_their_own_follow_the_seed():
    def drawn(seed):
        weights = D.from_tensors([1.0, 1.0, 1.0]).repeat()
        return read(D.sample_from_datasets(letters(), weights, seed=seed), 50)

    assert drawn(1) == drawn(1) != drawn(2)


def test_a_position_among_draws_with_weights_of_their_own():
    def make():
        weights = D.from_tensors([1.0, 2.0, 1.0]).repeat()
        return D.sample_from_datasets(letters(), weights, seed=3).take(20)

    whole = read(make())
    for stop in (0, 1, 7, 19):
        iterator = iter(make())
        for _ in range(stop):
            next(iterator)
        rest = resumed(make(), saved(iterator))
        assert [x.numpy().decode() for x in rest] == whole[stop:]


@pytest.mark.parametrize("wrong", [[0.0, 0.0, 0.0], [-1.0, 1.0, 1.0]])
def test_weights_of_a_draw_are_checked(wrong):
    made = D.sample_from_datasets(letters(), D.from_tensors(wrong).repeat())
    with pytest.raises(uni.errors.InvalidArgumentError, match="weights"):
        read(made, 1)
