"""`unisono.launch` runs a function as several workers and returns their results."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import unisono as uni
from tests.multiprocess import calls, launcher as launchers

pytestmark = pytest.mark.feature("U02")

CALLS = "tests.multiprocess.calls"


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch, tmp_path):
    """Fails if a call leaves a process, a descriptor or a temporary file."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    mark = f"mark-{os.getpid()}-{id(directory)}"
    monkeypatch.setenv(launchers.MARK, mark)
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    monkeypatch.delenv("TF_CONFIG", raising=False)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    yield
    launchers.wait_for(lambda: not launchers.marked_processes(mark), "workers' end", 5)
    assert list(directory.iterdir()) == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_every_worker_s_result_comes_back_in_order():
    results = uni.launch(f"{CALLS}:echo", 3, (1, "x"), {"y": {"a": [None, 2.5]}})
    assert results == [[i, [1, "x"], {"y": {"a": [None, 2.5]}}] for i in range(3)]


def test_a_function_may_be_in_a_file_or_in_a_class():
    assert uni.launch(f"{calls.__file__}:echo", 1) == [[0, [], {}]]
    assert uni.launch(f"{CALLS}:Inner.method", 2, (5,)) == [5, 6]


def test_output_is_shown_with_the_worker_s_name(capfd):
    assert uni.launch(f"{CALLS}:say", 1, ("hello",)) == [None]
    shown = capfd.readouterr()
    assert shown.out == shown.err == "[worker 0/1] hello\n"


def test_output_may_be_hidden_or_go_to_files(capfd, tmp_path):
    uni.launch(f"{CALLS}:say", 2, ("hello",), quiet=True)
    uni.launch(f"{CALLS}:say", 2, ("hello",), output_dir=tmp_path / "logs")
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "logs" / "worker-1.log").read_text() == "hello\nhello\n"


def test_the_first_error_is_raised_with_its_traceback():
    start = time.monotonic()
    with pytest.raises(
        uni.errors.LaunchError, match=r"worker 1/2 failed first.*KeyError"
    ) as e:
        uni.launch(f"{CALLS}:fail_on", 2, (1, 60), quiet=True, grace_seconds=0.1)
    assert time.monotonic() - start < 20
    assert (e.value.worker, e.value.exit_code) == (1, 1)
    assert "in fail_on" in e.value.worker_traceback
    assert "child.py" not in e.value.worker_traceback


def test_an_exit_is_a_failure_whatever_its_code():
    with pytest.raises(uni.errors.LaunchError, match="exit code 5") as e:
        uni.launch(f"{CALLS}:leave_with", 1, (5,), quiet=True)
    assert e.value.exit_code == 5
    with pytest.raises(
        uni.errors.LaunchError, match=r"\[0, 1\] ended with exit code 0 before"
    ):
        uni.launch(f"{CALLS}:leave_with", 2, (0,), quiet=True)


def test_a_result_that_is_no_json_is_the_worker_s_error():
    with pytest.raises(
        uni.errors.LaunchError, match=r"TypeError: .*not JSON serializable"
    ):
        uni.launch(f"{CALLS}:make_object", 1, quiet=True)


def test_a_function_that_is_not_there_is_the_worker_s_error():
    with pytest.raises(uni.errors.LaunchError, match=r"AttributeError: .*'nothing'"):
        uni.launch(f"{CALLS}:nothing", 1, quiet=True)
    with pytest.raises(uni.errors.LaunchError, match="ModuleNotFoundError"):
        uni.launch("absent_module:f", 1, quiet=True)


def test_a_failed_group_is_started_anew():
    assert uni.launch(f"{CALLS}:fail_until", 2, (1,), restarts=2, quiet=True) == [1, 1]
    with pytest.raises(uni.errors.LaunchError, match="too early"):
        uni.launch(f"{CALLS}:fail_until", 2, (2,), restarts=1, quiet=True)


def test_a_call_that_takes_too_long_is_stopped():
    start = time.monotonic()
    with pytest.raises(uni.errors.LaunchError, match="did not end in time") as e:
        uni.launch(f"{CALLS}:sleep", 2, (60,), timeout_seconds=0.5, quiet=True)
    assert time.monotonic() - start < 15
    assert (e.value.worker, e.value.exit_code) == (None, 124)


def test_a_thread_can_launch_as_well():
    found = []
    thread = threading.Thread(
        target=lambda: found.extend(uni.launch(f"{CALLS}:echo", 1))
    )
    thread.start()
    thread.join()
    assert found == [[0, [], {}]]


def test_handlers_of_the_program_are_put_back():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    uni.launch(f"{CALLS}:echo", 1)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_workers_and_then_the_program(tmp_path, number):
    note = tmp_path / "note"
    code = f"""
import unisono
try:
    unisono.launch({CALLS + ":sleep"!r}, 1, (60, {str(note)!r}), quiet=True)
except KeyboardInterrupt:
    print("interrupted")
"""
    path = os.pathsep.join([launchers.SOURCE, os.getcwd()])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    launchers.wait_for(note.exists, "the worker")
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert (out, process.returncode) == ("interrupted\n", 0)
    else:
        assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((calls.echo,), TypeError, "Name the function as 'module:function'"),
        (("echo",), ValueError, "Expected 'module:function'"),
        (("__main__:echo",), ValueError, "it cannot be in __main__"),
        (("a b:echo",), ValueError, "Expected 'module:function'"),
        ((f"{CALLS}:echo", 0), ValueError, "n must be 1 to 1024 workers, received 0"),
        ((f"{CALLS}:echo", 10**9), ValueError, "n must be 1 to 1024 workers"),
        ((f"{CALLS}:echo", 1, (object(),)), TypeError, "travel to workers as JSON"),
    ],
)
def test_what_cannot_be_launched_is_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        uni.launch(*arguments)


def test_options_are_checked_at_once():
    with pytest.raises(ValueError, match="platform must be one of 'auto', 'cpu'"):
        uni.launch(f"{CALLS}:echo", platform="npu")
    with pytest.raises(ValueError, match="1 to 1024 devices, received 0"):
        uni.launch(f"{CALLS}:echo", devices=0)
