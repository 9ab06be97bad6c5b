"""TensorFlow 1's names for iterators and runs."""

import itertools

import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset

PER_REPLICA = tf.distribute.InputReplicationMode.PER_REPLICA


def parts(strategy, value):
    return [np.asarray(x).tolist() for x in strategy.experimental_local_results(value)]


def test_a_run_takes_the_next_step_of_a_dataset():
    s = mirrored(2)
    iterator = s.make_dataset_iterator(Dataset.range(8).batch(4))
    double = tf.function(lambda x: x * 2)
    assert parts(s, s.experimental_run(double, iterator)) == [[0, 2], [4, 6]]
    assert parts(s, s.experimental_run(double, iterator)) == [[8, 10], [12, 14]]
    with pytest.raises(tf.errors.OutOfRangeError):
        s.experimental_run(double, iterator)
    assert iterator.initialize() is None
    assert parts(s, iterator.get_next()) == [[0, 1], [2, 3]]
    assert [parts(s, x) for x in iterator] == [[[4, 5], [6, 7]]]


def test_a_run_without_an_iterator_takes_nothing():
    assert mirrored(2).experimental_run(lambda: 3) == 3


def test_each_replica_takes_an_element_of_the_function_s_dataset():
    s, seen = mirrored(2), []

    def make(context):
        seen.append(context.num_replicas_in_sync)
        return Dataset.range(8).batch(2)

    iterator = s.make_input_fn_iterator(make)
    assert parts(s, iterator.get_next()) == [[0, 1], [2, 3]]
    assert seen == [2]


def test_a_function_may_give_the_elements_one_by_one():
    s, count = mirrored(2), itertools.count()
    iterator = s.make_input_fn_iterator(lambda context: lambda: np.int32(next(count)))
    assert [parts(s, iterator.get_next()) for _ in range(2)] == [[0, 1], [2, 3]]


def test_the_default_strategy_has_the_names_too():
    s = tf.distribute.get_strategy()
    iterator = s.make_dataset_iterator(Dataset.range(4).batch(2))
    assert s.experimental_run(lambda x: x + 1, iterator).tolist() == [1, 2]


def test_wrong_arguments_are_refused():
    s = mirrored(2)
    with pytest.raises(ValueError, match="Input replication mode not supported"):
        s.make_input_fn_iterator(lambda c: Dataset.range(2), PER_REPLICA)
    with pytest.raises(ValueError, match="must return a unisono"):
        s.make_input_fn_iterator(lambda c: 3)


def test_a_dataset_of_arrays_takes_a_session():
    s = mirrored(2)
    made = s.experimental_make_numpy_dataset(np.arange(4), session=None)
    assert [int(x) for x in made] == [0, 1, 2, 3]
