"""The lines by which workers compare plans."""

import numpy as np
import pytest

import unisono as tf
from unisono._src.input.distribution import plan_lines

Dataset = tf.data.Dataset


def lines(dataset):
    return plan_lines.lines_of(dataset._node)


def double(x):
    return 2 * x


def triple(x):
    return 3 * x


BASE = Dataset.range(8)


@pytest.mark.parametrize(
    "one, two",
    [
        (BASE, Dataset.range(9)),
        (BASE.batch(2), BASE.batch(4)),
        (BASE.batch(2), BASE.batch(2, drop_remainder=True)),
        (BASE.map(double), BASE.map(triple)),
        (BASE.map(double).batch(2), BASE.batch(2).map(double)),
        (BASE.take(3), BASE.take(4)),
        (BASE.shuffle(3), BASE.shuffle(4)),
        (BASE.shard(2, 0), BASE.shard(2, 1)),
        (BASE.concatenate(BASE), BASE),
        (BASE.repeat(), BASE.repeat(2)),
        (
            BASE.group_by_window(abs, lambda key, group: group.batch(2), 2),
            BASE.group_by_window(abs, lambda key, group: group.batch(2), 3),
        ),
        (
            Dataset.sample_from_datasets([BASE, BASE], [0.5, 0.5]),
            Dataset.sample_from_datasets([BASE, BASE], [0.25, 0.75]),
        ),
        (Dataset.from_tensors(1), Dataset.from_tensors(2)),
        (
            Dataset.from_tensor_slices({"x": np.arange(99)}),
            Dataset.from_tensor_slices({"x": np.roll(np.arange(99), 1)}),
        ),
        (
            Dataset.from_tensor_slices(["a/1", "a/2"]),
            Dataset.from_tensor_slices(["a/2", "a/1"]),
        ),
        (tf.data.TextLineDataset(["1", "2"]), tf.data.TextLineDataset(["2", "1"])),
        (tf.data.TextLineDataset(["1"]), tf.data.TextLineDataset(["1"] * 2)),
        (
            BASE.padded_batch(2, padded_shapes=[]),
            BASE.padded_batch(2, padded_shapes=[], padding_values=np.int64(1)),
        ),
    ],
)
def test_lines_tell_plans_apart(one, two):
    assert lines(one) != lines(two)
    assert lines(one) == lines(one)


@pytest.mark.parametrize(
    "one, two",
    [
        (BASE.shuffle(8, seed=1), BASE.shuffle(8, seed=2)),
        (BASE.prefetch(1), BASE.prefetch(9)),
        (BASE.cache("a"), BASE.cache("b")),
        (BASE.cache(), BASE),
        (BASE.map(double, num_parallel_calls=2), BASE.map(double)),
        (BASE.with_options(tf.data.Options()), BASE),
        (
            tf.data.TextLineDataset(["/a/x/1", "/a/y/2"]),
            tf.data.TextLineDataset(["/b/c/x/1", "/b/c/y/2"]),
        ),
        (tf.data.TextLineDataset("/a/1"), tf.data.TextLineDataset("1")),
        (
            Dataset.from_tensor_slices(["/a/1", "/a/2"]).map(double),
            Dataset.from_tensor_slices(["b/1", "b/2"]).map(double),
        ),
    ],
)
def test_lines_leave_out_what_may_differ_between_machines(one, two):
    assert lines(one) == lines(two)


def test_the_number_of_open_files_may_differ_if_each_worker_has_its_own():
    names = Dataset.from_tensor_slices(["a", "b"])
    one, two = (names.interleave(tf.data.TextLineDataset, n)._node for n in (1, 2))
    assert plan_lines.lines_of(one) != plan_lines.lines_of(two)
    assert plan_lines.lines_of(one, True) == plan_lines.lines_of(two, True)


def test_no_source_is_read_for_the_lines():
    def raising():
        raise AssertionError("called")

    spec = tf.TensorSpec((), np.int64)
    made = (
        Dataset.from_generator(raising, output_signature=spec)
        .map(double)
        .filter(bool)
        .batch(2)
    )
    assert len(lines(made)) == 4


def test_a_row_in_the_middle_of_large_arrays_is_not_copied_to_be_compared():
    large = np.broadcast_to(np.float32(1), (10**5, 10**6))
    assert len(lines(Dataset.from_tensor_slices(large))) == 19


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.from_tensor_slices(np.zeros((0, 2))),
        Dataset.from_tensor_slices([b"\xff/a", b"\xff/b"]),
        Dataset.range(3).scan(np.int64(0), lambda s, x: (s + x, s)),
        Dataset.range(9).window(3).flat_map(lambda w: w.batch(3)),
        Dataset.sample_from_datasets([BASE, BASE]),
        BASE.group_by_window(abs, lambda key, group: group.batch(2), 2),
        BASE.map(tf.function(double)),
        BASE.rejection_resample(lambda x: np.int32(0), [0.5, 0.5]),
        Dataset.from_loader([np.arange(2)]),
        Dataset.zip((BASE, {"a": BASE})),
        Dataset.range(9).bucket_by_sequence_length(lambda x: 1, [2], [3, 3]),
    ],
)
def test_every_plan_has_lines_that_are_text(dataset):
    found = lines(dataset)
    assert found and all(isinstance(line, str) for line in found)
    assert not any(" at 0x" in line for line in found)
