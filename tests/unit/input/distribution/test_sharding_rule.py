"""Sharing a dataset among several workers: arithmetic, without any process."""

import collections
import logging

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import unisono as uni
from tests.unit.input.pipelines import Dataset
from unisono._src.input.distribution import sharding_rule, steps

PROPERTY = settings(max_examples=60, deadline=None, derandomize=True)
Policy = uni.data.experimental.AutoShardPolicy

sizes = st.integers(0, 40)
batches = st.integers(1, 12)
workers = st.integers(1, 4)
locals_ = st.integers(1, 3)


def lists(found):
    return [np.asarray(part).tolist() for part in found]


def of_worker(dataset, policy, share):
    """What the replicas of one worker get, step by step."""
    decision = sharding_rule.decide(dataset._node, policy)
    node = sharding_rule.plan_for_worker(
        dataset._node, decision, share.workers, share.worker
    )
    is_common = decision.kind == sharding_rule.Policy.DATA
    cursor = steps.BatchSteps(node.cursor(), share, decision.size, is_common)
    return [lists(step.parts()) for step in cursor]


def shares(count, local):
    return [steps.Share(count * local, count, worker) for worker in range(count)]


def lines(tmp_path, texts):
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"f{number}"
        path.write_text(text)
        paths.append(str(path))
    return uni.data.TextLineDataset(paths)


def words(found):
    """Text in place of bytes."""
    if isinstance(found, list):
        return [words(x) for x in found]
    return found.decode()


@PROPERTY
@given(sizes, batches, workers, locals_)
def test_chunks_of_all_workers_are_the_batch(rows, size, count, local):
    dataset = Dataset.range(rows).batch(size)
    found = [of_worker(dataset, Policy.DATA, share) for share in shares(count, local)]
    assert {len(each) for each in found} == {-(-rows // size)}
    for number in range(-(-rows // size)):
        # Chunks are dealt in turn: the first of each worker, then the second.
        step = [found[w][number][i] for i in range(local) for w in range(count)]
        rows_ = [x for part in step for x in part]
        assert rows_ == list(range(rows))[number * size :][:size]


@PROPERTY
@given(st.integers(1, 40), workers, locals_)
def test_sizes_of_all_workers_take_a_whole_batch(size, count, local):
    replicas = count * local
    taken = [steps.sizes_of_worker(size, replicas, count, w) for w in range(count)]
    for turn in range(0, replicas, local):
        together = [n for each in taken for n in each[turn : turn + local]]
        assert sum(together) == size
        assert max(together) - min(together) <= 1


@PROPERTY
@given(st.lists(st.integers(0, 9), min_size=4, max_size=7), batches, workers, locals_)
def test_files_are_dealt_and_every_line_is_read_once(
    tmp_path_factory, counts, size, count, local
):
    directory = tmp_path_factory.mktemp("dealt")
    texts = [
        "".join(f"{number}-{i}\n" for i in range(lines_))
        for number, lines_ in enumerate(counts)
    ]
    dataset = lines(directory, texts).batch(size)
    seen = collections.Counter()
    for share in shares(count, local):
        mine = words(of_worker(dataset, Policy.AUTO, share))
        found = [line for step in mine for part in step for line in part]
        assert {int(line.split("-")[0]) % count for line in found} <= {share.worker}
        seen.update(found)
    assert seen == collections.Counter("".join(texts).split())


@PROPERTY
@given(sizes, batches, workers)
def test_a_worker_without_sharding_reads_everything(rows, size, count):
    for policy in (Policy.OFF, Policy.HINT):
        for share in shares(count, 1):
            found = of_worker(Dataset.range(rows).batch(size), policy, share)
            assert [x for step in found for part in step for x in part] == list(
                range(rows)
            )


# What TensorFlow was seen to do.


@pytest.mark.feature("H10")
@pytest.mark.parametrize(
    ("rows", "size", "count", "local", "expected"),
    [
        (
            14,
            7,
            2,
            2,
            [[[0, 1], [4, 5], [7, 8], [11, 12]], [[2, 3], [6], [9, 10], [13]]],
        ),
        (
            16,
            8,
            2,
            1,
            [[[0, 1, 2, 3], [8, 9, 10, 11]], [[4, 5, 6, 7], [12, 13, 14, 15]]],
        ),
        (10, 4, 2, 1, [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], [9]]]),
        (9, 4, 2, 1, [[[0, 1], [4, 5], [8]], [[2, 3], [6, 7], []]]),
        (7, 4, 2, 2, [[[0], [2], [4], [6]], [[1], [3], [5], []]]),
    ],
)
def test_chunks_are_dealt_in_turn(rows, size, count, local, expected):
    dataset = Dataset.range(rows).batch(size)
    found = [of_worker(dataset, Policy.AUTO, share) for share in shares(count, local)]
    assert [[part for step in each for part in step] for each in found] == expected


@pytest.mark.feature("H15", "H18")
@pytest.mark.parametrize(
    ("size", "count", "local", "expected"),
    [
        (8, 2, 1, [[4, 4], [4, 4]]),
        (7, 2, 1, [[4, 3], [3, 4]]),
        (6, 2, 2, [[2, 2, 1, 1], [1, 1, 2, 2]]),
        (7, 2, 2, [[2, 2, 2, 1], [2, 1, 2, 2]]),
        (3, 2, 2, [[1, 1, 1, 0], [1, 0, 1, 1]]),
        (1, 2, 1, [[1, 0], [0, 1]]),
        (8, 4, 1, [[2, 2, 2, 2]] * 4),
        (6, 4, 1, [[2, 2, 1, 1], [2, 1, 1, 2], [1, 1, 2, 2], [1, 2, 2, 1]]),
    ],
)
def test_fixed_sizes_are_rotated_by_the_place_of_the_worker(
    size, count, local, expected
):
    found = [steps.sizes_of_worker(size, count * local, count, w) for w in range(count)]
    assert found == expected


def own_batches(dataset, policy, worker, count=2):
    decision = sharding_rule.decide(dataset._node, policy)
    node = sharding_rule.plan_for_worker(dataset._node, decision, count, worker)
    return lists(node.cursor())


@pytest.mark.feature("H10", "H16")
def test_data_that_is_in_no_file_cannot_be_dealt_as_files(caplog):
    dataset = Dataset.range(8).batch(2)
    for worker in range(2):
        with pytest.raises(uni.errors.NotFoundError, match=r"unshardable.*DATA"):
            own_batches(dataset, Policy.FILE, worker)
        for policy in (Policy.OFF, Policy.HINT):
            assert len(own_batches(dataset, policy, worker)) == 4
    with caplog.at_level(logging.WARNING, "unisono"):
        own_batches(dataset, Policy.AUTO, 1)
    assert "each of the 2 workers runs the whole pipeline" in caplog.text


@pytest.mark.feature("H08", "H16")
def test_two_workers_read_a_file_each(tmp_path):
    dataset = lines(tmp_path, ["00\n01\n02", "10\n11\n12"]).batch(2)
    for policy in (Policy.AUTO, Policy.FILE):
        found = [words(own_batches(dataset, policy, w)) for w in range(2)]
        assert found == [[["00", "01"], ["02"]], [["10", "11"], ["12"]]]
    data = [own_batches(dataset, Policy.DATA, w) for w in range(2)]
    assert data == [own_batches(dataset, Policy.OFF, w) for w in range(2)]


@pytest.mark.feature("H09")
def test_fewer_files_than_workers_are_refused(tmp_path):
    one = lines(tmp_path, ["a\nb\nc\nd"]).batch(2)
    names = Dataset.list_files(str(tmp_path / "f*"), shuffle=False)
    interleaved = names.interleave(uni.data.TextLineDataset).batch(2)
    for dataset in (one, interleaved):
        for policy in (Policy.AUTO, Policy.FILE):
            with pytest.raises(uni.errors.InvalidArgumentError, match="not enough"):
                own_batches(dataset, policy, 0)


def test_files_named_by_a_dataset_are_dealt_before_they_are_shuffled(tmp_path):
    lines(tmp_path, [f"{number}\n" for number in range(6)])

    def make(seed):
        names = Dataset.list_files(str(tmp_path / "f*"), seed=seed)
        return names.interleave(uni.data.TextLineDataset, cycle_length=2).batch(1)

    for worker in range(2):
        found = words(own_batches(make(worker), Policy.AUTO, worker))
        assert sorted(x for part in found for x in part) == [
            str(worker + 2 * i) for i in range(3)
        ]


def test_a_hint_says_where_to_shard():
    hint = uni.data.experimental.SHARD_HINT
    dataset = Dataset.range(8).shard(hint, hint).batch(2)
    found = [own_batches(dataset, Policy.HINT, w) for w in range(2)]
    assert found == [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    assert own_batches(dataset, Policy.OFF, 1) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(uni.errors.FailedPreconditionError, match="SHARD_HINT"):
        list(dataset)
