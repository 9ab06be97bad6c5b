"""Checkpoints are read by key, without objects to restore."""

import os
import pathlib
import shutil

import numpy as np
import pytest

import unisono
import unisono as tf
from unisono import train

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


def _checkpoint():
    return train.Checkpoint(v=unisono.Variable(1.0))


def test_a_directory_tells_its_checkpoints(tmp_path):
    assert train.get_checkpoint_state(tmp_path) is None
    assert train.get_checkpoint_state(tmp_path / "missing") is None
    manager = train.CheckpointManager(_checkpoint(), tmp_path, max_to_keep=2)
    for _ in range(3):
        manager.save()
    state = train.get_checkpoint_state(str(tmp_path))
    assert state.model_checkpoint_path == manager.latest_checkpoint
    assert list(state.all_model_checkpoint_paths) == list(manager.checkpoints)
    first, second = state.all_model_checkpoint_timestamps
    assert first < second


def test_the_latest_is_one_that_is_whole(tmp_path):
    paths = [_checkpoint().save(tmp_path / name) for name in ("a", "b")]
    (pathlib.Path(paths[1]) / "manifest.json").write_text("{}")
    with pytest.warns(UserWarning, match="passed over"):
        assert train.get_checkpoint_state(tmp_path).model_checkpoint_path == paths[0]


def test_new_checkpoints_are_given_once_and_the_latest_only(tmp_path):
    checkpoint, seen = _checkpoint(), []
    saved = [checkpoint.save(tmp_path / "ckpt") for _ in range(2)]
    for path in train.checkpoints_iterator(tmp_path, timeout=0):
        seen.append(path)
        if len(seen) == 1:
            saved += [checkpoint.save(tmp_path / "ckpt") for _ in range(2)]
    assert seen == [saved[1], saved[3]]


def test_a_function_decides_whether_to_go_on_waiting(tmp_path):
    checkpoint, answers = _checkpoint(), []

    def is_over():
        answers.append(len(answers))
        if len(answers) == 2:
            checkpoint.save(tmp_path / "ckpt")
        return len(answers) == 4

    found = train.checkpoints_iterator(tmp_path, timeout=0, timeout_fn=is_over)
    # Nothing twice, then a checkpoint, then nothing.
    assert [path.rpartition("/")[2] for path in found] == ["ckpt-1"]
    assert len(answers) == 4


def test_a_checkpoint_that_is_removed_is_not_given_again(tmp_path):
    checkpoint = _checkpoint()
    first, second = (checkpoint.save(tmp_path / "ckpt") for _ in range(2))
    found = train.checkpoints_iterator(tmp_path, timeout=0)
    assert next(found) == second
    shutil.rmtree(second)
    # As in TensorFlow, the latest is another one now.
    assert next(found) == first
    assert next(found, None) is None
