"""Datasets that a function makes, and datasets of arrays."""

import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import kind, local, mirrored, plain
from unisono._src.execution.specs import PerReplicaSpec

D = tf.distribute
Dataset = tf.data.Dataset
Spec = tf.TensorSpec
PER_REPLICA = D.InputReplicationMode.PER_REPLICA


def steps(n, dataset_fn, options=None):
    s = mirrored(n)
    found = s.distribute_datasets_from_function(dataset_fn, options)
    return [local(s, x) for x in found]


@pytest.mark.feature("I01", "I04", "I05", "I06")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_function_is_called_once_with_a_context(n):
    seen = []

    def dataset_fn(context):
        size = context.get_per_replica_batch_size(8)
        pipelines = (context.num_input_pipelines, context.input_pipeline_id)
        seen.append((*pipelines, context.num_replicas_in_sync, size))
        return Dataset.range(8).batch(2)

    dataset = mirrored(n).distribute_datasets_from_function(dataset_fn)
    assert isinstance(dataset, D.DistributedDataset)
    assert seen == [(1, 0, n, 8 // n)]


@pytest.mark.feature("I06")
def test_a_batch_that_cannot_be_divided_is_refused():
    context = D.InputContext(1, 0, 4)
    assert context.get_per_replica_batch_size(8) == 2
    with pytest.raises(ValueError, match=r"6 is not divisible by .* 4"):
        context.get_per_replica_batch_size(6)


@pytest.mark.feature("I02", "I03")
def test_each_replica_takes_the_next_element():
    def dataset_fn(context):
        return Dataset.range(8).batch(2)

    assert steps(2, dataset_fn) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert steps(4, dataset_fn) == [[[0, 1], [2, 3], [4, 5], [6, 7]]]
    s = mirrored(1)
    dataset = s.experimental_distribute_datasets_from_function(dataset_fn)
    assert [plain(x) for x in dataset] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert kind(next(iter(dataset))) == "array"


@pytest.mark.feature("I13")
def test_an_uneven_end_is_filled_or_dropped():
    assert steps(2, lambda c: Dataset.range(5).batch(2)) == [
        [[0, 1], [2, 3]],
        [[4], []],
    ]
    static = Dataset.range(6).batch(2, drop_remainder=True)
    assert steps(2, lambda c: static) == [[[0, 1], [2, 3]]]
    assert steps(2, lambda c: Dataset.range(4)) == [[0, 1], [2, 3]]
    assert steps(2, lambda c: Dataset.range(5)) == [[0, 1], [2, 3]]
    # One size that is not fixed is enough; what is fixed becomes zeros.
    mixed = Dataset.zip(Dataset.range(5).batch(2), Dataset.from_tensors(7).repeat())
    s = mirrored(2)
    *_, last = s.distribute_datasets_from_function(lambda c: mixed)
    assert [local(s, last[0]), local(s, last[1])] == [[[4], []], [7, 0]]


@pytest.mark.feature("I01")
@pytest.mark.parametrize("n", [2, 4])
def test_the_function_may_be_called_for_each_replica(n):
    seen = []

    def dataset_fn(context):
        number = context.input_pipeline_id
        seen.append((context.num_input_pipelines, number, context.num_replicas_in_sync))
        return Dataset.range(4).batch(2).map(lambda x: x + 10 * number)

    options = D.InputOptions(
        experimental_fetch_to_device=False, experimental_replication_mode=PER_REPLICA
    )
    assert steps(n, dataset_fn, options) == [
        [[10 * i + a, 10 * i + a + 1] for i in range(n)] for a in (0, 2)
    ]
    assert seen == [(n, i, n) for i in range(n)]


@pytest.mark.feature("I09", "I10")
def test_a_function_shards_by_its_context_and_seeds_as_it_likes():
    def dataset_fn(context):
        dataset = Dataset.range(8)
        dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return dataset.batch(context.get_per_replica_batch_size(4))

    assert steps(2, dataset_fn) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]

    def random(context):
        seed = context.input_pipeline_id
        return Dataset.range(8).shuffle(8, seed=seed).repeat().batch(4)

    s = mirrored(2)
    options = D.InputOptions(experimental_replication_mode=PER_REPLICA)
    iterator = iter(s.distribute_datasets_from_function(random, options))
    first, second = local(s, next(iterator)), local(s, next(iterator))
    assert sorted(first[0] + second[0]) == list(range(8))
    assert sorted(first[1] + second[1]) == list(range(8))
    assert first[0] != first[1]


@pytest.mark.feature("H23", "I04")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_example_of_the_documentation(n):
    def dataset_fn(context):
        dataset = Dataset.from_tensors([[1.0]]).repeat()
        dataset = dataset.batch(context.get_per_replica_batch_size(8))
        return dataset.shard(context.num_input_pipelines, context.input_pipeline_id)

    s = mirrored(n)
    dataset = s.distribute_datasets_from_function(dataset_fn)
    step = next(iter(dataset))
    shapes = [v.shape for v in s.experimental_local_results(step)]
    assert shapes == [(8 // n, 1, 1)] * n
    spec = Spec((None, 1, 1), np.float32)
    assert dataset.element_spec == (spec if n == 1 else PerReplicaSpec(*[spec] * n))


@pytest.mark.feature("I02")
def test_endless_data_has_no_gaps_between_its_epochs():
    s = mirrored(2)
    dataset = s.distribute_datasets_from_function(lambda c: Dataset.range(3).repeat())
    iterator = iter(dataset)
    found = [local(s, next(iterator)) for _ in range(3)]
    assert found == [[0, 1], [2, 0], [1, 2]]


# Datasets of arrays.


@pytest.mark.feature("J01", "J02", "J03")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_arrays_become_a_dataset_of_their_rows(n):
    s = mirrored(n)
    array = np.arange(4.0, dtype=np.float32)
    for dataset in (
        s.experimental_make_numpy_dataset(array),
        s.extended.experimental_make_numpy_dataset(array),
        s.extended.experimental_make_numpy_dataset(array, session=None),
    ):
        assert [float(x) for x in dataset] == [0.0, 1.0, 2.0, 3.0]
        made = s.experimental_distribute_dataset(dataset.batch(4))
        parts = [list(p) for p in np.split(array, n)]
        assert [local(s, x) for x in made] == [parts]
    nested = s.extended.experimental_make_numpy_dataset(
        (np.arange(2.0), {"a": np.ones([2, 3])})
    )
    assert nested.element_spec == (
        Spec((), np.float64),
        {"a": Spec((3,), np.float64)},
    )
