"""Text in functions of datasets, eagerly, and in compiled steps."""

from typing import Any

import numpy as np
import pytest

import unisono as tf

PATHS = ["data/cat/1.jpg", "data/dog/2.jpg"]


def run(fn, texts):
    """Returns the results of a function of each text of a dataset."""
    dataset = tf.data.Dataset.from_tensor_slices(texts)
    return list(dataset.map(fn).as_numpy_iterator())


@pytest.mark.parametrize("names", [np.array(["cat", "dog"]), ["cat", "dog"]])
def test_a_folder_becomes_a_label_as_in_tensorflows_guides(names):
    def label(path):
        return tf.argmax(tf.strings.split(path, "/")[-2] == names)

    assert run(label, PATHS) == [0, 1]
    assert run(lambda p: names == tf.strings.split(p, "/")[-2], PATHS)[1].tolist() == [
        False,
        True,
    ]


def test_a_text_of_a_dataset_equals_a_str():
    found = run(lambda s: (s == "é", s != "é", tf.equal(s, "é"), s + "!"), ["é", "b"])
    assert found == [(True, False, True, "é!".encode()), (False, True, False, b"b!")]


def test_texts_of_digits_stay_texts():
    for made in run(lambda s: tf.stack([s, "3", tf.constant([s])[0]]), ["12"]):
        assert made.tolist() == [b"12", b"3", b"12"]
    assert tf.stack([tf.constant(["1"])[0], "2"]).tolist() == [b"1", b"2"]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda x: tf.gather(x, [1, 1]), [b"b", b"b"]),
        (lambda x: tf.concat([x, ["c"]], 0), [b"a", b"b", b"c"]),
        (lambda x: tf.reshape(x, [2, 1]), [[b"a"], [b"b"]]),
        (lambda x: tf.where(x == "a", x, "?"), [b"a", b"?"]),
        (lambda x: tf.not_equal(x, ["a", "c"]), [False, True]),
        (lambda x: tf.shape(x), [2]),
        (lambda x: tf.zeros([1], tf.string), [b""]),
        (lambda x: tf.constant([], tf.string), []),
    ],
)
def test_everyday_names_take_text_eagerly_and_in_datasets(call, wanted):
    assert call(tf.constant(["a", "b"])).tolist() == wanted
    dataset = tf.data.Dataset.from_tensors(["a", "b"]).map(call)
    assert next(dataset.as_numpy_iterator()).tolist() == wanted


def test_a_constant_text_has_tensorflows_members():
    text: Any = tf.constant("a")
    assert (text.numpy(), text.shape, text.dtype) == (b"a", (), tf.string)
    part: Any = tf.constant(["a"])[0]
    assert (part.numpy(), part.shape, part.dtype) == (b"a", (), tf.string)
    assert part.get_shape() == tf.TensorShape(())


def test_python_functions_take_text():
    def decode(text):
        return text.numpy().decode() + "!"

    assert run(lambda s: tf.py_function(decode, [s], tf.string), ["a"]) == [b"a!"]
    found = run(lambda s: tf.numpy_function(len, [s], tf.int32), ["12", ""])
    assert found == [2, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, _: tf.strings.as_string(x),
        lambda x, table: table.lookup(x),
        lambda x, _: tf.strings.to_number(x),
    ],
)
def test_a_compiled_step_is_told_to_do_it_in_the_dataset(call):
    words = tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4])
    table = tf.lookup.StaticHashTable(words, -1)
    step = tf.function(lambda x: call(x, table))
    with pytest.raises(TypeError, match=r"compiled step has no text.*dataset.map"):
        step(tf.constant([3]))


def test_text_is_refused_where_numbers_are_needed():
    for text in ("a", b"a", ["a"], np.array(["a"]), tf.constant(["12"])):
        with pytest.raises((TypeError, ValueError)):
            tf.add(text, 1)
    with pytest.raises(TypeError, match="takes text"):
        tf.strings.lower(tf.constant([1]))


def test_expressions_that_only_python_has_are_refused():
    for pattern in (r"(a)\1", "a(?=b)", r"\pL", r"a\Z", "(?i)é", "[[:nothing:]]"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid pattern"):
            tf.strings.regex_replace("a", pattern, "")
    with pytest.raises(tf.errors.InvalidArgumentError, match="UTF-8"):
        tf.strings.regex_replace(b"\xff", "a", "")
