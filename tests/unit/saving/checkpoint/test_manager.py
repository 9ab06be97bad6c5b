"""`CheckpointManager`: which checkpoints of a directory it sees and removes."""

import gc
import os

import pytest

import unisono as uni
from tests.parity.programs import plain
from unisono.train import Checkpoint, CheckpointManager


def make(directory, variable, name="ckpt", most=2):
    return CheckpointManager(
        Checkpoint(v=variable), directory, max_to_keep=most, checkpoint_name=name
    )


def names(manager):
    return [os.path.basename(path) for path in manager.checkpoints]


def save(manager, variable, *values):
    for value in values:
        variable.assign(value)
        manager.save()


def test_training_goes_on_from_checkpoints_of_another_name(tmp_path):
    v = uni.Variable(0.0)
    save(make(tmp_path, v, "old"), v, 1.0, 2.0)
    v.assign(0.0)
    manager = make(tmp_path, v, "new")
    assert manager.restore_or_initialize() == str(tmp_path / "old-2")
    assert plain(v) == 2.0
    save(manager, v, 3.0, 4.0, 5.0)
    # Only those of its own name are removed.
    assert names(manager) == ["old-1", "old-2", "new-4", "new-5"]
    # The newest counts, not the name: back under the first one.
    again = make(tmp_path, v, "old")
    assert again.restore_or_initialize() == str(tmp_path / "new-5")


def test_what_the_program_saves_without_a_manager_is_seen_too(tmp_path):
    v = uni.Variable(1.0)
    path = Checkpoint(v=v).save(tmp_path / "mine")
    Checkpoint(v=v).write(tmp_path / "written-7")
    manager = make(tmp_path, v)
    assert manager.latest_checkpoint == path
    assert names(manager) == ["mine-1"]


def test_two_managers_of_one_directory_keep_apart_what_they_save(tmp_path):
    v = uni.Variable(0.0)
    latest, best = make(tmp_path, v, "latest"), make(tmp_path, v, "best")
    save(best, v, 1.0)
    save(latest, v, 2.0, 3.0, 4.0)
    assert names(latest) == ["latest-2", "latest-3"]
    assert best.latest_checkpoint == str(tmp_path / "best-1")
    assert names(best) == ["best-1"]


@pytest.mark.parametrize("is_header", [True, False])
def test_damaged_checkpoints_of_another_name_do_not_begin_anew(tmp_path, is_header):
    v = uni.Variable(0.0)
    save(make(tmp_path, v, "old"), v, 1.0)
    Checkpoint(v=v).write(tmp_path / "written-7")
    found = sorted(p for p in (tmp_path / "old-1").rglob("*") if p.is_file())
    for path in found:
        if (path.parent == tmp_path / "old-1") == is_header:
            path.write_bytes(b"?")
    with (
        pytest.warns(UserWarning, match="passed over"),
        pytest.raises(uni.errors.DataLossError, match=r"\['old-1'\]"),
    ):
        make(tmp_path, v, "new").restore_or_initialize()


def test_a_directory_with_nothing_but_what_write_made_is_begun_in(tmp_path):
    v = uni.Variable(0.0)
    Checkpoint(v=v).write(tmp_path / "ckpt-7")
    assert make(tmp_path, v).restore_or_initialize() is None


def test_saves_leave_no_objects_behind(tmp_path):
    manager = make(tmp_path, uni.Variable([1.0]))

    def count():
        gc.collect()
        return sum(type(x) in (list, dict) for x in gc.get_objects())

    for _ in range(3):
        manager.save()
    before = count()
    for _ in range(10):
        manager.save()
    assert count() < before + 10
