"""What is not checked at the call is found much later, in words of another library."""

import inspect
import re
from typing import Any

import numpy as np
import pytest

import unisono as uni
from tests.unit.input import method_arguments

D = uni.data.Dataset
R = D.range(4)
HUGE = 2**63
RAGGED: Any = [[1], [1, 2]]
NAN, INF = float("nan"), float("inf")


def same(x):
    return x


def pairs():
    return D.from_tensors((np.arange(2), np.arange(3)))


def keyed():
    return D.from_tensors({"a": np.arange(2), "b": np.arange(3)})


def of(values):
    return D.from_tensors(values).repeat(2)


CALLS = {
    "map, text": (
        lambda: R.map(same, num_parallel_calls="2"),
        TypeError,
        "num_parallel_calls.*'2'",
    ),
    "map, a fraction": (
        lambda: R.map(same, num_parallel_calls=2.7),
        TypeError,
        "num_parallel_calls.*2.7",
    ),
    "batch in parallel": (
        lambda: R.batch(2, num_parallel_calls="x"),
        TypeError,
        "num_parallel_calls.*'x'",
    ),
    "batch, drop_remainder": (
        lambda: R.batch(2, drop_remainder="no"),
        TypeError,
        "drop_remainder.*'no'",
    ),
    "rebatch, text": (lambda: R.batch(2).rebatch("x"), TypeError, "batch_size.*'x'"),
    "rebatch, None": (lambda: R.batch(2).rebatch(None), ValueError, "batch_size.*None"),
    "rebatch, 2.7": (lambda: R.batch(2).rebatch(2.7), TypeError, "batch_size.*2.7"),
    "rebatch, [2.5]": (lambda: R.batch(2).rebatch([2.5]), TypeError, "batch_size.*2.5"),
    "shuffle, seed": (lambda: R.shuffle(3, seed="x"), TypeError, "seed.*'x'"),
    "shuffle, seed 1.7": (lambda: R.shuffle(3, seed=1.7), TypeError, "seed.*1.7"),
    "random": (lambda: D.random("x"), TypeError, "seed.*'x'"),
    "buckets": (
        lambda: R.bucket_by_sequence_length(same, "ab", [1, 1, 1]),
        TypeError,
        "bucket_boundaries.*'ab'",
    ),
    "buckets, one number in an array": (
        lambda: R.bucket_by_sequence_length(same, np.array(3), [1, 1]),
        TypeError,
        "bucket_boundaries.*array",
    ),
    "sizes of buckets": (
        lambda: R.bucket_by_sequence_length(same, [3], ["a", 1]),
        TypeError,
        "bucket_batch_sizes.*'a'",
    ),
    "zip of a list": (lambda: D.zip([R, R]), TypeError, "list. Use a tuple"),
    "zip, nested": (lambda: D.zip((R, [R])), TypeError, "list. Use a tuple"),
    "concatenate": (lambda: R.concatenate(None), TypeError, "`dataset`.*None"),
    "choose of none": (lambda: D.choose_from_datasets([], R), ValueError, "empty"),
    "choose by 3": (
        lambda: D.choose_from_datasets([R], 3),
        TypeError,
        "choice_dataset.*3",
    ),
    "choose by floats": (
        lambda: D.choose_from_datasets([R], D.from_tensors(0.0)),
        TypeError,
        "choice_dataset.*float32",
    ),
    "choose from two types": (
        lambda: D.choose_from_datasets([R, D.from_tensors(0.0)], R),
        TypeError,
        "datasets.*int64.*float32",
    ),
    "sample of none": (lambda: D.sample_from_datasets([]), ValueError, "empty"),
    "sample from two types": (
        lambda: D.sample_from_datasets([R, D.from_tensors(0.0)]),
        TypeError,
        "datasets.*int64.*float32",
    ),
    "sample, seed": (
        lambda: D.sample_from_datasets([R, R], seed="x"),
        TypeError,
        "seed.*'x'",
    ),
    "weights below 0": (
        lambda: D.sample_from_datasets([R, R], [-1.0, 2.0]),
        ValueError,
        r"weights.*-1\.0",
    ),
    "weights, NaN": (
        lambda: D.sample_from_datasets([R, R], [NAN, 2.0]),
        ValueError,
        "weights.*nan",
    ),
    "weights, text": (
        lambda: D.sample_from_datasets([R, R], ["a", "b"]),
        TypeError,
        "weights.*'a'",
    ),
    "weights, too few": (
        lambda: D.sample_from_datasets([R, R], [1.0]),
        ValueError,
        "weights.*2",
    ),
    "weights, a dataset of integers": (
        lambda: D.sample_from_datasets([R, R], of([0, 1])),
        TypeError,
        "weights.*int32",
    ),
    "weights, a dataset of too many": (
        lambda: D.sample_from_datasets([R, R], of([0.0, 1.0, 1.0])),
        ValueError,
        "weights.*2 datasets",
    ),
    "apply": (lambda: R.apply("x"), TypeError, "transformation_func.*str"),
    "padded, too few": (
        lambda: pairs().padded_batch(2, ([None],)),
        ValueError,
        "padded_shapes.*length",
    ),
    "padded, a list": (
        lambda: pairs().padded_batch(2, [None]),
        TypeError,
        "padded_shapes.*no tuple",
    ),
    "padded, other keys": (
        lambda: keyed().padded_batch(2, {"a": [None], "c": [None]}),
        ValueError,
        "padded_shapes.*keys",
    ),
    "padded, no dict": (
        lambda: keyed().padded_batch(2, ([None], [None])),
        TypeError,
        "padded_shapes.*no dict",
    ),
    "padded, text": (
        lambda: R.batch(2).padded_batch(2, "x"),
        TypeError,
        "padded_shapes.*'x'",
    ),
    "padded, too small": (
        lambda: of(np.arange(3)).padded_batch(2, [2]),
        ValueError,
        r"\(2,\).*\(3,\)",
    ),
    "generator, shapes": (
        lambda: D.from_generator(same, (int, int), ((),)),
        ValueError,
        "output_shapes.*length",
    ),
    "generator, keys": (
        lambda: D.from_generator(same, {"a": int}, {"b": ()}),
        ValueError,
        "output_shapes.*keys",
    ),
    "generator, args": (
        lambda: D.from_generator(same, int, args=3),
        TypeError,
        "args.*3",
    ),
    "records of 0 bytes": (
        lambda: uni.data.FixedLengthRecordDataset("f", 0),
        ValueError,
        "record_bytes.*0",
    ),
    "records, a header": (
        lambda: uni.data.FixedLengthRecordDataset("f", 1, "x"),
        TypeError,
        "header_bytes.*'x'",
    ),
    "files, 5": (lambda: uni.data.TFRecordDataset(5), TypeError, "filenames.*5"),
    "files, a number": (
        lambda: uni.data.TextLineDataset(["a", 5]),
        TypeError,
        "filenames.*5",
    ),
    "files, of pairs": (
        lambda: uni.data.TextLineDataset(of(("a", "b"))),
        TypeError,
        "filenames.*string",
    ),
    "files, reads": (
        lambda: uni.data.TextLineDataset(["a"], num_parallel_reads=-3),
        ValueError,
        "num_parallel_reads.*-3",
    ),
    "list_files, 5": (lambda: D.list_files(5), TypeError, "file_pattern.*5"),
    "list_files, None": (lambda: D.list_files(None), ValueError, "file_pattern.*None"),
    "resample, seed": (
        lambda: R.rejection_resample(same, [0.5, 0.5], seed=1.5),
        TypeError,
        r"seed.*1\.5",
    ),
    "resample, text": (
        lambda: R.rejection_resample(same, "abc"),
        TypeError,
        "target_dist.*'abc'",
    ),
    "resample, infinite": (
        lambda: R.rejection_resample(same, [INF, 1]),
        ValueError,
        "target_dist.*inf",
    ),
    "cardinality": (
        lambda: uni.data.experimental.assert_cardinality("x"),
        TypeError,
        "expected_cardinality.*'x'",
    ),
    "unbatch, unequal": (lambda: pairs().unbatch(), ValueError, "rows.*2.*3"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_argument_is_refused_at_the_call_by_its_name(name):
    call, error, told = CALLS[name]
    with pytest.raises(error, match=told):
        call()


def test_numbers_of_numpy_are_numbers():
    two = np.int64(2)
    made = R.map(same, num_parallel_calls=two).shuffle(two, seed=two).batch(two)
    assert sorted(np.concatenate(list(made)).tolist()) == [0, 1, 2, 3]
    turns = [len(b) for b in D.range(6).batch(4).rebatch(np.array([1, 2]))]
    assert turns == [1, 2, 1, 2]


def test_a_generator_that_gives_nothing_to_iterate_is_told():
    made = D.from_generator(lambda: None, output_types=int)
    with pytest.raises(uni.errors.InvalidArgumentError, match=r"generator.*None"):
        list(made)


@pytest.mark.parametrize("wrong", [lambda s, x: s, lambda s, x: (s, x, x)])
def test_scan_needs_a_pair(wrong):
    with pytest.raises(TypeError, match=r"scan_func.*pair"):
        list(R.scan(0, wrong))
    with pytest.raises(TypeError, match=r"scan_func.*pair"):
        _ = R.scan(0, wrong).element_spec


def test_scan_keeps_the_type_of_its_state():
    with pytest.raises(TypeError, match="int32 and became int64"):
        list(R.scan(0, lambda s, x: (x, s)))
    # As in TensorFlow, types are not mixed.
    with pytest.raises(uni.errors.InvalidArgumentError, match="int32 and int64"):
        list(R.scan(0, lambda s, x: (s + x, s)))
    made = R.scan(np.int64(0), lambda s, x: (s + x, s))
    assert [int(x) for x in made] == [0, 0, 1, 3]


@pytest.mark.parametrize(
    "kind",
    [uni.data.TFRecordDataset, uni.data.TextLineDataset],
    ids=["tfrecord", "text"],
)
def test_no_files_are_an_empty_dataset(kind):
    assert list(kind([])) == []
    assert list(kind([], num_parallel_reads=2)) == []
    assert kind([]).element_spec == uni.TensorSpec((), "string")


def test_errors_of_records_in_any_order_name_the_file(tmp_path):
    with pytest.raises(uni.errors.NotFoundError, match="nowhere"):
        list(uni.data.ArrayRecordDataset([str(tmp_path / "nowhere")]))
    bad = tmp_path / "bad.array_record"
    bad.write_bytes(b"no records at all" * 100)
    with pytest.raises(uni.errors.DataLossError, match=r"bad\.array_record.*damaged"):
        len(uni.data.ArrayRecordDataset(bad))


def test_errors_of_tables_name_the_file(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(uni.errors.NotFoundError, match="nowhere"):
        list(uni.data.ParquetDataset([str(tmp_path / "nowhere")]))
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(b"no table at all" * 100)
    with pytest.raises(uni.errors.DataLossError, match=r"bad\.parquet.*damaged"):
        list(uni.data.ParquetDataset(bad))


@pytest.mark.parametrize("count", [3, 5, uni.data.INFINITE_CARDINALITY])
def test_another_number_of_elements_than_was_said_is_a_failed_precondition(count):
    made = R.apply(uni.data.experimental.assert_cardinality(count))
    with pytest.raises(uni.errors.FailedPreconditionError, match="expected to contain"):
        list(made)


def test_records_that_do_not_fill_a_file_are_an_invalid_argument(tmp_path):
    path = tmp_path / "eleven"
    path.write_bytes(bytes(11))
    for layout in [(5,), (50,), (5, 20)]:
        with pytest.raises(uni.errors.InvalidArgumentError, match="eleven"):
            list(uni.data.FixedLengthRecordDataset(path, *layout))


def test_a_number_beyond_the_datasets_is_an_invalid_argument():
    with pytest.raises(uni.errors.InvalidArgumentError, match="the number 3"):
        list(D.choose_from_datasets([R], D.range(3, 5)))


F16, F32, F64 = np.float16, np.float32, np.float64


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ([F32(1), 2.0], F32),
        ([[F32(1), 2.0], [3.0, 4.0]], F32),
        ([F64(1), 2.0], F64),
        ([2.0, F64(1)], F32),
        ([F16(1), 2.0], F16),
        ([F32(1), F64(2)], F32),
        ([np.int64(1), 2.5], F32),
        ([F32(1), 2], F32),
        ([np.ones(2, F32), np.ones(2, F64)], F32),
        ([np.ones(2, np.int64), np.ones(2, F32)], F32),
        ([np.ones(2, F64)], F64),
        ([[]], F32),
    ],
)
def test_the_first_number_of_a_list_gives_its_type(given, want):
    assert D.from_tensors(given).element_spec.dtype == want


MORE_CALLS = {
    "range": (lambda: D.range(HUGE), ValueError, "args.*64 bits"),
    "range, below": (lambda: D.range(-HUGE - 1, 0), ValueError, "args.*64 bits"),
    "range, too long": (lambda: D.range(-HUGE, HUGE - 1), ValueError, "at most 2"),
    "range, type": (lambda: D.range(3, output_type="x"), TypeError, "output_type"),
    "counter, type": (lambda: D.counter(dtype=()), TypeError, "dtype"),
    "counter, objects": (lambda: D.counter(dtype=object), TypeError, "dtype"),
    "counter": (lambda: D.counter(HUGE), ValueError, "start"),
    "batch": (lambda: R.repeat().batch(HUGE), ValueError, "batch_size.*64 bits"),
    "batch, negative": (lambda: R.batch(-1), ValueError, "batch_size"),
    "padded_batch": (lambda: R.padded_batch(HUGE), ValueError, "batch_size"),
    "rebatch": (lambda: R.batch(2).rebatch(RAGGED), TypeError, "batch_size"),
    "rebatch, huge": (lambda: R.batch(2).rebatch([HUGE]), ValueError, "batch_size"),
    "rebatch, table": (
        lambda: R.batch(2).rebatch(np.ones((2, 2), int)), TypeError, "batch_size"
    ),
    "shuffle": (lambda: R.shuffle(HUGE), ValueError, "buffer_size"),
    "shuffle, seed": (lambda: R.shuffle(3, seed=HUGE), ValueError, "seed"),
    "take": (lambda: R.take(HUGE), ValueError, "count"),
    "skip": (lambda: R.skip(HUGE), ValueError, "count"),
    "repeat": (lambda: R.repeat(HUGE), ValueError, "count"),
    "shard": (lambda: R.shard(HUGE, 0), ValueError, "num_shards"),
    "prefetch": (lambda: R.prefetch(HUGE), ValueError, "buffer_size"),
    "window": (lambda: R.window(HUGE), ValueError, "size"),
    "window, stride": (lambda: R.window(2, stride=-1), ValueError, "stride"),
    "enumerate": (lambda: R.enumerate(HUGE), ValueError, "start"),
    "interleave": (
        lambda: R.interleave(lambda x: R, cycle_length=-7), ValueError, "cycle_length"
    ),
    "interleave, many": (
        lambda: R.interleave(lambda x: R, HUGE - 1), ValueError, "cycle_length.*most"
    ),
    "counter, an array": (lambda: D.counter(dtype=np.ones(2)), TypeError, "dtype"),
    "map": (lambda: R.map(abs, HUGE), ValueError, "num_parallel_calls"),
    "reduce": (lambda: R.reduce(1.5, 3), TypeError, "reduce_func.*int"),
    "cache": (lambda: R.cache(np.arange(3)), TypeError, "filename"),
    "cache, zero bytes": (lambda: R.cache("a\0b"), ValueError, "filename.*zero"),
    "cache, long": (lambda: R.cache("x" * 240), ValueError, "filename.*bytes"),
    "ignore_errors": (lambda: R.ignore_errors("no"), TypeError, "log_warning"),
    "load": (lambda: D.load(3), TypeError, "path.*3"),
    "load, wait": (lambda: D.load("/nowhere", wait="no"), TypeError, "wait.*'no'"),
    "load, wait for 3": (lambda: D.load("/nowhere", wait=3), TypeError, "wait.*3"),
    "load, long": (lambda: D.load("x" * 300, wait=True), ValueError, "path.*255"),
    "save": (lambda: R.save(3), TypeError, "path.*3"),
    "save, zero bytes": (lambda: R.save("a\0b"), ValueError, "path.*zero"),
    "save, compression": (lambda: R.save("x", np.arange(2)), TypeError, "compression"),
    "list_files": (lambda: D.list_files("x" * 300), ValueError, "file_pattern.*255"),
    "list_files, shuffle": (lambda: D.list_files("*", "no"), TypeError, "shuffle"),
    "TextLineDataset": (
        lambda: uni.data.TextLineDataset("x" * 300), ValueError, "filenames.*255"
    ),
    "group_by_window": (
        lambda: R.group_by_window(abs, abs, window_size_func=3),
        TypeError,
        "window_size_func",
    ),
    "random": (lambda: D.random(seed=HUGE), ValueError, "seed"),
}  # fmt: skip


@pytest.mark.parametrize("name", MORE_CALLS)
def test_numbers_paths_and_types_are_refused_at_the_call_by_name(name):
    call, error, told = MORE_CALLS[name]
    with pytest.raises(error, match=told):
        call()


@pytest.mark.parametrize("method", method_arguments.METHODS)
def test_every_argument_of_every_method_is_checked_by_its_name(method):
    source = re.sub(r"\s+", " ", inspect.getsource(getattr(D, method)))
    passed = method_arguments.unchecked(method)
    assert passed <= set(method_arguments.METHODS[method])
    for name in method_arguments.METHODS[method]:
        call = rf'checks\.\w+\( ?(checks\.\w+, )?{name}, "{name}" ?\)'
        assert (re.search(call, source) is None) == (name in passed), (
            f"expected {method} to check {name} by a function of argument_checks, or "
            "tests/unit/input/method_arguments.py to say that it does not."
        )


def test_numbers_that_leave_64_bits_are_no_other_numbers():
    for dataset in (D.counter(HUGE - 2), D.range(3).enumerate(HUGE - 2)):
        assert len(list(dataset.take(2))) == 2
        for made in (dataset.take(3), dataset.take(3).batch(3)):
            with pytest.raises(ValueError, match="does not fit into 64 bits"):
                list(made)
    assert [int(x) for x in D.range(126, 130, output_type="int8")][-1] == -127
