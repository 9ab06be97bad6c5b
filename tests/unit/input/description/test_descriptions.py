"""What a distributed dataset says about itself."""

import logging
import re

import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.input.pipelines import Dataset
from unisono._src.input.description import descriptions
from unisono._src.input.distribution import sharding_rule, steps

Policy = uni.data.experimental.AutoShardPolicy
HINT = uni.data.experimental.SHARD_HINT


def with_policy(dataset, policy):
    options = uni.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def on_two_workers(dataset, policy, replicas=2):
    node = dataset._node
    decision = sharding_rule.decide(node, policy)
    return descriptions.describe_batches(node, decision, steps.Share(replicas, 2, 0))


def described(n, dataset):
    return mirrored(n).experimental_distribute_dataset(dataset).describe()


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_one_line_per_dataset_goes_to_the_log(caplog, n):
    with caplog.at_level(logging.INFO, "unisono"):
        dataset = mirrored(n).experimental_distribute_dataset(
            Dataset.range(100).shuffle(10).batch(16)
        )
        for _ in range(2):
            list(dataset)
    (record,) = caplog.records
    line = record.getMessage()
    assert line.startswith("Input Range(0, 100) → Shuffle(10) → Batch(16): worker 0")
    assert "The split drops nothing." in line
    assert "\n" not in line
    assert line == dataset.describe().line


def test_the_two_rules_are_told():
    batched = Dataset.range(20).batch(6)
    chunks = described(4, batched)
    assert "chunks of ceil(size / 4)" in chunks.rule
    assert chunks.rows[0].parts == "rows [0:2], [2:4], [4:6], [6:6] of 6"
    assert chunks.rows[0].count == "4 global batches, 20 examples"
    assert "leaves the last replicas short or empty" in chunks.remainder
    assert chunks.rule.startswith("AUTO means DATA here: no files.")
    fixed = described(4, with_policy(batched, Policy.OFF))
    assert "fixed sizes, from a global batch of 6" in fixed.rule
    assert fixed.rule.startswith("The policy is OFF.")
    assert fixed.rows[0].parts == "rows [0:2], [2:4], [4:5], [5:6] of 6"
    assert described(1, batched).rows[0].parts == "all"
    mapped = described(4, batched.map(lambda x: x).repeat())
    assert mapped.rows[0].parts == "1/4 of each batch"
    assert mapped.rows[0].count == "endless global batches"


def test_the_way_in_which_functions_run_is_told():
    def scale(x):
        return x * 2

    def told(dataset):
        return described(2, dataset.batch(2)).functions

    numbers = Dataset.range(4)
    assert told(numbers) == ""
    several = numbers.map(scale).map(scale).map(abs, num_parallel_calls=3)
    assert told(several) == (
        "Functions run on the host: Map(scale) one element after the other; "
        "Map(abs) in 3 threads."
    )
    tuned = numbers.map(scale, num_parallel_calls=uni.data.AUTOTUNE)
    assert "or in threads if the first calls are slow" in told(tuned)
    options = uni.data.Options()
    options.worker_processes = 2
    assert "Map(scale) in 2 processes." in told(tuned.with_options(options))
    found = described(2, several.batch(2))
    assert found.functions in found.line and "in 3 threads" in str(found)


def test_files_are_named_and_dealt(tmp_path):
    paths = [str(tmp_path / f"part-{i}") for i in range(7)]
    for path in paths:
        with open(path, "w") as file:
            file.write("x\n")
    dataset = uni.data.TextLineDataset(paths).batch(4)
    (row,) = (told := described(2, dataset)).rows
    assert told.rule.startswith("AUTO means FILE here: there are files to deal.")
    assert row.reads == f"7 files: {', '.join(paths[:4])} and 3 more"
    assert row.count == "global batches, as many as come"

    node = dataset._node
    share = steps.Share(4, 2, 0)
    decision = sharding_rule.decide(node, Policy.AUTO)
    both = descriptions.describe_batches(node, decision, share).rows
    assert [row.worker for row in both] == [0, 1]
    assert both[0].reads == f"4 files: {', '.join(paths[::2])}"
    assert both[1].reads == f"3 files: {', '.join(paths[1::2])}"
    data = sharding_rule.decide(node, Policy.DATA)
    both = descriptions.describe_batches(node, data, share).rows
    assert all(row.reads.endswith("and keeps its chunks") for row in both)
    assert [row.parts for row in both] == [
        "rows [0:1], [2:3] of 4",
        "rows [1:2], [3:4] of 4",
    ]


def test_the_files_of_each_source_are_dealt_by_themselves(tmp_path):
    for name in "abc":
        (tmp_path / name).write_text("x\n")
    paths = [str(tmp_path / name) for name in "abc"]
    several = uni.data.TextLineDataset(paths)
    dataset = Dataset.zip(several, several).batch(2)
    decision = sharding_rule.decide(dataset._node, Policy.AUTO)
    share = steps.Share(2, 2, 0)
    rows = descriptions.describe_batches(dataset._node, decision, share).rows
    first, second, third = paths
    assert rows[0].reads == f"4 files: {first}, {third}, {first}, {third}"
    assert rows[1].reads == f"2 files: {second}, {second}"


def test_datasets_from_a_function_are_described_too(caplog):
    with caplog.at_level(logging.INFO, "unisono"):
        dataset = mirrored(2).distribute_datasets_from_function(
            lambda context: Dataset.range(9).batch(2)
        )
    assert dataset.describe().line == caplog.records[0].getMessage()
    assert "each replica takes the next one" in dataset.describe().rule
    assert dataset.describe().rows[0].count == "5 elements, 3 steps"


def test_it_prints_as_a_table():
    zipped = Dataset.zip(Dataset.range(4).batch(2), Dataset.range(9).batch(2))
    text = str(described(2, zipped.prefetch(1)))
    for word in (
        "worker",
        "reads",
        "how many",
        "each replica gets",
        "2 global batches",
    ):
        assert word in text
    assert (
        "Zip[Range(0, 4) → Batch(2), Range(0, 9) → Batch(2)] → Prefetch(1)"
        in " ".join(text.split())
    )
    assert max(map(len, text.splitlines())) <= 100


# What is said, compared with what is read.


def told_number(text, what):
    found = re.search(rf"([\d,]+) {what}", text)
    return int(found[1].replace(",", "")) if found else None


def parts_of(strategy, dataset):
    """The parts of each step, as lists."""
    return [
        [np.ravel(p).tolist() for p in strategy.experimental_local_results(x)]
        for x in dataset
    ]


def marked(dataset):
    return dataset.shard(HINT, HINT)


def generated(count):
    spec = uni.TensorSpec((), np.int64)
    return Dataset.from_generator(lambda: iter(range(count)), output_signature=spec)


# Datasets, and how many examples they have before anything is dropped.
READ = {
    "range": (lambda: Dataset.range(20).batch(6), 20),
    "even": (lambda: Dataset.range(16).batch(8), 16),
    "few": (lambda: Dataset.range(2).batch(8), 2),
    "none": (lambda: Dataset.range(0).batch(8), 0),
    "full": (lambda: Dataset.range(10).batch(4, drop_remainder=True), 10),
    "full, repeated": (
        lambda: Dataset.range(10).batch(4, drop_remainder=True).repeat(3),
        30,
    ),
    "repeated, full": (
        lambda: Dataset.range(10).repeat(3).batch(4, drop_remainder=True),
        30,
    ),
    "full, mapped": (
        lambda: Dataset.range(10).batch(4, drop_remainder=True).map(lambda x: x),
        10,
    ),
    "filtered, full": (
        lambda: Dataset.range(10).filter(lambda x: x < 7).batch(4, drop_remainder=True),
        7,
    ),
    "shuffled batches": (lambda: Dataset.range(14).batch(4).shuffle(9, seed=1), 14),
    "taken": (lambda: Dataset.range(30).batch(4).skip(1).take(5), 20),
    "skipped": (lambda: Dataset.range(14).batch(4).skip(2), 6),
    "sharded batches": (lambda: Dataset.range(30).batch(4).shard(3, 1), 10),
    "endless, taken": (lambda: Dataset.range(3).repeat().batch(4).take(2), 8),
    "joined": (
        lambda: Dataset.range(6).batch(4).concatenate(Dataset.range(4).batch(4)),
        10,
    ),
    "marked": (lambda: marked(Dataset.range(16)).batch(4), 16),
    "parallel": (lambda: Dataset.range(10).batch(4, num_parallel_calls=2), 10),
    "cached": (lambda: Dataset.range(10).cache().batch(4).prefetch(1), 10),
    "generated": (lambda: generated(10).batch(4), 10),
    "list": (lambda: [np.arange(4), np.arange(3)], 7),
    "array": (lambda: np.zeros((5, 8)), 40),
    "padded": (
        lambda: Dataset.range(10).padded_batch(4, (), drop_remainder=True),
        10,
    ),
}


@pytest.mark.parametrize("policy", [Policy.AUTO, Policy.DATA, Policy.OFF, Policy.HINT])
@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_numbers_are_those_that_are_read(n, name, policy):
    make, whole = READ[name]
    dataset = make()
    if hasattr(dataset, "with_options"):
        dataset = with_policy(dataset, policy)
    strategy = mirrored(n)
    made = strategy.experimental_distribute_dataset(dataset)
    told, steps_ = made.describe(), parts_of(strategy, made)
    (row,) = told.rows
    examples = [x for step in steps_ for part in step for x in part]
    batches = told_number(row.count, "(?:global batch|element)")
    assert batches is None or batches == len(steps_) == len(made) == made.cardinality
    assert (batches is None) == (name in ("generated", "filtered, full"))
    known = told_number(row.count, "example")
    assert known is None or known == len(examples)
    unknown = {"generated", "filtered, full", "full, mapped", "list"}
    # Of batches of several sizes it is not told which there are.
    unknown |= {"taken", "skipped", "sharded batches", "joined"}
    assert (known is None) == (name in unknown or (n == 1 and name == "array"))
    missing = whole - len(examples)
    dropped = told_number(told.remainder, "example")
    assert (missing > 0) == ("drop_remainder drops" in told.remainder)
    passes = 3 if "in every pass" in told.remainder else 1
    if name == "filtered, full":
        assert "what does not fill a batch of 4." in told.remainder
    else:
        assert (dropped or 0) * passes == missing
    bounds = re.findall(r"\[(\d+):(\d+)\]", row.parts)
    sizes = [int(b) - int(a) for a, b in bounds]
    full = [step for step in steps_ if sum(map(len, step)) == sum(sizes)]
    assert all(list(map(len, step)) == sizes for step in full)
    assert full or not bounds or name in ("few", "none")


@pytest.fixture
def folder(tmp_path):
    for i, count in enumerate([4, 3, 2, 1]):
        lines = [f"{i}{j}" for j in range(count)]
        (tmp_path / f"part-{i}").write_text("\n".join(lines))
    return tmp_path


def named(text):
    return [int(n) for n in re.findall(r"part-(\d)", text)]


@pytest.mark.parametrize("policy", [Policy.AUTO, Policy.DATA, Policy.OFF])
@pytest.mark.parametrize("shuffle", [False, True])
def test_files_of_an_interleave_are_named(folder, shuffle, policy):
    names = Dataset.list_files(str(folder / "part-*"), shuffle=shuffle)
    lines = names.interleave(uni.data.TextLineDataset, cycle_length=2).batch(2)
    told = described(2, with_policy(lines, policy))
    assert named(told.rows[0].reads) == [0, 1, 2, 3]
    assert told.rows[0].reads.startswith("4 files")
    assert ("in shuffled order" in told.rows[0].reads) == shuffle
    assert "drop_remainder" not in told.remainder
    dealt = [named(row.reads) for row in on_two_workers(lines, policy).rows]
    everything = [0, 1, 2, 3]
    assert dealt == ([[0, 2], [1, 3]] if policy == Policy.AUTO else [everything] * 2)


def test_one_file_is_not_several(folder):
    lines = uni.data.TextLineDataset(str(folder / "part-0")).batch(2)
    told = described(1, lines)
    assert told.rows[0].reads.startswith("1 file: ")
    assert told.pipeline == "TextLine(1 file) → Batch(2)"


@pytest.mark.parametrize(
    "choose, expected",
    [
        (lambda d: d.take(3), [[0, 2], [1]]),
        (lambda d: d.skip(1), [[1, 3], [2]]),
        (lambda d: d.shuffle(4).shuffle(2), [[0, 2], [1, 3]]),
        (lambda d: d.take(3).repeat(2), [[0, 2, 1], [1, 0, 2]]),
        (lambda d: d.take(3).repeat(), [[0, 2, 1], [1, 0, 2]]),
        (lambda d: d.repeat(), [[0, 2], [1, 3]]),
        (lambda d: d.shard(2, 1), [[1], [3]]),
        (lambda d: d.take(1).concatenate(d.skip(2)), [[0, 3], [2]]),
        (lambda d: d.cache().prefetch(1), [[0, 2], [1, 3]]),
    ],
)
def test_names_are_followed_to_the_worker_that_reads_them(folder, choose, expected):
    names = choose(Dataset.list_files(str(folder / "part-*"), shuffle=False))
    dataset = names.interleave(uni.data.TextLineDataset, cycle_length=1)
    rows = on_two_workers(dataset.batch(1), Policy.AUTO).rows
    assert [named(row.reads) for row in rows] == expected
    node, decision = dataset._node, sharding_rule.decide(dataset._node, Policy.AUTO)
    for worker, files in enumerate(expected):
        own = sharding_rule.plan_for_worker(node, decision, 2, worker).cursor()
        assert {int(line) // 10 for line in own.read(30)} == set(files)
        own.close()


def test_files_that_only_a_function_knows_are_not_named(folder):
    numbers = Dataset.range(3)
    lines = numbers.flat_map(
        lambda i: uni.data.TextLineDataset(str(folder / f"part-{i}"))
    ).batch(2)
    assert described(1, lines).rows[0].reads == (
        "the files of every element of Range(0, 3)"
    )
    first, second = on_two_workers(lines, Policy.AUTO).rows
    assert first.reads == "the files of elements [0::2] of Range(0, 3)"
    assert second.reads == "the files of elements [1::2] of Range(0, 3)"
    # Another function that makes datasets of what was read opens no file.
    windows = uni.data.TextLineDataset([str(folder / "part-0")] * 2).window(2)
    pairs = windows.flat_map(lambda window: window.batch(2)).batch(2)
    assert named(described(1, pairs).rows[0].reads) == [0, 0]
    assert "the files of" not in described(1, pairs).rows[0].reads


def test_a_function_that_fails_does_so_when_the_dataset_is_read(folder):
    def fail(name):
        raise KeyError("not now")

    names = Dataset.list_files(str(folder / "part-*"), shuffle=False)
    broken = with_policy(names.interleave(fail, cycle_length=1).batch(2), Policy.OFF)
    made = mirrored(1).experimental_distribute_dataset(broken)
    assert made.describe().rows[0].reads == "every example"
    with pytest.raises(KeyError, match="not now"):
        next(iter(made))


def test_hints_are_told_and_counted():
    dataset = marked(Dataset.range(16)).batch(4)
    one = mirrored(1).experimental_distribute_dataset(with_policy(dataset, Policy.HINT))
    assert (len(one), one.cardinality, len(list(one))) == (4, 4, 4)
    assert one.describe().pipeline == (
        "Range(0, 16) → Shard(SHARD_HINT) → Batch(4) → Options"
    )
    first, second = on_two_workers(dataset, Policy.HINT).rows
    assert first.reads == "elements [0::2] of Range(0, 16)"
    assert second.reads == "elements [1::2] of Range(0, 16)"
    assert first.count == second.count == "2 global batches, 8 examples, 4 steps"
    unmarked = on_two_workers(Dataset.range(16).batch(4), Policy.HINT)
    assert "every example comes 2 times" in unmarked.remainder
    shuffled = on_two_workers(
        marked(Dataset.range(16).shuffle(9)).batch(4), Policy.HINT
    )
    assert "every example comes" not in shuffled.remainder


def test_without_sharding_it_is_said_that_examples_come_again():
    told = on_two_workers(Dataset.range(8).batch(4), Policy.OFF)
    assert [row.count for row in told.rows] == [
        "2 global batches, 8 examples, 4 steps"
    ] * 2
    assert "every example comes 2 times, once from each worker" in told.remainder


def test_endless_batches_drop_in_every_pass_or_never():
    full = Dataset.range(10).batch(4, drop_remainder=True)
    told = described(2, full.repeat())
    assert told.rows[0].count == "endless global batches"
    assert "drop_remainder drops 2 examples in every pass." in told.remainder
    told = described(2, Dataset.range(10).repeat().batch(4, drop_remainder=True))
    assert "drop_remainder" not in told.remainder


def test_what_functions_may_drop_is_not_denied(folder):
    buckets = Dataset.range(10).bucket_by_sequence_length(
        lambda x: 1, [5], [4, 4], no_padding=True, drop_remainder=True
    )
    names = Dataset.list_files(str(folder / "part-*"), shuffle=False)
    batches = names.flat_map(
        lambda name: uni.data.TextLineDataset(name).batch(2, drop_remainder=True)
    )
    for dataset in (buckets, batches):
        assert "Nothing is dropped" not in described(2, dataset).remainder


# Datasets that a function made.


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("length", [0, 1, 6, 8, 9])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_elements_of_a_function_are_counted(n, length, drop, mapped):
    def make(context):
        numbers = Dataset.range(length)
        if mapped:
            numbers = numbers.map(lambda x: x)
        return numbers.batch(2, drop_remainder=drop)

    strategy = mirrored(n)
    made = strategy.distribute_datasets_from_function(make)
    told, steps_ = made.describe(), parts_of(strategy, made)
    (row,) = told.rows
    elements = length // 2 if drop else -(-length // 2)
    assert told_number(row.count, "element") == elements
    assert told_number(row.count, "step") == len(steps_)
    lost = elements - sum(bool(part) for step in steps_ for part in step)
    empty = sum(not part for step in steps_ for part in step)
    assert elements == len(steps_) * n + lost - empty
    assert ("left is dropped" in told.remainder) == (lost > 0)
    assert ("get empty batches" in told.remainder) == (empty > 0)
    assert (told_number(told.remainder, "example") or 0) == length % 2 * drop
    assert ("No step lacks elements." in told.remainder) == (elements % n == 0)
    assert "if sizes may vary" not in told.remainder


def test_the_log_does_not_look_at_an_element(caplog):
    called = []

    def make(context):
        numbers = Dataset.range(6).map(lambda x: called.append(1) or x)
        return numbers.batch(2, drop_remainder=True)

    with caplog.at_level(logging.INFO, "unisono"):
        made = mirrored(2).distribute_datasets_from_function(make)
    assert "describe() looks at an element" in caplog.records[0].getMessage()
    assert not called
    assert "what the others have left is dropped." in made.describe().line
    assert "3 elements, 1 step" in made.describe().line


def test_whole_steps_are_logged_as_such(caplog):
    with caplog.at_level(logging.INFO, "unisono"):
        made = mirrored(2).distribute_datasets_from_function(
            lambda context: Dataset.range(5).batch(2)
        )
        made.with_whole_steps()
    line = caplog.records[-1].getMessage()
    assert line == made.describe().line
    assert "3 elements, 1 step)" in line
    assert "what the others have left is dropped." in line


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("lengths", [(4, 4), (2, 6), (6, 3)])
def test_the_dataset_of_each_replica_is_described(lengths, drop):
    options = uni.distribute.InputOptions(
        experimental_replication_mode=uni.distribute.InputReplicationMode.PER_REPLICA
    )

    def make(context):
        own = Dataset.range(lengths[context.input_pipeline_id])
        return own.batch(2, drop_remainder=drop)

    strategy = mirrored(2)
    made = strategy.distribute_datasets_from_function(make, options)
    told, steps_ = made.describe(), parts_of(strategy, made)
    for replica, row in enumerate(told.rows):
        assert row.reads == f"for replica {replica}: its own dataset"
        elements = lengths[replica] // 2 if drop else -(-lengths[replica] // 2)
        assert told_number(row.count, "element") == elements
        assert told_number(row.count, "step") == len(steps_)
    given = sum(told_number(row.count, "element") for row in told.rows)
    lost = given - sum(bool(part) for step in steps_ for part in step)
    assert ("left is dropped" in told.remainder) == (lost > 0)
    for length in lengths:
        assert f"Range(0, {length})" in told.pipeline


# The text of the plan.


def test_many_mixed_datasets_are_told_in_short():
    mixed = Dataset.zip(*[Dataset.range(100).shuffle(10).take(90)] * 5).batch(4)
    assert described(1, mixed).pipeline == "Zip[5 datasets] → Batch(4)"
    parallel = Dataset.range(8).batch(4, num_parallel_calls=2)
    assert described(1, parallel).pipeline == "Range(0, 8) → Batch(4)"


def test_a_notebook_shows_the_description_as_a_table():
    shown = described(2, Dataset.range(10).batch(4))
    told = shown._repr_html_()
    assert told.count("<tr>") == 2
    assert "<td>rows [0:2], [2:4] of 4</td>" in told
    assert shown.rule in told and shown.remainder in told
    files = uni.data.TextLineDataset(["<b>.txt"]).batch(2)
    assert "&lt;b&gt;.txt" in described(2, files)._repr_html_()
