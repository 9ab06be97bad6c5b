"""Datasets of several workers: TensorFlow's rules, and every example exactly once."""

import json

import pytest

from tests.multiprocess import harness

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two workers with one replica each."""
    with harness.Group(tmp_path_factory.mktemp("pair"), 2, 1) as made:
        yield made


@pytest.fixture(scope="module")
def doubles(tmp_path_factory):
    """Two workers with two replicas each."""
    with harness.Group(tmp_path_factory.mktemp("doubles"), 2, 2) as made:
        yield made


@pytest.mark.feature("H10")
def test_without_files_the_chunks_of_every_batch_are_dealt(pair):
    first, second = pair.call("split", cases=[(8, 4), (6, 4), (5, 4), (3, 3), (2, 1)])
    assert first == [
        [[[0, 1]], [[4, 5]]],
        [[[0, 1]], [[4]]],
        [[[0, 1]], [[4]]],
        [[[0, 1]]],
        [[[0]], [[1]]],
    ]
    assert second == [
        [[[2, 3]], [[6, 7]]],
        [[[2, 3]], [[5]]],
        [[[2, 3]], [[]]],
        [[[2]]],
        [[[]], [[]]],
    ]


@pytest.mark.feature("H16")
def test_data_is_dealt_like_auto_without_files(pair):
    assert pair.call("split", cases=[(8, 4)], policy="DATA") == [
        [[[[0, 1]], [[4, 5]]]],
        [[[[2, 3]], [[6, 7]]]],
    ]
    for told in pair.call("files_without_files"):
        assert told[0] == "NotFoundError"


@pytest.mark.feature("H15")
def test_without_sharding_every_worker_reads_everything(pair):
    cases = [(8, 4), (6, 4), (6, 3), (3, 3)]
    first, second = pair.call("split", cases=cases, policy="OFF")
    assert first == [
        [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]],
        [[[0, 1]], [[2, 3]], [[4, 5]]],
        [[[0, 1]], [[2]], [[3, 4]], [[5]]],
        [[[0, 1]], [[2]]],
    ]
    assert second == [
        [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]]],
        [[[0, 1]], [[2, 3]], [[4, 5]]],
        [[[0]], [[1, 2]], [[3]], [[4, 5]]],
        [[[0]], [[1, 2]]],
    ]


@pytest.mark.feature("H08", "H09")
def test_files_are_dealt_and_who_has_none_left_gets_empty_batches(pair, tmp_path):
    paths = []
    for i in range(3):
        path = tmp_path / f"f{i}"
        path.write_text(f"{i}0\n{i}1")
        paths.append(str(path))
    (first, shown), (second, _) = pair.call("lines", paths=paths)
    assert first == [[["00"]], [["01"]], [["20"]], [["21"]]]
    assert second == [[["10"]], [["11"]], [[]], [[]]]
    assert paths[0] in shown and paths[1] in shown
    for told in pair.call("too_few_files", path=paths[0]):
        assert told[0] == "InvalidArgumentError"
        assert "only has 1 file" in told[1]


@pytest.mark.feature("H23")
def test_values_are_per_replica_with_one_local_replica_too(pair):
    spec = "PerReplicaSpec(TensorSpec(shape=(None,), dtype=int64, name=None))"
    assert pair.call("kinds") == [["PerReplica", spec]] * 2


@pytest.mark.feature("I09")
def test_a_function_shards_by_its_context(pair):
    assert pair.call("from_function", how="sharded") == [
        [[[[0, 2]], [[4, 6]]], [[2, 0, 2]]],
        [[[[1, 3]], [[5, 7]]], [[2, 1, 2]]],
    ]


@pytest.mark.feature("I13")
@pytest.mark.parametrize("how", ["uneven", "static"])
def test_the_worker_with_less_data_gets_empty_batches(pair, how):
    (first, _), (second, _) = pair.call("from_function", how=how)
    assert first == [[[0, 1]], [[]]]
    assert second == [[[0, 1]], [[2, 3]]]


def test_one_dataset_per_replica_is_refused(pair):
    for told in pair.call("refused"):
        assert told[0] == "NotImplementedError"


def seen(told):
    """Returns how often each example was seen, the same on every worker."""
    (_, first, _), (_, second, _) = told
    assert first == second
    return first


@pytest.mark.feature("H10", "H22")
@pytest.mark.parametrize("size", ["pair", "doubles"])
def test_every_example_is_seen_once_in_one_unseeded_order(request, size):
    group = request.getfixturevalue(size)
    told = group.call("trained", policy="AUTO")
    assert seen(told) == [1.0] * 38 + [0.0] * 2
    assert told[0][0] == 5


@pytest.mark.parametrize("size", ["pair", "doubles"])
def test_an_epoch_stopped_on_some_workers_continues_on_others(request, pair, size):
    begun = pair.call("trained", policy="AUTO", stop=2)
    assert begun[0][2] == begun[1][2]
    state = json.loads(json.dumps(begun[0][2]))
    group = request.getfixturevalue(size)
    rest = group.call("trained", policy="AUTO", state=state)
    both = [a + b for a, b in zip(seen(begun), seen(rest))]
    assert both == [1.0] * 38 + [0.0] * 2


def test_without_sharding_every_example_is_seen_by_each_worker(doubles):
    assert seen(doubles.call("trained", policy="OFF")) == [2.0] * 38 + [0.0] * 2


def test_endless_batches_go_on(pair):
    first, second = pair.call("endless")
    assert first == [[(19 * 4 + i) % 3 for i in range(4)]]
    assert second == [[(19 * 4 + i) % 4 for i in range(4)]]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_workers_that_have_read_ahead_return_to_one_position(pair, after):
    first, second = pair.call("returned", after=after)
    assert first == [[[i, i + 1]] for i in range(0, 10, 2)] + [[[]]] * 2
    assert second == [[[i, i + 1]] for i in range(0, 14, 2)]


def test_who_waits_for_another_worker_can_leave(pair):
    first, _ = pair.call("left_waiting")
    assert first < 2


def test_a_failure_in_one_workers_input_is_an_error_on_all(tmp_path):
    with harness.Group(tmp_path, 2, 1) as group:
        first, second = group.call("failing", victim=1)
        assert first[0] == "WorkerFailedError"
        assert "no such file" in first[1] and "Worker 1" in first[1]
        assert second[0] == "KeyError"


@pytest.mark.feature("H10")
@pytest.mark.parametrize(
    "how", ["flat_map", "interleave", "window", "group", "captured"]
)
def test_shuffles_in_functions_are_the_same_for_all_workers(pair, how):
    first, second = pair.call("shuffled_within", how=how)
    assert first == second
    epochs = [[x for step in epoch for x in step] for epoch in first]
    assert [sorted(epoch) for epoch in epochs] == [list(range(40))] * 2
    assert epochs[0] != epochs[1]
