"""Distributed datasets: every example once, in order, and continued anywhere."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisono as uni
from tests import machine
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import (
    COUNTS,
    Dataset,
    batchings,
    build_batched,
    counts,
    flat,
    numbers,
    parts,
    pipelines,
    resumed,
    saved,
    write_numbers,
)
from unisono._src.input.distribution import sharding_rule, steps

PROPERTY = settings(max_examples=40, deadline=None, derandomize=True)
Policy = uni.data.experimental.AutoShardPolicy


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return write_numbers(tmp_path_factory.mktemp("numbers"))


def by_function(n, make):
    strategy = mirrored(n)
    return strategy.distribute_datasets_from_function(lambda context: make())


def by_batch(n, make):
    return mirrored(n).experimental_distribute_dataset(make())


def expected_sizes(size, rows, n, in_chunks):
    """The parts of a batch of `rows`, where a full one has `size`."""
    if in_chunks:
        return [stop - start for start, stop in steps.chunks(rows, n)]
    left, found = rows, []
    for wanted in steps.sizes_of_worker(size, n, 1, 0):
        found.append(min(wanted, left))
        left -= found[-1]
    return found


@PROPERTY
@given(pipelines, batchings, counts)
def test_every_example_goes_to_one_replica_in_order(paths, pipeline, batching, n):
    def make():
        return build_batched(pipeline, batching, paths)

    batches = [np.asarray(x).tolist() for x in make()]
    distributed = by_batch(n, make)
    steps = parts(n, distributed)
    if n == 1:
        assert steps == [[batch] for batch in batches]
        return
    assert [[x for part in step for x in part] for step in steps] == batches
    size = sharding_rule.decide(make()._node, batching[-1]).size
    for step, batch in zip(steps, batches):
        sizes = expected_sizes(batching[0], len(batch), n, size is None)
        assert [len(part) for part in step] == sizes


@PROPERTY
@given(pipelines, batchings, st.lists(st.tuples(counts, st.integers(0, 6)), max_size=3))
def test_a_run_may_stop_and_continue_on_other_replicas(
    paths, pipeline, batching, stages
):
    def make():
        return build_batched(pipeline, batching, paths)

    whole = numbers(make())
    seen, state = [], None
    for n, taken in [*stages, (2, None)]:
        dataset = by_batch(n, make)
        iterator = iter(dataset) if state is None else resumed(dataset, state)
        count = range(taken) if taken is not None else iter(int, 1)
        seen += flat(n, (x for _, x in zip(count, iterator)))
        state = saved(iterator)
        iterator.close()
    assert seen == whole


@PROPERTY
@given(pipelines, batchings, st.lists(st.tuples(counts, st.integers(0, 4)), max_size=3))
def test_so_may_a_run_over_datasets_from_a_function(paths, pipeline, batching, stages):
    def make():
        # With sizes that are not fixed nothing is dropped at the end.
        size, _, *rest = batching
        return build_batched(pipeline, (size, False, *rest), paths)

    whole = numbers(make())
    seen, state = [], None
    for n, taken in [*stages, (4, None)]:
        dataset = by_function(n, make)
        iterator = iter(dataset) if state is None else resumed(dataset, state)
        count = range(taken) if taken is not None else iter(int, 1)
        seen += flat(n, (x for _, x in zip(count, iterator)))
        state = saved(iterator)
        iterator.close()
    assert seen == whole


@pytest.mark.parametrize("how", [by_batch, by_function])
@pytest.mark.parametrize("n", COUNTS)
def test_the_epochs_after_a_resumed_one_are_as_they_would_have_been(how, n):
    def make():
        return Dataset.range(23).map(lambda x: x).shuffle(7, seed=5).batch(4)

    undisturbed = how(2, make)
    epochs = [flat(2, undisturbed) for _ in range(4)]
    assert sorted(epochs[0]) == list(range(23))
    assert epochs[0] != epochs[1]

    interrupted = how(8, make)
    assert flat(8, interrupted) == epochs[0]
    iterator = iter(interrupted)
    begin = flat(8, [next(iterator)])
    state = saved(iterator)
    iterator.close()

    fresh = how(n, make)
    assert begin + flat(n, resumed(fresh, state)) == epochs[1]
    assert [flat(n, fresh) for _ in range(2)] == epochs[2:]


@pytest.mark.parametrize("how", [by_batch, by_function])
@pytest.mark.parametrize("n", COUNTS)
def test_a_shuffle_without_a_seed_continues_in_its_order(how, n):
    def make():
        return Dataset.range(40).shuffle(40).repeat(2).batch(4)

    iterator = iter(how(2, make))
    begin = flat(2, [next(iterator) for _ in range(3)])
    state = saved(iterator)
    rest = flat(2, iterator)
    assert sorted((begin + rest)[:40]) == list(range(40))
    assert flat(n, resumed(how(n, make), state)) == rest


@pytest.mark.parametrize("n", COUNTS)
def test_a_batch_that_was_given_back_is_not_counted(n):
    dataset = by_batch(n, lambda: Dataset.range(20).map(lambda x: x).batch(4))
    iterator = iter(dataset)

    @uni.function
    def fails():
        next(iterator), next(iterator)
        raise KeyError

    seen = flat(n, [next(iterator)])
    for _ in range(2):
        with pytest.raises(KeyError):
            fails()
        again = resumed(dataset, saved(iterator))
        assert seen + flat(n, again) == list(range(20))
        seen += flat(n, [next(iterator)])
    assert seen + flat(n, iterator) == list(range(20))


def test_many_batches_of_one_step_can_be_given_back():
    iterator = iter(by_batch(2, lambda: Dataset.range(300).map(lambda x: x).batch(3)))

    @uni.function
    def fails():
        for _ in range(80):
            next(iterator)
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    state = saved(iterator)
    assert flat(2, iterator) == list(range(300))
    iterator.set_state(state)
    assert flat(2, iterator) == list(range(300))


def test_a_partial_batch_in_mid_stream_is_not_filled_from_the_next():
    options = uni.data.Options()
    options.experimental_distribute.auto_shard_policy = Policy.OFF
    dataset = Dataset.range(6).batch(4).repeat(2).with_options(options)
    steps = [[[0, 1], [2, 3]], [[4, 5], []]] * 2
    assert parts(2, mirrored(2).experimental_distribute_dataset(dataset)) == steps


def test_a_position_is_of_one_way_of_distributing():
    state = saved(iter(by_batch(2, lambda: Dataset.range(4).batch(2))))
    with pytest.raises(ValueError, match=r"'batches'.*'elements'"):
        resumed(by_function(2, lambda: Dataset.range(4).batch(2)), state)
    options = uni.distribute.InputOptions(
        experimental_replication_mode=(uni.distribute.InputReplicationMode.PER_REPLICA)
    )

    def per_replica(n):
        return mirrored(n).distribute_datasets_from_function(
            lambda c: (
                Dataset.range(8)
                .shard(c.num_input_pipelines, c.input_pipeline_id)
                # Sizes that are not fixed.
                .batch(2)
            ),
            options,
        )

    iterator = iter(per_replica(2))
    assert parts(2, [next(iterator)]) == [[[0, 2], [1, 3]]]
    state = saved(iterator)
    assert parts(2, resumed(per_replica(2), state)) == [[[4, 6], [5, 7]]]
    with pytest.raises(ValueError, match="2 datasets, one per replica"):
        resumed(per_replica(4), state)


def test_a_dataset_is_distributed_by_either_name():
    strategy = uni.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found = strategy.distribute_dataset(Dataset.range(6).batch(4))
    steps = [
        [part.tolist() for part in strategy.experimental_local_results(x)]
        for x in found
    ]
    assert steps == [[[0, 1], [2, 3]], [[4], [5]]]


@pytest.mark.feature("I13")
@pytest.mark.parametrize("mode", ["PER_WORKER", "PER_REPLICA"])
def test_steps_that_not_all_replicas_have_an_element_for_can_be_dropped(mode):
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    assert strategy.extended.experimental_enable_get_next_as_optional is True
    modes = uni.distribute.InputReplicationMode

    def make(context):
        # Five elements to share, or two and three.
        first = context.input_pipeline_id if mode == "PER_REPLICA" else -2
        return uni.data.Dataset.range(2 + first, 5).map(lambda x: x / 1).batch(1)

    def count(drops):
        options = uni.distribute.InputOptions(experimental_replication_mode=modes[mode])
        strategy.extended.experimental_enable_get_next_as_optional = not drops
        made = strategy.distribute_datasets_from_function(make, options)
        # It counts when the dataset is made.
        strategy.extended.experimental_enable_get_next_as_optional = drops
        said = "dropped" if drops else "empty batches"
        assert said in made.describe().remainder
        return [
            [len(part) for part in strategy.experimental_local_results(x)] for x in made
        ]

    whole = [[1, 1]] * 2
    assert count(drops=False) == [*whole, [1, 0]]
    assert count(drops=True) == whole
    assert uni.function(count)(drops=True) == [*whole, [1, 0]]


def test_an_element_of_unforeseen_size_is_not_dropped():
    # The spec says (1,), which is the shape of the first one.
    dataset = Dataset.range(1, 6).map(lambda i: np.arange(i))
    strategy = mirrored(2)
    last = list(strategy.distribute_datasets_from_function(lambda c: dataset))[-1]
    parts = strategy.experimental_local_results(last)
    assert [np.asarray(x).tolist() for x in parts] == [[0, 1, 2, 3, 4], []]


@pytest.mark.parametrize("empty", [{}, (None,)])
def test_a_batch_without_arrays_is_refused(empty):
    batches = [(np.arange(4),), empty, (np.arange(4),)]
    with pytest.raises(ValueError, match="A batch has no arrays"):
        list(mirrored(2).experimental_distribute_dataset(batches))
