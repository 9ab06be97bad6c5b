"""Windows of a series are those of Keras on TensorFlow 2.21."""

import numpy as np
import pytest

import unisono as tf

X, Y = np.arange(20.0, dtype="f4"), np.arange(20) * 10
make = tf.keras.utils.timeseries_dataset_from_array


def test_windows_begin_and_step_as_asked():
    windows = make(X, None, 4, sequence_stride=3, sampling_rate=2, batch_size=3)
    assert [batch.tolist() for batch in windows.as_numpy_iterator()] == [
        [[0, 2, 4, 6], [3, 5, 7, 9], [6, 8, 10, 12]],
        [[9, 11, 13, 15], [12, 14, 16, 18]],
    ]
    assert windows.element_spec == tf.TensorSpec([None, 4], tf.float32)


def test_targets_are_those_of_the_first_steps():
    pairs = make(X, Y, 3, batch_size=6, start_index=2, end_index=12)
    (first, one), (second, two) = pairs.as_numpy_iterator()
    assert first[:2].tolist() == [[2, 3, 4], [3, 4, 5]] and len(second) == 2
    assert (one.tolist(), two.tolist()) == ([20, 30, 40, 50, 60, 70], [80, 90])
    # No more windows than targets.
    assert len(make(X, Y[:3], 5, batch_size=1)) == 3


def test_a_seed_gives_one_order_of_all_windows():
    first, second = (
        [w.tolist() for w in make(X, None, 2, batch_size=None, shuffle=True, seed=1)]
        for _ in range(2)
    )
    assert first == second != sorted(first) == [[i, i + 1] for i in range(19)]


@pytest.mark.parametrize("batch_size", [None, 4])
def test_a_series_shorter_than_a_window_has_none(batch_size):
    assert list(make(X, Y, 25, batch_size=batch_size)) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"start_index": 20},
        {"start_index": 6, "end_index": 5},
        {"sampling_rate": 0},
        {"sequence_stride": 20},
        {"sequence_length": 0},
        {"format": "grain"},
    ],
)
def test_an_argument_out_of_range_is_named(wrong):
    with pytest.raises(ValueError, match=f"`{list(wrong)[-1]}`"):
        make(**({"data": X, "targets": None, "sequence_length": 5} | wrong))
