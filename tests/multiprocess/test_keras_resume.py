"""A Keras `fit` that is killed, alone or as one of several workers, ends as a calm one.

``UNISONO_KILLS=10`` kills more often.
"""

import json
import os
import pathlib
import random
import runpy
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import unisono
from tests.integration.conftest import quick_programs  # noqa: F401
from unisono._src.saving.format import checksummed_files

keras = pytest.importorskip("keras")

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "multi_worker_keras.py"
PROGRAM = pathlib.Path(__file__).with_name("keras_training.py")
KILLS = int(os.environ.get("UNISONO_KILLS", "2"))
EPOCHS = 2 + KILLS // 3
BATCHES = 12


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Lets all runs share compiled programs."""
    return os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }


def start(directory, how, environment):
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(directory), how, str(EPOCHS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process):
    """Waits for the end and returns the state."""
    out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


def kill_after(process, steps, seconds):
    """Kills a run some time after so many of its steps."""
    lines = [process.stdout.readline() for _ in range(steps)]
    timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
    timer.start()
    _, err = process.communicate(timeout=100)
    timer.cancel()
    timer.join()
    assert lines == ["running\n"] * steps, err[-3000:]
    return process.returncode


@pytest.mark.feature("V01")
@pytest.mark.timeout(120 + 15 * KILLS)
@pytest.mark.parametrize("how", ["arrays", "dataset"] if KILLS > 2 else ["arrays"])
def test_a_fit_killed_at_random_moments_ends_where_a_calm_one_does(
    tmp_path, environment, how
):
    choose = random.Random(os.urandom(8))
    calm = start(tmp_path / "calm", how, environment)
    killed, codes, backups = tmp_path / "killed", [], []
    for _ in range(KILLS):
        # By its third step each run has made a backup, and may be making the next.
        process = start(killed, how, environment)
        steps, seconds = choose.randint(3, 5), choose.uniform(0.0, 0.1)
        codes.append(kill_after(process, steps, seconds))
        found = [
            checksummed_files.read_verified(p).header.number or 0
            for p in killed.glob("backup-*")
        ]
        backups.append(max(found))
    assert codes == [-signal.SIGKILL] * KILLS
    assert backups == sorted(set(backups)), "each run goes on where the last one was"
    wanted = finish(calm)
    assert wanted["steps"] == EPOCHS * BATCHES
    assert finish(start(killed, how, environment)) == wanted
    assert not (tmp_path / "calm").exists()
    assert not killed.exists()


@pytest.mark.feature("V01", "U02")
def test_workers_of_which_one_fails_end_as_one_process_does(
    launcher, environment, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    given = ["--directory", tmp_path, "--images", 600, "--epochs", 2, "--fail-at", 12]
    kept = {k: v for k, v in environment.items() if k.startswith("JAX")}
    process = launcher.start(
        "-n", 2, "--platform", "cpu", "--restarts", 1, EXAMPLE, *given, env=kept
    )  # fmt: skip
    example = runpy.run_path(str(EXAMPLE))
    x, y = example["load_digits"](600)
    data = unisono.data.Dataset.from_tensor_slices((x[:-200], y[:-200]))
    data = data.shuffle(1000, seed=1).batch(2 * example["BATCH_PER_WORKER"])
    with unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = example["make_model"]()
    model.fit(data, epochs=2, verbose=0)

    done = launcher.finish(process, 100)
    assert done.code == 0, done.err
    assert "worker 1 fails now" in done.out
    assert "restart 1 of 1" in done.err
    assert "steps 14" in done.out
    # It failed in the second epoch, which went on.
    assert done.out.count("Epoch 1/2") == 1
    assert done.out.count("Epoch 2/2") == 2
    found = keras.saving.load_model(tmp_path / "unisono_digits" / "digits.keras")
    for one, two in zip(found.get_weights(), model.get_weights()):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
