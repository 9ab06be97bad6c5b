import itertools
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests import machine
from unisono import errors
from unisono._src.saving.checkpoint import part_restore
from unisono._src.saving.format import part_files

pytestmark = pytest.mark.needs_devices(4)

# So large that it is restored part after part.
SHAPE = (512, 1024)


def make(count=4, seed=0, **options):
    """Returns a strategy's variables of different splits, with other numbers."""
    strategy = tf.distribute.MirroredStrategy(
        machine.names(count), state="sharded", **options
    )
    rng = np.random.default_rng(seed)
    with strategy.scope():
        return [
            tf.Variable(rng.normal(size=SHAPE).astype("f4"), name="rows"),
            tf.Variable(rng.normal(size=SHAPE[::-1]).astype("f4"), name="columns"),
            # Three devices have all parts of it twice, or one has.
            tf.Variable(rng.normal(size=(6, 1 << 17)).astype("f4"), name="groups"),
            tf.Variable(rng.normal(size=3).astype("f4"), name="small"),
        ]


def save(directory, values):
    return tf.train.Checkpoint(values=values).write(str(directory / "c"))


def read(values):
    return [v.numpy() for v in values]


def check_same(found, wanted):
    for x, y in zip(found, wanted, strict=True):
        assert np.array_equal(x, y)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_parts_are_restored_on_another_number_of_devices(tmp_path, count):
    old = make()
    path, new = save(tmp_path, old), make(count, seed=1)
    tf.train.Checkpoint(values=new).read(path).assert_consumed()
    check_same(read(new), read(old))


@pytest.fixture(params=["memory", "file"])
def kept_in(request, monkeypatch):
    """Old parts are kept in memory, or all in a file."""
    if request.param == "file":
        monkeypatch.setattr(part_restore, "_IN_MEMORY_BYTES", 0)


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_read_that_fails_changes_nothing(tmp_path, monkeypatch, kept_in, at):
    path, new = save(tmp_path, make()), make(seed=1)
    before, count = read(new), itertools.count()
    right = part_files.read

    def fail(*given):
        if next(count) == at:
            raise errors.DataLossError("The disk is gone.")
        return right(*given)

    monkeypatch.setattr(part_files, "read", fail)
    checkpoint = tf.train.Checkpoint(values=new)
    with pytest.raises(errors.DataLossError, match="The disk is gone"):
        checkpoint.read(path)
    check_same(read(new), before)
    monkeypatch.setattr(part_files, "read", right)
    checkpoint.read(path).assert_consumed()
    check_same(read(new), read(make()))


def test_an_object_that_refuses_its_state_changes_no_part(tmp_path, kept_in):
    class Fussy:
        is_fine = True

        def get_state(self):
            return {"a": 1}

        def set_state(self, state):
            if not self.is_fine:
                raise ValueError("not this one")

    old, fussy = make(), Fussy()
    path = tf.train.Checkpoint(values=old, fussy=fussy).write(str(tmp_path / "c"))
    new = make(seed=1)
    before = read(new)
    fussy.is_fine = False
    with pytest.raises(ValueError, match="not this one"):
        tf.train.Checkpoint(values=new, fussy=fussy).read(path)
    check_same(read(new), before)


def test_an_array_that_somebody_holds_stays_as_it_was(tmp_path, kept_in):
    path, new = save(tmp_path, make()), make(seed=1)
    held = new[0].value()
    stored = new[0].state_cell.array
    before = np.asarray(held)
    tf.train.Checkpoint(values=new).read(path).assert_consumed()
    assert np.array_equal(np.asarray(held), before)
    assert not stored.is_deleted() and np.array_equal(np.asarray(stored), before)


def test_a_step_after_a_restore_updates_the_new_values(tmp_path):
    path, new = save(tmp_path, make()), make(seed=1)
    wanted = read(make())

    @tf.function
    def step():
        new[0].assign_add(jnp.ones(SHAPE))

    step()
    tf.train.Checkpoint(values=new).read(path).assert_consumed()
    step()
    assert np.allclose(new[0].numpy(), wanted[0] + 1.0)
    assert isinstance(new[0].state_cell.array, jax.Array)


# Prints by how many megabytes a restore of four parts of 33.6 MB grew the process.
CHILD = """
import ctypes, pathlib, sys
import unisono as tf
tf.config.set_virtual_devices(4)
import jax.numpy as jnp
import numpy as np

def status(name):
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.partition(name + ":")[2].split()[0]) / 1024

names = [f"CPU:{i}" for i in range(4)]
with tf.distribute.MirroredStrategy(names, state="sharded").scope():
    new = tf.Variable(lambda: jnp.zeros((4096, 8192)))
new.state_cell.array.block_until_ready()
# What is loaded on first use, and what has been freed, is not to be counted.
small = tf.train.Checkpoint(v=tf.Variable(1.0))
small.read(small.write(sys.argv[1] + "-small"))
ctypes.CDLL(None).malloc_trim(0)
pathlib.Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS")
tf.train.Checkpoint(v=new).read(sys.argv[1]).assert_consumed()
print(status("VmHWM") - before)
numbers = np.arange(4096 * 8192, dtype="f4").reshape(4096, 8192)
parts = new.state_cell.array.addressable_shards
assert all(np.array_equal(s.data, numbers[s.index]) for s in parts)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/clear_refs").exists(), reason="Linux")
def test_a_restore_of_one_large_chunk_takes_two_parts_and_a_little(tmp_path):
    numbers = np.arange(4096 * 8192, dtype="f4").reshape(4096, 8192)
    with tf.distribute.MirroredStrategy(machine.names(1)).scope():
        path = tf.train.Checkpoint(v=tf.Variable(numbers)).write(tmp_path / "c")
    command = [sys.executable, "-c", CHILD, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # One part that is read, one that is kept in memory, and what threads keep.
    assert float(done.stdout) < 2 * 33.6 + 25
