"""What a worker has left behind is found and ended, trackers last."""

import os
import subprocess
import sys
import time
import uuid

import pytest

from unisono._src.cli.launch import process_cleanup
from unisono._src.cluster import launcher_pipes

pytestmark = pytest.mark.skipif(
    not os.path.isdir("/proc/self"), reason="processes are found in /proc"
)


def start(mark, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", *arguments],
        env={**os.environ, process_cleanup.MARK: mark},
        start_new_session=True,
    )


def test_processes_are_found_by_their_mark_in_any_session():
    mark = uuid.uuid4().hex
    mine, other = start(mark), start(mark + "x")
    # Until then its environment is that of this process.
    while mine.pid not in process_cleanup._find(None, mark)[0]:
        time.sleep(0.01)
    process_cleanup.clear(None, mark)
    assert mine.wait(10) == -9
    assert other.poll() is None
    other.kill()
    other.wait()


def test_a_tracker_is_left_to_end_by_itself(monkeypatch):
    mark = uuid.uuid4().hex
    tracker = start(mark, "multiprocessing.resource_tracker")
    while tracker.pid not in process_cleanup._find(None, mark)[1]:
        time.sleep(0.01)
    process_cleanup.kill(None, mark)
    assert tracker.poll() is None
    monkeypatch.setattr(process_cleanup, "_KILL_SECONDS", 0.1)
    monkeypatch.setattr(process_cleanup, "_TRACKER_SECONDS", 0.1)
    process_cleanup.clear(None, mark)
    assert tracker.wait(10) == -9


def test_workers_and_launcher_mean_the_same_mark():
    assert process_cleanup.MARK == launcher_pipes.MARK
