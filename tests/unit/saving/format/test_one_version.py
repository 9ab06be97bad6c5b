"""What is read comes from one version, however often a writer replaces it.

`UNISONO_STRESS_READS` and `UNISONO_STRESS_WRITES` set how much the two long tests do at
least; the defaults take a few seconds.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from unisono._src.saving.format import one_version
from unisono.train import Checkpoint, CheckpointManager, latest_checkpoint

READS = int(os.environ.get("UNISONO_STRESS_READS", "20"))
WRITES = int(os.environ.get("UNISONO_STRESS_WRITES", "6"))

# Writes versions of one path, in which every number is the version's, until a file
# "stop" appears; the file "count" has the number of versions written so far.
WRITER = """
import itertools, pathlib, sys
import jax.numpy as jnp
import unisono as uni

kind, where = sys.argv[1], pathlib.Path(sys.argv[2])
module = uni.Module()
module.a = uni.Variable(jnp.zeros((300, 300)))
module.b = uni.Variable(0.0)
scalar = uni.TensorSpec([], "float32")
for n in itertools.count(1):
    module.a.assign(jnp.full((300, 300), float(n)))
    module.b.assign(float(n))
    if kind == "model":
        module.f = uni.function(lambda x: x + n, input_signature=[scalar])
        uni.saved_model.save(module, where / "it")
    elif kind == "write":
        uni.train.Checkpoint(a=module.a, b=module.b, n=n).write(where / "it")
    else:
        if n == 1:
            checkpoint = uni.train.Checkpoint(a=module.a, b=module.b)
            manager = uni.train.CheckpointManager(checkpoint, where, max_to_keep=1)
        manager.save()
    (where / "new").write_text(str(n))
    (where / "new").replace(where / "count")
    if (where / "stop").exists():
        break
"""


class Writer:
    """A process that replaces a checkpoint or a model all the time."""

    def __init__(self, kind, where):
        self.where = pathlib.Path(where)
        self._process = subprocess.Popen(
            [sys.executable, "-c", WRITER, kind, str(where)], env=dict(os.environ)
        )

    @property
    def count(self):
        try:
            return int((self.where / "count").read_text())
        except FileNotFoundError:
            return 0

    def __enter__(self):
        while not self.count:
            assert self._process.poll() is None, "the writer has failed"
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        (self.where / "stop").touch()
        assert self._process.wait() == 0

    def read_often(self, read):
        """Calls `read` until there were enough reads and enough writes."""
        first, reads = self.count, 0
        found = set()
        while reads < READS or self.count - first < WRITES:
            found.add(read())
            reads += 1
        print(f"{reads} reads during {self.count - first} writes")
        assert len(found) > 1, "no read has met a new version"


def read_checkpoint(path):
    a, b = uni.Variable(jnp.zeros((300, 300))), uni.Variable(0.0)
    checkpoint = Checkpoint(a=a, b=b, n=0)
    checkpoint.read(path).assert_consumed()
    found = {*np.unique(a.numpy()).tolist(), float(b.numpy()), float(checkpoint.n)}
    assert len(found) == 1, f"expected one version, received a mixture of {found}"
    return found.pop()


def read_model(path):
    loaded: Any = uni.saved_model.load(path)
    found = {*np.unique(loaded.a.numpy()).tolist(), float(loaded.b.numpy())}
    found.add(float(loaded.f(0.0)))
    assert len(found) == 1, f"expected one version, received a mixture of {found}"
    return found.pop()


def check_nothing_is_left(directory):
    # A version that was being read at the last write is removed by the next one.
    Checkpoint(n=1).write(directory / "other")
    assert not list(directory.glob(".unisono-*"))


def test_checkpoints_that_are_being_replaced_are_never_mixed(tmp_path):
    with Writer("write", tmp_path) as writer:
        writer.read_often(lambda: read_checkpoint(tmp_path / "it"))
    check_nothing_is_left(tmp_path)


def test_models_that_are_being_replaced_are_never_mixed(tmp_path):
    with Writer("model", tmp_path) as writer:
        writer.read_often(lambda: read_model(tmp_path / "it"))
    check_nothing_is_left(tmp_path)


def test_the_latest_checkpoint_is_found_while_a_manager_removes_old_ones(tmp_path):
    # Warnings are errors: nothing may be called damaged.
    with Writer("manager", tmp_path) as writer:

        def read():
            found = latest_checkpoint(tmp_path)
            assert found is not None, "expected a checkpoint, there always is one"
            return found

        writer.read_often(read)


@pytest.fixture
def written(tmp_path):
    v = uni.Variable(1.0)
    path = tmp_path / "it"
    Checkpoint(v=v).write(path)
    return v, path


def test_a_version_that_is_read_outlives_its_replacement(written):
    v, path = written
    version = one_version.Version(path)
    v.assign(2.0)
    Checkpoint(v=v).write(path)
    assert not version.is_current
    assert (version.path / "capsule.json").is_file()
    hidden = list(path.parent.glob(".unisono-*"))
    assert len(hidden) == 1
    version.close()
    Checkpoint(v=v).write(path)
    assert not list(path.parent.glob(".unisono-*"))


def test_a_version_that_is_removed_by_force_is_read_again(written):
    v, path = written
    calls = []

    def get(where):
        calls.append(where)
        if len(calls) == 1:
            shutil.rmtree(path)
            v.assign(5.0)
            Checkpoint(v=v).write(path)
        return (where / "capsule.json").read_bytes()

    assert one_version.read(path, get) == (path / "capsule.json").read_bytes()
    assert len(calls) == 2


def test_without_names_for_open_files_nothing_is_mixed_either(written, monkeypatch):
    v, path = written
    monkeypatch.setattr(one_version, "_OPEN_FILES", path / "nowhere")
    calls = []

    def get(where):
        assert where == path
        calls.append((where / "capsule.json").read_bytes())
        if len(calls) == 1:
            v.assign(5.0)
            Checkpoint(v=v).write(path)
        return calls[-1]

    assert one_version.read(path, get) == (path / "capsule.json").read_bytes()
    assert len(calls) == 2


def test_messages_name_the_directory_that_was_given(written):
    _, path = written
    (path / "capsule.json").write_bytes(b"nonsense")
    with pytest.raises(uni.errors.DataLossError, match=str(path / "capsule.json")):
        Checkpoint(v=uni.Variable(0.0)).read(path)


def test_a_reader_waits_for_the_second_of_two_renames(written, monkeypatch):
    """Some file systems cannot exchange two names in one step."""
    _, path = written
    hidden = path.with_name(f".unisono-0123456789ab-{path.name}")
    path.rename(hidden)
    monkeypatch.setattr(time, "sleep", lambda _: hidden.rename(path))
    v = uni.Variable(0.0)
    Checkpoint(v=v).read(path)
    assert float(v.numpy()) == 1.0


# Two jobs.

OTHER_JOB = """
import sys
import unisono as uni

checkpoint = uni.train.Checkpoint(v=uni.Variable(2.0))
print(checkpoint.save(sys.argv[1]))
"""


def save_in_another_process(prefix):
    command = [sys.executable, "-c", OTHER_JOB, str(prefix)]
    subprocess.run(command, check=True, capture_output=True)


def test_a_second_job_that_saves_into_the_directory_is_refused(tmp_path):
    manager = CheckpointManager(Checkpoint(v=uni.Variable(1.0)), tmp_path, 2)
    manager.save()
    save_in_another_process(tmp_path / "ckpt")
    with pytest.raises(uni.errors.SaveError, match=r"another job has saved .*ckpt-1"):
        manager.save()
    assert uni.train.load_variable(
        tmp_path / "ckpt-1", "v/.ATTRIBUTES/VARIABLE_VALUE"
    ) == np.float32(2.0)


def test_a_job_that_restores_the_others_checkpoint_goes_on_from_it(tmp_path):
    v = uni.Variable(1.0)
    manager = CheckpointManager(Checkpoint(v=v), tmp_path, 2)
    save_in_another_process(tmp_path / "ckpt")
    manager.restore_or_initialize()
    assert float(v.numpy()) == 2.0
    assert manager.save().endswith("ckpt-2")


def test_jobs_may_save_under_different_names_in_one_directory(tmp_path):
    save_in_another_process(tmp_path / "other")
    assert Checkpoint(v=uni.Variable(1.0)).save(tmp_path / "own").endswith("own-1")
