"""Tables of words in datasets."""

import pickle

import numpy as np
import pytest

import unisono as tf


def make_table(words=("the", "cat"), default=-1):
    numbers = np.arange(len(words))
    words = tf.lookup.KeyValueTensorInitializer(list(words), numbers)
    return tf.lookup.StaticHashTable(words, default)


@pytest.mark.parametrize("threads", [None, 2])
def test_lines_become_numbers_of_words(tmp_path, threads):
    path = tmp_path / "lines.txt"
    path.write_text("The cat\n\nA CAT the\n")
    table = make_table()

    def numbers(line):
        return table.lookup(tf.strings.split(tf.strings.lower(line)))

    dataset = tf.data.TextLineDataset(path).map(numbers, threads).padded_batch(3)
    (found,) = dataset.as_numpy_iterator()
    assert found.tolist() == [[0, 1, 0], [0, 0, 0], [-1, 1, 0]]
    assert found.dtype == np.int64


def test_a_table_travels_to_other_processes():
    table = pickle.loads(pickle.dumps(make_table()))
    assert table["cat"].numpy() == 1


def test_export_gives_all_keys_and_values():
    table = make_table()
    keys, values = table.export()
    assert (keys.tolist(), values.tolist()) == ([b"the", b"cat"], [0, 1])
    assert (table.default_value.numpy(), int(table.size())) == (-1, 2)


def test_numbers_that_do_not_fit_their_type_are_refused():
    words = tf.lookup.KeyValueTensorInitializer(["a"], [1])
    with pytest.raises(OverflowError):
        tf.lookup.StaticHashTable(words, 2**40)


def test_narrow_numbers_are_found_in_a_wide_table():
    words = tf.lookup.KeyValueTensorInitializer(np.int64([5]), ["five"])
    table = tf.lookup.StaticHashTable(words, "?")
    assert table.lookup(tf.constant([5, 6])).tolist() == [b"five", b"?"]
