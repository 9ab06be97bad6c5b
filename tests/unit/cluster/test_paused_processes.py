"""A process that is stopped is found, counted, and killed in the end."""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from unisono._src.cluster import paused_processes

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/stat").exists(), reason="there is no /proc"
)
ATTACH, DETACH = 16, 17


def wait_for(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def sleeper(tmp_path):
    # The name of a program stands before its state, and may look like one.
    program = tmp_path / "a) T (b"
    shutil.copy(shutil.which("sleep"), program)
    process = subprocess.Popen([program, "60"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_stopped_until_it_is_continued(sleeper):
    wait_for(lambda: paused_processes.read_state(sleeper.pid) == "S")
    sleeper.send_signal(signal.SIGSTOP)
    wait_for(lambda: paused_processes.read_state(sleeper.pid) == "T")
    sleeper.send_signal(signal.SIGCONT)
    wait_for(lambda: paused_processes.read_state(sleeper.pid) == "S")
    sleeper.kill()
    wait_for(lambda: paused_processes.read_state(sleeper.pid) == "Z")
    sleeper.wait()
    assert paused_processes.read_state(sleeper.pid) == ""


def test_a_process_that_a_debugger_holds_is_not_stopped(sleeper):
    libc = ctypes.CDLL(None)
    if libc.ptrace(ATTACH, sleeper.pid, None, None):
        pytest.skip("this system lets no process trace another")
    try:
        os.waitpid(sleeper.pid, os.WUNTRACED)
        assert paused_processes.read_state(sleeper.pid) == "t"
        watch = paused_processes.PauseWatch(sleeper.pid)
        assert not watch.look(0.0) and not watch.is_paused
    finally:
        libc.ptrace(DETACH, sleeper.pid, None, None)


def test_the_time_in_which_nobody_looked_does_not_count(monkeypatch):
    states = iter("STTTTSTZ")
    monkeypatch.setattr(paused_processes, "read_state", lambda pid: next(states))
    watch = paused_processes.PauseWatch(1)
    found = []
    # Between 0.5 and 100 s the one that looks was itself stopped.
    for now in (0.0, 0.2, 0.5, 100.0, 100.5, 101.0, 102.0, 103.0):
        found.append((watch.look(now), watch.is_paused, round(watch.seconds, 3)))
    assert found == [
        (False, False, 0.0),
        (True, True, 0.0),
        (False, True, 0.3),
        (False, True, 1.3),
        (False, True, 1.8),
        (True, False, 0.0),
        (True, True, 0.0),
        # It was killed, and did not go on.
        (False, True, 0.0),
    ]


def test_a_process_that_watches_itself_is_killed_when_it_stays_stopped():
    # Without the package's `__init__`, which imports JAX.
    program = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(pathlib.Path(paused_processes.__file__).parent)!r})\n"
        "import paused_processes\n"
        "paused_processes.watch_this_process(0.5)\n"
        "print('ready')\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
        watcher = pathlib.Path(f"/proc/{int(children.read_text())}")
        process.send_signal(signal.SIGSTOP)
        assert process.wait(30) == -signal.SIGKILL
        wait_for(lambda: not watcher.exists())
        assert "was stopped for 0.5 s, as by SIGSTOP" in process.stderr.read()


@pytest.mark.parametrize("text", ["-1", "x", "inf", "nan"])
def test_a_limit_that_is_no_time_is_refused(text, monkeypatch):
    monkeypatch.setenv(paused_processes.VARIABLE, text)
    with pytest.raises(ValueError, match="is a number of seconds, or 0 for never"):
        paused_processes.limit_seconds()
    assert paused_processes.limit_seconds(3) == 3.0
