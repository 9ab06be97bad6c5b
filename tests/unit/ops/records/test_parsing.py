"""Functions of records give what TensorFlow has given for the same calls."""

import base64
import json
import pathlib
import re

import numpy as np
import pytest

import unisono as uni
from tests.unit.ops.records import cases

RECORDED = json.loads(
    (pathlib.Path(__file__).parent / "recorded.json").read_text(encoding="utf-8")
)
NAMES = cases.make_names(uni)
ex, seq = NAMES["ex"], NAMES["seq"]
LABEL = {"x": uni.io.FixedLenFeature([], uni.int64)}

# TensorFlow takes bytes that are no record for a record without features.
DAMAGED = re.compile(r"b'junk'|\\xff\\x7f'")


def decode(x, dtype):
    if dtype == "string":
        return x.encode("latin-1")
    return complex(*map(float, x)) if isinstance(x, list) else x


def check(found, wanted):
    """Asserts that a result is the recorded one."""
    if isinstance(wanted, dict):
        assert sorted(found) == sorted(wanted)
        for key in wanted:
            check(found[key], wanted[key])
    elif wanted and isinstance(wanted[0], str):
        dtype, shape, values = wanted
        assert list(found.shape) == shape
        array = np.array(found, object) if dtype == "string" else np.asarray(found)
        assert array.dtype == (object if dtype == "string" else uni.as_dtype(dtype))
        assert array.reshape(-1).tolist() == [decode(x, dtype) for x in values]
        assert type(found.numpy()) is (
            bytes
            if found.shape == () and dtype == "string"
            else array[()].__class__
            if found.shape == ()
            else np.ndarray
        )
    else:
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted):
            check(one, other)


@pytest.mark.parametrize("call", RECORDED["calls"])
def test_a_call_gives_what_tensorflow_gives(call):
    wanted = RECORDED["calls"][call]
    if DAMAGED.search(call) and "parse_tensor" not in call:
        wanted = {"error": "InvalidArgumentError"}
    if not isinstance(wanted, dict) or "error" not in wanted:
        check(cases.run(uni, call), wanted)
        return
    kind = (
        getattr(uni.errors, wanted["error"], None)
        or {
            "TypeError": TypeError,
            "ValueError": ValueError,
        }[wanted["error"]]
    )
    # TensorFlow says ValueError or TypeError, by the function, for what is no text.
    with pytest.raises((kind, TypeError) if "(5, " in call else kind):
        cases.run(uni, call)


def write(path, records):
    with uni.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return uni.data.TFRecordDataset(path)


def number_and_image(record):
    found = uni.io.parse_single_example(
        record,
        {
            "image": uni.io.FixedLenFeature([], uni.string),
            "label": uni.io.FixedLenFeature([], uni.int64),
        },
    )
    return uni.io.decode_raw(found["image"], uni.uint8), found["label"]


def test_a_dataset_of_records_gives_batches_of_numpy_arrays(tmp_path):
    records = [ex(image=[bytes([i] * 4)], label=[2**40 + i]) for i in range(5)]
    dataset = write(tmp_path / "records", records).map(number_and_image).batch(2)
    image, label = next(iter(dataset))
    assert image.dtype == np.uint8 and image.tolist() == [[0] * 4, [1] * 4]
    assert label.dtype == np.int64 and label.tolist() == [2**40, 2**40 + 1]
    assert [len(label) for _, label in dataset] == [2, 2, 1]


def test_a_batch_of_records_is_parsed_at_once(tmp_path):
    dataset = write(tmp_path / "records", [ex(x=[i] * i or None) for i in range(5)])
    wanted = {"x": uni.io.VarLenFeature(uni.int64)}

    def parse(records):
        return uni.sparse.to_dense(uni.io.parse_example(records, wanted)["x"])

    found = [x.tolist() for x in dataset.batch(3).map(parse)]
    assert found == [[[0, 0], [1, 0], [2, 2]], [[3, 3, 3, 0], [4, 4, 4, 4]]]


def test_a_dataset_of_examples_continues_where_it_stopped(tmp_path):
    records = [ex(image=[b"ab"], label=[i]) for i in range(6)]
    dataset = write(tmp_path / "records", records).map(number_and_image, 2)
    iterator = iter(dataset)
    assert [int(next(iterator)[1]) for _ in range(3)] == [0, 1, 2]
    other = iter(dataset)
    other.set_state(iterator.get_state())
    assert [int(label) for _, label in other] == [3, 4, 5]


def test_a_file_without_records_is_a_dataset_without_elements(tmp_path):
    assert list(write(tmp_path / "records", []).map(number_and_image).batch(2)) == []


def test_an_element_of_a_dataset_is_parsed_outside_of_it():
    dataset = uni.data.Dataset.from_tensor_slices([ex(x=[1]), ex(x=[2])])
    one, both = next(iter(dataset)), next(iter(dataset.batch(2)))
    assert uni.io.parse_single_example(one, LABEL)["x"] == 1
    assert uni.io.parse_example(both, LABEL)["x"].tolist() == [1, 2]
    assert uni.io.decode_raw(both[:1], uni.uint8).tolist() == [list(ex(x=[1]))]


def test_a_text_equals_a_str_in_the_function_of_a_dataset():
    wanted = {"x": uni.io.FixedLenFeature([], uni.string)}

    def parse(record):
        found = uni.io.parse_single_example(record, wanted)["x"]
        again = uni.io.parse_tensor(uni.io.serialize_tensor(found), uni.string)
        return found, found == "cat", again != "cat", found + ".jpg"

    dataset = uni.data.Dataset.from_tensors(ex(x=[b"cat"])).map(parse)
    text, is_cat, is_other, name = next(iter(dataset))
    assert (text.numpy(), name.numpy()) == (b"cat", b"cat.jpg")
    assert is_cat and not is_other


@pytest.mark.parametrize(
    ("record", "feature", "text"),
    [
        (ex(), LABEL["x"], "'x' .data type: int64. is required but could not be found"),
        (ex(x=[b"a"]), LABEL["x"], "'x': .* has string, and int64 was asked for"),
        (ex(x=[1, 2]), LABEL["x"], r"'x': .* has 2, and shape \(\) needs 1"),
        (
            ex(x=[1, 2, 3]),
            uni.io.FixedLenSequenceFeature([2], uni.int64, True),
            "'x': .* has 3, which is no multiple of the 2",
        ),
        (b"junk", LABEL["x"], "the record of 4 bytes is damaged"),
    ],
)
def test_an_error_says_which_record_and_feature_is_wrong(record, feature, text):
    wrong = uni.errors.InvalidArgumentError
    with pytest.raises(wrong, match=f"parse_single_example: .*{text}"):
        uni.io.parse_single_example(record, {"x": feature})
    good = ex(x=[1, 2]) if "multiple" in text else ex(x=[1])
    with pytest.raises(wrong, match=f"parse_example, record 1 of the batch: .*{text}"):
        uni.io.parse_example([good, record], {"x": feature})
    with pytest.raises(wrong, match=r"record 1 of the batch \('second'\): "):
        uni.io.parse_example([good, record], {"x": feature}, ["first", "second"])


@pytest.mark.parametrize(
    "call",
    [
        lambda record: uni.io.parse_single_example(record, LABEL)["x"],
        lambda record: uni.io.parse_example([record], LABEL)["x"],
        lambda record: uni.io.decode_raw(record, uni.uint8),
        lambda record: uni.io.parse_tensor(record, uni.uint8),
    ],
)
def test_a_compiled_function_says_to_parse_in_the_dataset(call):
    with pytest.raises(TypeError, match=r"dataset\.map"):
        uni.function(call)(ex(x=[1]))
    with pytest.raises(TypeError, match=r"dataset\.map"):
        uni.function(call)(uni.constant([1, 2]))
    with pytest.raises(TypeError, match="must be bytes"):
        call(uni.constant([1, 2]))


def test_a_damaged_record_is_an_error_and_no_crash():
    random = np.random.default_rng(0)
    whole = ex(x=[1, 2], y=[b"text"], z=[0.5]) + seq({"x": [1, 2]}, y=[[1.0]])
    wanted = {
        "x": uni.io.FixedLenFeature([2], uni.int64, [0, 0]),
        "y": uni.io.VarLenFeature(uni.string),
        "z": uni.io.FixedLenSequenceFeature([], uni.float32, True),
    }
    steps = {"y": uni.io.VarLenFeature(uni.float32)}
    context = {"x": wanted["x"]}
    refused = 0
    for _ in range(2000):
        record = bytearray(whole[: random.integers(len(whole) + 1)])
        for _ in range(random.integers(4)):
            if record:
                record[random.integers(len(record))] = random.integers(256)
        for read in (
            lambda record: uni.io.parse_example([record], wanted),
            lambda record: uni.io.parse_single_example(record, wanted),
            lambda record: uni.io.parse_single_sequence_example(record, context, steps),
        ):
            try:
                read(bytes(record))
            except uni.errors.InvalidArgumentError:
                refused += 1
    assert refused > 1000


def test_one_long_list_does_not_make_a_batch_of_any_size():
    long = ex(x=[0] * 1_000_000)
    with pytest.raises(uni.errors.InvalidArgumentError, match="far longer"):
        uni.io.parse_example(
            [long] + [ex()] * 999, {"x": uni.io.VarLenFeature("int64")}
        )


def test_files_that_tensorflow_has_written_are_read(tmp_path):
    wanted = {**LABEL, "y": uni.io.FixedLenFeature([], uni.string)}
    for kind, content in RECORDED["files"].items():
        path = tmp_path / f"records{kind}"
        path.write_bytes(base64.b64decode(content))
        dataset = uni.data.TFRecordDataset(path, compression_type=kind)
        found = list(dataset.map(lambda r: uni.io.parse_single_example(r, wanted)))
        assert [int(one["x"]) for one in found] == [1, -2]
        assert [one["y"].numpy() for one in found] == [b"one", b"two" * 20]


def test_records_of_no_sequences_give_empty_arrays():
    context, lists, lengths = uni.io.parse_sequence_example(
        np.array([], object),
        LABEL,
        {"y": uni.io.FixedLenSequenceFeature([3], uni.float32)},
    )
    assert context["x"].shape == (0,)
    assert lists["y"].shape == (0, 0, 3)
    assert lengths["y"].shape == (0,)


def test_a_feature_that_is_made_for_every_record_keeps_its_own_default():
    for default in (0.0, -0.0, 1, 1.0, True):
        try:
            feature = uni.io.FixedLenFeature([], uni.float32, default)
        except TypeError:
            assert default is True
            continue
        found = uni.io.parse_single_example(ex(), {"x": feature})["x"]
        assert np.signbit(found) == np.signbit(default) and found == default
    assert uni.io.parse_single_example(
        ex(), {"x": uni.io.FixedLenFeature([], "int64", 1)}
    )
    with pytest.raises(TypeError, match=r"default_value 1\.0"):
        uni.io.FixedLenFeature([], uni.int64, 1.0)


def test_features_without_values_make_batches_without_values():
    wanted = {"x": uni.io.FixedLenFeature([2, 0], uni.int64)}
    nothing = uni.train.Feature(int64_list=uni.train.Int64List())
    features = uni.train.Features(feature={"x": nothing})
    record = uni.train.Example(features=features).SerializeToString()
    assert uni.io.parse_example([record, record], wanted)["x"].shape == (2, 2, 0)


def test_features_have_tensorflows_order():
    # Recorded from TensorFlow 2.21: lists first, and then by name.
    wanted = {
        "width": uni.io.FixedLenFeature([], uni.float32, 1.0),
        "tags": uni.io.VarLenFeature(uni.int64),
        "height": uni.io.FixedLenFeature([], uni.float32, 2.0),
        "b": uni.io.VarLenFeature(uni.int64),
        "seq": uni.io.FixedLenSequenceFeature([], uni.int64, allow_missing=True),
        "a": uni.io.FixedLenFeature([], uni.float32, 3.0),
    }
    order = ["b", "tags", "a", "height", "seq", "width"]
    record = uni.train.Example().SerializeToString()
    assert list(uni.io.parse_single_example(record, wanted)) == order
    assert list(uni.io.parse_example([record], wanted)) == order
    dataset = uni.data.Dataset.from_tensors(record)
    parsed = dataset.map(lambda r: uni.io.parse_single_example(r, wanted))
    assert list(parsed.element_spec) == order
    context = {name: wanted[name] for name in ("width", "tags", "a")}
    lists = {name: wanted[name] for name in ("tags", "seq", "b")}
    record = uni.train.SequenceExample().SerializeToString()
    names = [["tags", "a", "width"], ["b", "tags", "seq"], ["seq"]]
    batch = uni.io.parse_sequence_example([record], context, lists)
    assert [list(part) for part in batch] == names
    one = uni.io.parse_single_sequence_example(record, context, lists)
    assert [list(part) for part in one] == names[:2]
