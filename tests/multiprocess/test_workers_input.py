"""Datasets of several workers: TensorFlow's rules, and every example exactly once."""

import itertools
import json
import re

import pytest

import unisono
from tests.multiprocess import harness, input_scenarios

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


@pytest.mark.parametrize("how", ["function", "dataset"])
def test_who_waits_for_another_worker_can_leave(pair, how):
    first, _ = pair.call("left_waiting", how=how)
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


# What descriptions say, compared with what is read.

FILED = [
    "listed",
    "shuffled names",
    "names",
    "names in turn",
    "mapped names",
    "lines",
    "lines, size unseen",
    "full lines",
]
COUNTED = [
    "range",
    "odd",
    "small",
    "full",
    "full twice",
    "repeated",
    "taken",
    "size unseen",
    "arrays",
    "generated",
]
MARKED = ["marked", "marked, full", "marked, size unseen"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """Three files of 6, 5 and 3 lines: 0 to 5, 10 to 14, and 20 to 22."""
    folder = tmp_path_factory.mktemp("parts")
    for i, count in enumerate([6, 5, 3]):
        lines = [str(10 * i + j) for j in range(count)]
        (folder / f"part-{i}").write_text("\n".join(lines))
    return str(folder)


def flat(steps):
    return [x for step in steps for part in step for x in part]


def told_number(text, what):
    """The number in front of a word, or None."""
    found = re.search(rf"([\d,]+) {what}", text)
    return int(found[1].replace(",", "")) if found else None


def check_counts(rows, steps, is_shared):
    """Every number of the rows, if it is told at all, is that of what was read."""
    for (_, _, count, parts), made in zip(rows, steps, strict=True):
        examples = told_number(count, r"(?:of [\d,]+ )?examples?")
        if examples is not None:
            assert examples == len(flat(made)), count
        own = [step for step in made if flat([step])]
        told = told_number(count, "steps?")
        assert told is None or told == len(own), count
        assert (told is None) == (not is_shared or examples is None), count
        if not is_shared and told_number(count, "global batch"):
            assert told_number(count, "global batch") == len(made), count
        check_parts(parts, made)
    told = [told_number(count, "steps?") for _, _, count, _ in rows]
    if None not in told:
        # The one with fewer gets empty parts.
        assert len(steps[0]) == len(steps[1]) == max(told)


def check_parts(told, made):
    """The sizes of the parts are those of the first batch, if that is full."""
    sizes = [[len(part) for part in step] for step in made]
    if "1/" in told:
        return
    turns = [re.findall(r"\[(\d+):(\d+)\]", turn) for turn in told.split(", then ")]
    expected = [[int(b) - int(a) for a, b in turn] for turn in turns]
    assert sizes[: len(expected)] == expected, told


def check_dropped(remainder, read, whole):
    """What is said to be dropped is what is missing."""
    missing = len(whole) - len(read)
    assert "The split drops nothing." in remainder
    told = re.findall(r"([\d,]+) examples?", remainder)
    if "what does not fill" not in remainder:
        each = 2 if " on each worker" in remainder else 1
        each *= 2 if " in every pass" in remainder else 1
        assert each * sum(map(int, told)) == missing, remainder


@pytest.mark.parametrize("policy", ["AUTO", "FILE", "DATA", "OFF"])
@pytest.mark.parametrize("size", ["pair", "doubles"])
def test_the_described_files_are_those_that_are_read(request, parts, size, policy):
    group = request.getfixturevalue(size)
    first, second = group.call("described", folder=parts, policy=policy, names=FILED)
    for name in FILED:
        rows, rule, remainder, _, _ = first[name]
        assert second[name][:3] == [rows, rule, remainder] and len(rows) == 2
        made = [first[name][4], second[name][4]]
        is_shared = policy != "DATA"
        check_counts(rows, made, is_shared)
        read = [{x // 10 for x in flat(steps)} for steps in made]
        for (_, reads, _, _), numbers in zip(rows, read, strict=True):
            named = re.findall(r"part-(\d)", reads)
            if name == "mapped names":
                assert not named
                continue
            assert told_number(reads, "files?") == len(named) == len(set(named))
            assert (" in shuffled order" in reads) == (
                name == "shuffled names" and len(named) > 1
            )
            # With chunks of few batches not every file is in those of a worker.
            assert numbers <= set(map(int, named)), reads
            if is_shared and "unseen" not in name:
                assert numbers == set(map(int, named)), reads
        whole = [*range(6), *range(10, 15), *range(20, 23)]
        whole *= 2 if name == "names in turn" else 1
        times = 2 if "every example comes 2 times" in remainder else 1
        both = flat(made[0]) + flat(made[1])
        check_dropped(remainder, both, whole * times)
        if "drop_remainder" not in remainder:
            assert sorted(both) == sorted(whole * times)


@pytest.mark.parametrize("policy", ["AUTO", "DATA", "OFF", "HINT"])
@pytest.mark.parametrize("size", ["pair", "doubles"])
def test_the_described_numbers_are_those_that_are_read(request, tmp_path, size, policy):
    names = COUNTED + MARKED + ["loader", "batches"] * (policy == "AUTO")
    (tmp_path / "part-0").write_text("0")
    group = request.getfixturevalue(size)
    first, second = group.call(
        "described", folder=str(tmp_path), policy=policy, names=names
    )
    wholes = {
        "range": 10,
        "odd": 9,
        "small": 7,
        "full": 11,
        "full twice": 22,
        "repeated": 21,
        "taken": 12,
        "size unseen": 10,
        "arrays": 13,
        "generated": 10,
        "loader": 10,
        "batches": 12,
    }
    for name in names:
        rows, rule, remainder, cardinality, _ = first[name]
        assert second[name][:3] == [rows, rule, remainder] and len(rows) == 2
        made = [first[name][4], second[name][4]]
        is_shared = policy in ("OFF", "HINT")
        check_counts(rows, made, is_shared)
        assert cardinality == (told_number(rows[0][2], "global batch") or -2)
        times = 2 if "every example comes 2 times" in remainder else 1
        whole = range(wholes.get(name, 18) * times)
        check_dropped(remainder, flat(made[0]) + flat(made[1]), whole)
        hinted = policy == "HINT" and name in MARKED
        for (_, reads, _, _), steps in zip(rows, made, strict=True):
            told = re.match(r"elements \[(\d+)::(\d+)\] of Range\(0, 18\)$", reads)
            assert bool(told) == hinted, reads
            if told:
                start, shards = int(told[1]), int(told[2])
                assert {x % shards for x in flat(steps)} == {start}
            else:
                assert reads.startswith("every example")
                assert reads.endswith("and keeps its chunks") == (not is_shared)


@pytest.mark.parametrize("size", ["pair", "doubles"])
def test_each_worker_describes_its_own_dataset_of_a_function(request, size):
    group = request.getfixturevalue(size)
    lengths = [(8, 8), (9, 5), (3, 12), (4, 4)]
    cases = list(itertools.product(lengths, [2], [False, True]))
    for worker, found in enumerate(group.call("described_elements", sizes=cases)):
        for (sizes, _, _), told in zip(cases, found, strict=True):
            ((number, reads, count, _),), rule, remainder, steps = told
            assert number == worker and reads == "its own dataset"
            assert "The other workers have datasets of their own" in rule
            own = [step for step in steps if flat([step])]
            parts = [part for step in own for part in step if part]
            assert told_number(count, "elements?") == len(parts)
            assert told_number(count, "steps?") == len(own)
            dropped = told_number(remainder, "example") or 0
            assert dropped == sizes[worker] - len(flat(steps))
            assert "get empty batches until all have finished" in remainder


@pytest.mark.feature("H10")
@pytest.mark.parametrize("group", ["pair", "doubles"])
@pytest.mark.parametrize(
    "how", ["mapped", "shuffled names", "shuffled hint", "mapped hint"]
)
def test_what_is_dealt_comes_once(request, parts, group, how):
    workers = request.getfixturevalue(group).call("dealt", how=how, folder=parts)
    whole = [*range(6), *range(10, 15), *range(20, 23)]
    whole = list(range(14)) if "hint" in how else whole
    for epoch in range(2):
        assert sorted(flat(workers[0][epoch]) + flat(workers[1][epoch])) == whole


def test_all_chunks_of_a_worker_s_own_batch_are_its_own(pair, parts):
    # As TensorFlow was seen to do behind a map, where it does not know the size.
    first, second = pair.call("dealt", how="mapped", folder=parts)
    assert first[0][:3] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert second[0][:4] == [[[10, 11]], [[12, 13]], [[14]], [[]]]


# Workers that make a dataset in different ways.


@pytest.mark.feature("H10")
@pytest.mark.parametrize(
    "case, told",
    {
        "files": "worker 0 has file 0: 'part-0'; worker 1 has file 0: 'part-1'",
        "names": "worker 0 has row 0: 'part-0'; worker 1 has row 0: 'part-1'",
        "arrays": "worker 0 has row 0: 0.",
        "endless": "worker 0 has row 0: 0 ",
        "length": "stop=8, step=1, dtype=dtype('int64'), is_endless=False); worker 1",
        "empty": "worker 0 has Range(start=0, stop=0,",
        "batch": "worker 0 has Batch(size=4, drop=False); worker 1 has Batch(size=5",
        "function": "worker 0 has Map(fn=_same (input_scenarios.py:",
        "shard": "worker 1 has Shard(shards=2, index=1)",
        "generator": "element 0 of Generated",
        "cached": "element 0 of Generated",
        "no elements": "no such element: its source ends after 0; worker 1 has 0 (",
        "marked": "element 0 of Generated",
        "loader": "element 0 of list: worker 0 has [0.",
        "filter": "of Filter(<lambda>)",
    }.items(),
)
def test_a_dataset_that_differs_is_an_error_before_it_is_used(pair, parts, case, told):
    first, second = pair.call("differing", folder=parts, case=case)
    assert first == second
    assert first[0] == "WorkerMismatchError"
    assert told in first[1]
    assert "AutoShardPolicy.OFF" in first[1]


def test_datasets_in_another_order_are_an_error(pair):
    first, second = pair.call("several_in_another_order")
    assert first == second
    assert first[0] == "WorkerMismatchError"


@pytest.mark.feature("H15")
def test_datasets_of_their_own_and_other_mounts_and_random_changes_are_none(
    pair, tmp_path
):
    for worker in range(2):
        folder = tmp_path / f"mount{worker}"
        folder.mkdir()
        for i in range(2):
            (folder / f"part-{i}").write_text(f"{i}0\n{i}1\n")
    first, second = pair.call("exempt", folder=str(tmp_path))
    assert first == [
        [[[0]], [[1]]],
        [[[0]], [[1]], [[2]], [[3]]],
        [[[0, 1]], [[2, 3]]],
        [[[0, 1]]],
    ]
    assert second == [
        [[[10]], [[11]]],
        [[[10]], [[11]], [[12]], [[13]]],
        [[[10, 11]], [[12, 13]]],
        [[[2, 3]]],
    ]


def test_workers_that_read_the_same_continue_at_the_same_element(pair):
    assert pair.call("set_to", positions=[3, 3]) == [["ok", None]] * 2
    first, second = pair.call("set_to", positions=[3, 5])
    assert first == second
    assert first[0] == "WorkerMismatchError"
    assert "worker 0 has element 4; worker 1 has element 6" in first[1]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Two workers, with two and four replicas."""
    with harness.Group(tmp_path_factory.mktemp("uneven"), 2, [2, 4]) as made:
        yield made


def test_workers_with_different_numbers_of_devices_share_every_batch(uneven):
    first, second = uneven.call("split", cases=[(12, 12), (7, 7), (3, 6)])
    assert first == [[[[0, 1], [4, 5]]], [[[0, 1], [4, 5]]], [[[0], [2]]]]
    assert second == [
        [[[2, 3], [6, 7], [8, 9], [10, 11]]],
        [[[2, 3], [6], [], []]],
        [[[1], [], [], []]],
    ]


def test_workers_with_different_numbers_of_devices_train_as_one_device(uneven):
    alone = unisono.distribute.OneDeviceStrategy("CPU:0")
    losses, weight = input_scenarios.regress(alone, 0)
    for told in uneven.call("regress"):
        assert told[0] == pytest.approx(losses, rel=1e-5)
        assert told[1] == pytest.approx(weight, rel=1e-5)


def test_workers_with_different_numbers_of_devices_read_their_own_datasets(uneven):
    first, second = uneven.call("own_datasets")
    assert first == [[[0, 2], [4, 6]], [[8, 10], []]]
    assert second == [[[1, 3], [5, 7], [9, 11], []], [[], [], [], []]]


def test_workers_with_different_numbers_of_devices_cannot_deal_files(uneven, tmp_path):
    paths = []
    for name in ("a", "b"):
        (tmp_path / name).write_text("".join(f"{name}{i}\n" for i in range(6)))
        paths.append(str(tmp_path / name))
    # By default each of them reads all files, and keeps its part of every batch.
    (first, _), (second, _) = uneven.call("lines", paths=paths, batch=6)
    assert first[0] == [["a0"], ["a2"]]
    assert second[1] == [["b1"], ["b3"], ["b4"], ["b5"]]
    for told in uneven.call("files_without_files"):
        assert told[0] == "ValueError" and "[2, 4]" in told[1]
