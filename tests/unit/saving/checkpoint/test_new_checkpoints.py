"""A program beside the one that trains finds its checkpoints."""

import pathlib
import shutil

import pytest

import unisono
from unisono import train


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
