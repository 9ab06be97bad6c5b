"""What a distributed dataset says about itself."""

import logging

import pytest

import unisono as uni
from tests.parity.programs import mirrored
from tests.unit.pipelines import Dataset
from unisono._src.input import distributing, steps, tables

Policy = uni.data.experimental.AutoShardPolicy


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
    assert "nothing is dropped" in line.lower()
    assert "\n" not in line
    assert line == dataset.describe().line


def test_the_two_rules_are_told():
    batched = Dataset.range(20).batch(6)
    chunks = described(4, batched)
    assert "chunks of ceil(size / 4)" in chunks.rule
    assert chunks.rows[0].parts == "rows [0:2], [2:4], [4:6], [6:6] of 6"
    assert chunks.rows[0].count == "4 global batches"
    options = uni.data.Options()
    options.experimental_distribute.auto_shard_policy = Policy.OFF
    fixed = described(4, batched.with_options(options))
    assert "fixed sizes, from a global batch of 6" in fixed.rule
    assert fixed.rows[0].parts == "2, 2, 1, 1 of 6"
    assert described(1, batched).rows[0].parts == "all"
    mapped = described(4, batched.map(lambda x: x).repeat())
    assert mapped.rows[0].parts == "1/4 of each batch"
    assert mapped.rows[0].count == "endless global batches"


def test_files_are_named_and_dealt(tmp_path):
    paths = [str(tmp_path / f"part-{i}") for i in range(7)]
    for path in paths:
        with open(path, "w") as file:
            file.write("x\n")
    dataset = uni.data.TextLineDataset(paths).batch(4)
    (row,) = described(2, dataset).rows
    assert row.reads == f"7 files: {', '.join(paths[:4])} and 3 more"
    assert row.count == "global batches, as many as come"

    node = dataset._node
    share = steps.Share(4, 2, 0)
    decision = distributing.decide(node, Policy.AUTO)
    both = tables.describe_batches(node, decision, share).rows
    assert [row.worker for row in both] == [0, 1]
    assert both[0].reads == f"4 files: {', '.join(paths[::2])}"
    assert both[1].reads == f"3 files: {', '.join(paths[1::2])}"
    data = distributing.decide(node, Policy.DATA)
    both = tables.describe_batches(node, data, share).rows
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
    decision = distributing.decide(dataset._node, Policy.AUTO)
    share = steps.Share(2, 2, 0)
    rows = tables.describe_batches(dataset._node, decision, share).rows
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
    assert dataset.describe().rows[0].count == "5 elements"


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
