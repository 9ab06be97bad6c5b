"""Workers that are told to end, or are killed, go on later as if nothing had been."""

import collections
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.multiprocess import launcher as launchers

PROGRAM = pathlib.Path(__file__).with_name("preempted.py")
PHASES = ["step", "evaluation", "compilation", "input"]


def undisturbed(directory, steps, env):
    """Returns the state at the end of a run of two replicas in one process."""
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(directory), str(steps)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**env, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return results(directory, 1)[0]


def disturb(launcher, process, directory, starts, number, choose):
    """Sends a signal to the first worker, or the second, in each phase it comes to."""
    for start in range(starts):
        mark = directory / f"phase-{start}"

        def is_there(mark=mark):
            assert process.poll() is None, process.communicate()
            return mark.exists()

        launchers.wait_for(is_there, f"start {start}", 40.0)
        chief = int(mark.read_text())
        workers = launchers.marked_processes(launcher.mark)
        others = {chief, process.pid}
        siblings = [p for p in workers if p not in others and is_program(p)]
        time.sleep(choose.uniform(0.0, 0.3))
        os.kill(choose.choice([chief, *siblings]), number)


def is_program(pid):
    try:
        return b"preempted.py" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def results(directory, workers=2):
    return [json.loads((directory / f"end-{i}").read_text()) for i in range(workers)]


@pytest.mark.feature("T02", "U02")
@pytest.mark.timeout(180)
def test_workers_that_are_told_to_end_save_one_step_and_go_on(launcher, tmp_path):
    choose = random.Random(os.urandom(8))
    steps = 32
    wanted = undisturbed(tmp_path / "calm", steps, launcher.env)
    here = tmp_path / "told"
    here.mkdir()
    # Two of them at a time; each start of two workers takes some seconds.
    restarts = 2
    process = launcher.start(
        "-n", 2, "--platform", "cpu", "--restarts", restarts, PROGRAM, here, steps,
        *choose.sample(PHASES, restarts),
    )  # fmt: skip
    disturb(launcher, process, here, restarts, signal.SIGTERM, choose)
    done = launcher.finish(process, 90)
    assert done.code == 0, done.err
    assert results(here) == [wanted] * 2
    for i in range(2):
        taken = [line.split() for line in (here / f"steps-{i}").read_text().split("\n")]
        assert [int(line[1]) for line in taken if line] == list(range(1, steps + 1))
    by_start = [
        collections.Counter(line.split()[0] for line in text.splitlines())
        for text in ((here / f"steps-{i}").read_text() for i in range(2))
    ]
    # Both workers stopped after the same step, every time.
    assert by_start[0] == by_start[1]
    assert done.err.count("exit code 42") >= restarts


@pytest.mark.feature("T02", "U02")
@pytest.mark.timeout(180)
def test_workers_that_are_killed_end_where_an_undisturbed_run_does(launcher, tmp_path):
    choose = random.Random(os.urandom(8))
    steps = 30
    wanted = undisturbed(tmp_path / "calm", steps, launcher.env)
    here = tmp_path / "killed"
    here.mkdir()
    process = launcher.start(
        "-n", 2, "--platform", "cpu", "--restarts", 2, PROGRAM, here, steps,
        "step", "step",
    )  # fmt: skip
    disturb(launcher, process, here, 2, signal.SIGKILL, choose)
    done = launcher.finish(process, 90)
    assert done.code == 0, done.err
    assert results(here) == [wanted] * 2
