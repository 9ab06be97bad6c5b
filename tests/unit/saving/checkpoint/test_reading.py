"""Checkpoints are read by key, without objects to restore."""

import os

import numpy as np
import pytest

import unisono as tf

KEY = "v/.ATTRIBUTES/VARIABLE_VALUE"


def test_a_reader_has_the_values_shapes_and_types_of_a_checkpoint(tmp_path):
    v = tf.Variable([[1.0, 2.0]])
    tf.train.Checkpoint(v=v, epoch=3).save(str(tmp_path / "ckpt"))
    v.assign([[3.0, 4.0]])
    tf.train.Checkpoint(v=v, epoch=4).save(str(tmp_path / "ckpt"))
    reader = tf.train.load_checkpoint(tmp_path)  # The latest one.
    assert reader.has_tensor(KEY) and not reader.has_tensor("w")
    assert reader.get_tensor(KEY).tolist() == [[3.0, 4.0]]
    assert reader.get_tensor("epoch/.ATTRIBUTES/PYTHON_VALUE") == 4
    shapes, types = (
        reader.get_variable_to_shape_map(),
        reader.get_variable_to_dtype_map(),
    )
    assert shapes[KEY] == [1, 2] and types[KEY] == np.float32
    assert (
        shapes.keys()
        == types.keys()
        == {n for n, _ in tf.train.list_variables(tmp_path)}
    )
    assert f"{KEY} (float32) [1, 2]\n".encode() in reader.debug_string()
    with pytest.raises(tf.errors.NotFoundError, match="Key w not found"):
        reader.get_tensor("w")


def test_the_latest_weights_of_keras_are_found_where_no_checkpoint_is(tmp_path):
    assert tf.train.latest_checkpoint(tmp_path / "none") is None
    for number in (9, 10):
        file = tmp_path / f"cp-{number}.weights.h5"
        file.touch()
        os.utime(file, (1, 1))
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(file)
    os.utime(tmp_path / "cp-9.weights.h5", (2, 2))
    assert tf.train.latest_checkpoint(tmp_path).endswith("cp-9.weights.h5")
    saved = tf.train.Checkpoint(v=tf.Variable(1.0)).save(str(tmp_path / "ckpt"))
    assert tf.train.latest_checkpoint(tmp_path) == saved


def test_a_reader_needs_a_checkpoint(tmp_path):
    with pytest.raises(tf.errors.NotFoundError):
        tf.train.load_checkpoint(tmp_path / "none")


def test_the_names_of_version_1_read_the_same(tmp_path):
    v1 = tf.compat.v1
    path = v1.train.Checkpoint(v=tf.Variable(5.0)).save(str(tmp_path / "ckpt"))
    assert v1.train.NewCheckpointReader(path).get_tensor(KEY) == 5
    assert v1.train.latest_checkpoint(tmp_path) == path
    iterator = v1.data.make_one_shot_iterator(v1.data.Dataset.range(2))
    assert [int(iterator.get_next()) for _ in range(2)] == [0, 1]
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()
