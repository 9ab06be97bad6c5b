import pathlib

import numpy as np
import pytest

import unisono as tf


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = str(tmp_path / "new" / "folder" / "file")
    tf.io.write_file(path, b"one\0two")
    assert tf.io.read_file(path).numpy() == b"one\0two"
    tf.io.write_file(pathlib.Path(path), "text")
    assert tf.io.read_file(np.array(path.encode(), object)).numpy() == b"text"


def test_a_missing_file_is_an_error_with_its_path(tmp_path):
    path = str(tmp_path / "none.jpg")
    with pytest.raises(tf.errors.NotFoundError, match=r"none\.jpg"):
        tf.io.read_file(path)
    data = tf.data.Dataset.from_tensor_slices([path]).map(tf.io.read_file)
    with pytest.raises(tf.errors.NotFoundError, match=r"none\.jpg"):
        list(data)


def test_what_is_no_path_is_refused():
    with pytest.raises(TypeError, match="must be one string"):
        tf.io.read_file([b"one", b"two"])
    with pytest.raises(TypeError, match="must be one string"):
        tf.io.read_file(3)
