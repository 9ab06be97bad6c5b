"""`sample_from_datasets` with weights of every kind."""

import collections

import numpy as np
import pytest

import unisono as uni
from tests.unit.input.pipelines import Dataset, resumed, saved
from unisono._src.input.stages import sampling

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


hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

SHARES = st.lists(st.integers(1, 20), min_size=3, max_size=3).map(
    lambda x: np.float32(x) / np.float32(sum(x))
)


@hypothesis.given(SHARES, SHARES)
def test_the_mixture_has_the_target_s_shares(initial, target):
    kept, original = sampling.mixture(initial, target)
    assert 0 <= original <= 1 and (kept >= 0).all() and (kept <= 1).all()
    rejected = kept * initial / (kept * initial).sum()
    mixed = original * initial + (1 - original) * rejected
    np.testing.assert_allclose(mixed, target, atol=1e-5)


def labelled(count=6000, kind=np.int64):
    labels = np.random.default_rng(0).choice(3, count, p=[0.7, 0.2, 0.1]).astype(kind)
    return Dataset.from_tensor_slices((np.arange(count), labels))


def by_label(number, label):
    return label


@pytest.mark.parametrize("initial", [[0.7, 0.2, 0.1], None])
@pytest.mark.parametrize("target", [[0.3, 0.3, 0.4], [0.5, 0.5, 0]])
def test_the_shares_are_reached(initial, target):
    found = labelled().rejection_resample(by_label, target, initial, seed=1)
    pairs = list(found.as_numpy_iterator())
    classes = [int(c) for c, _ in pairs]
    np.testing.assert_allclose(
        np.bincount(classes, minlength=3) / len(classes), target, atol=0.05
    )
    assert all(c == label for c, (_, label) in pairs)
    numbers = [int(n) for _, (n, _) in pairs]
    assert len(set(numbers)) > len(numbers) / 2


def test_data_that_is_right_is_left_alone():
    dataset = Dataset.range(8).rejection_resample(lambda x: x % 2, [0.5, 0.5], [1, 1])
    assert [(int(c), int(x)) for c, x in dataset] == [(x % 2, x) for x in range(8)]


def test_classes_keep_their_type():
    for kind in (np.int32, np.int64, np.uint8):
        found = labelled(9, kind).rejection_resample(by_label, [1, 1, 1])
        assert found.element_spec[0] == uni.TensorSpec((), kind)


@pytest.mark.parametrize("initial", [[0.7, 0.2, 0.1], None])
def test_it_goes_on_after_a_stop(initial):
    def made():
        return labelled(400).rejection_resample(by_label, [0.2, 0.4, 0.4], initial, 3)

    def numbers(elements):
        return [int(n) for _, (n, _) in elements]

    whole = numbers(made())
    iterator = iter(made())
    for stop in range(1, len(whole) // 10):
        for _ in range(10):
            next(iterator)
        assert numbers(resumed(made(), saved(iterator))) == whole[10 * stop :]


def test_what_is_no_distribution_is_refused():
    with pytest.raises(ValueError, match="target_dist must have one number for each"):
        labelled().rejection_resample(by_label, 0.5)
    with pytest.raises(ValueError, match=r"initial_dist .* of which there are 3"):
        labelled().rejection_resample(by_label, [1, 1, 1], [0.5, 0.5])
    with pytest.raises(ValueError, match="target_dist must be finite numbers >= 0"):
        labelled().rejection_resample(by_label, [1, -1, 1])
    few = labelled().rejection_resample(by_label, [0.5, 0.5])
    with pytest.raises(uni.errors.InvalidArgumentError, match="gave class 2"):
        list(few)


def test_much_dropping_is_told(caplog):
    labelled().rejection_resample(by_label, [0, 0, 1], [0.7, 0.2, 0.1])
    assert "drops 90 % of the elements" in caplog.text
