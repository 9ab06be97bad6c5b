"""Runs that are killed, while they train and while they save, end as undisturbed ones.

``UNISONO_KILLS=50`` kills more often.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading

import pytest

import unisono as uni
from unisono._src.saving.format import checksummed_files

PROGRAM = pathlib.Path(__file__).with_name("training.py")
KILLS = int(os.environ.get("UNISONO_KILLS", "2"))
STEPS = 40 + 6 * KILLS


def start(directory, replicas, optimizer):
    return subprocess.Popen(
        [
            sys.executable,
            str(PROGRAM),
            str(directory),
            str(replicas),
            str(STEPS),
            optimizer,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(directory, replicas, optimizer):
    """Runs to the end and returns the state."""
    process = start(directory, replicas, optimizer)
    out, err = process.communicate(timeout=250 + 5 * KILLS)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def kill_within(directory, replicas, optimizer, seconds):
    """Starts a run and kills it some time after its first step."""
    process = start(directory, replicas, optimizer)
    line = process.stdout.readline()
    timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
    timer.start()
    _, err = process.communicate(timeout=250)
    timer.cancel()
    timer.join()
    assert line == "running\n", err[-3000:]
    return process.returncode


def check_all_readable(directory):
    visible = [p for p in directory.iterdir() if p.name.startswith("ckpt-")]
    for path in visible:
        checksummed_files.read_verified(path)
    return visible


@pytest.mark.timeout(500 + 15 * KILLS)  # A save takes seconds on a busy machine.
@pytest.mark.parametrize(
    ("optimizer", "counts"), [("exact", [2, 1, 4, 8]), ("adam", [2])]
)
def test_a_run_killed_at_random_moments_ends_where_an_undisturbed_one_does(
    tmp_path, optimizer, counts
):
    choose = random.Random(os.urandom(8))
    undisturbed = finish(tmp_path / "calm", counts[0], optimizer)
    assert undisturbed["steps"] == undisturbed["iterations"] == STEPS
    killed = tmp_path / "killed"
    killed.mkdir()
    codes = []
    for i in range(KILLS):
        replicas = counts[i % len(counts)]
        codes.append(
            kill_within(killed, replicas, optimizer, choose.uniform(0.0, 0.15))
        )
        check_all_readable(killed)
    assert -signal.SIGKILL in codes
    assert finish(killed, counts[0], optimizer) == undisturbed
    assert len(check_all_readable(killed)) == 3
    assert uni.train.latest_checkpoint(killed).endswith(f"ckpt-{STEPS // 2}")


def test_the_end_of_a_program_waits_for_a_background_save(tmp_path):
    code = f"""
import jax.numpy as jnp, unisono as uni
v = uni.Variable(jnp.arange(1000.0))
options = uni.train.CheckpointOptions(enable_async=True)
uni.train.Checkpoint(v=v).save({str(tmp_path)!r} + "/c", options=options)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    v = uni.Variable([0.0] * 1000)
    found = uni.train.latest_checkpoint(tmp_path)
    uni.train.Checkpoint(v=v).restore(found).assert_consumed()
    assert v.numpy()[-1] == 999.0


def test_a_save_that_fails_at_the_end_of_a_program_is_seen(tmp_path):
    code = f"""
import unisono as uni
from unisono._src.saving.checkpoint import array_io
def fail(*_):
    raise OSError(28, "No space left on device")
array_io.write = fail
options = uni.train.CheckpointOptions(enable_async=True)
checkpoint = uni.train.Checkpoint(v=uni.Variable(1.0))
checkpoint.save({str(tmp_path)!r} + "/c", options=options)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100
    )
    assert "SaveError" in done.stderr
    assert "No space left on device" in done.stderr
