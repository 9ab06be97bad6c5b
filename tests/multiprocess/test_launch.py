"""``unisono launch`` with real processes: success, failures of every kind, signals."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from textwrap import dedent

import pytest

from tests.multiprocess import launcher as launchers

pytestmark = pytest.mark.feature("U02")


def test_workers_get_a_cluster_of_loopback_addresses(launcher):
    script = launcher.script("print(json.dumps([CONFIG, sys.argv[1:], RESTART]))")
    result = launcher.run("-n", 3, script, "--lr", "0.1", "-n", "x")
    assert (result.code, result.err) == (0, "")
    lines = sorted(result.out.splitlines())
    assert [line[:12] for line in lines] == [f"[worker {i}/3]" for i in range(3)]
    configs = []
    for index, line in enumerate(lines):
        config, arguments, restart = json.loads(line[13:])
        assert config["task"] == {"type": "worker", "index": index}
        assert (arguments, restart) == (["--lr", "0.1", "-n", "x"], 0)
        configs.append(config["cluster"])
    assert configs[0] == configs[1] == configs[2]
    addresses = configs[0]["worker"]
    assert len(set(addresses)) == 3
    assert all(a.startswith("127.0.0.1:") for a in addresses)
    assert all(map(launchers.can_bind, addresses))


def test_those_that_serve_a_chief_end_with_it_and_may_be_killed(launcher):
    script = launcher.script(
        """
        kind = CONFIG["task"]["type"]
        (HERE / f"{kind}-{INDEX}").write_text("")
        if kind == "worker" and INDEX == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if kind != "chief":
            sleep()
        while len(list(HERE.glob("*-*"))) < 4:
            time.sleep(0.01)
        time.sleep(0.2)
        print("done")
        """
    )
    result = launcher.run("-n", 2, "--ps", 1, script)
    assert (result.code, result.out) == (0, "[chief 0/1] done\n")
    assert "unisono: worker 1/2 ended with signal SIGKILL; the others go on." in (
        result.err
    )


def test_a_chief_a_server_and_a_worker_write_to_a_file_each(launcher):
    script = launcher.script(
        """
        kind = CONFIG["task"]["type"]
        print("here is", kind, flush=True)
        (HERE / kind).write_text("")
        if kind != "chief":
            sleep()
        while len(list(HERE.iterdir())) < 3:
            time.sleep(0.01)
        """
    )
    logs = launcher.directory / "logs"
    result = launcher.run("-n", 1, "--ps", 1, "-o", logs, script)
    assert (result.code, result.out) == (0, "")
    assert {path.name: path.read_text() for path in logs.iterdir()} == {
        f"{kind}-0.log": f"here is {kind}\n" for kind in ("chief", "ps", "worker")
    }


def test_the_loss_of_the_last_worker_is_a_failure(launcher):
    script = launcher.script(
        """
        if CONFIG["task"]["type"] == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(100)
        """
    )
    result = launcher.run("-n", 1, "--ps", 1, "--grace", 0.2, script)
    assert result.code == 128 + signal.SIGKILL
    assert "the others go on" not in result.err
    assert "worker 0/1 failed first, with signal SIGKILL" in result.err


def test_an_error_of_one_that_serves_is_a_failure(launcher):
    script = launcher.script(
        """
        if CONFIG["task"]["type"] == "ps":
            raise ValueError("no such file")
        sleep()
        """
    )
    result = launcher.run("-n", 1, "--ps", 1, "--grace", 0.2, script)
    assert result.code == 1
    assert "ps 0/1 failed first, with exit code 1" in result.err
    assert "ValueError: no such file" in result.err


def test_the_first_failing_worker_s_code_and_traceback_are_given(launcher):
    script = launcher.script(
        """
        meet("up")
        if INDEX == 1:
            try:
                1 / 0
            except ZeroDivisionError as error:
                raise ValueError("the cause") from error
        sleep()
        """
    )
    result = launcher.run("-n", 3, "--grace", 0.2, script)
    assert result.code == 1
    report = result.err[result.err.index("failed first") :]
    assert re.match(
        r"failed first, with exit code 1:\nTraceback .*ZeroDivisionError.*direct cause"
        r".*ValueError: the cause\nunisono: worker [02]/3 was stopped, with signal "
        r"SIGTERM\.\nunisono: worker [02]/3 was stopped",
        report,
        re.DOTALL,
    ), result.err
    assert "unisono: worker 1/3 failed first" in result.err
    assert result.err.count("ValueError: the cause") == 1


def test_a_worker_that_fails_because_of_a_peer_is_not_the_first(launcher):
    script = launcher.script(
        """
        meet("up")
        class WorkerError(RuntimeError): pass
        WorkerError.__module__ = "unisono.errors"
        if INDEX == 0:
            raise WorkerError("worker 1 failed")
        time.sleep(0.5)
        print("unrelated", file=sys.stderr)
        raise KeyError("mine")
        """
    )
    result = launcher.run("-n", 2, script)
    first, second = (
        result.err.index("KeyError: 'mine'"),
        result.err.index("WorkerError"),
    )
    assert "unisono: worker 1/2 failed first" in result.err
    assert first < second
    assert "[worker 0/2] unisono.errors.WorkerError: worker 1 failed" in result.err


def test_a_slow_end_does_not_hide_who_failed_first(launcher):
    script = launcher.script(
        """
        import atexit
        meet("up")
        if INDEX == 0:
            atexit.register(time.sleep, 1.5)
            raise ValueError("early")
        time.sleep(0.4)
        raise ValueError("late")
        """
    )
    result = launcher.run("-n", 2, script)
    assert "unisono: worker 0/2 failed first, with exit code 1:" in result.err
    report = result.err[result.err.index("failed first") :]
    assert report.index("early") < report.index("late")


def test_a_worker_that_raised_and_does_not_end_is_the_first(launcher):
    script = launcher.script(
        """
        import atexit
        class WorkerError(RuntimeError): pass
        WorkerError.__module__ = "unisono.errors"
        meet("up")
        if INDEX == 1:
            atexit.register(sleep)
            raise ValueError("mine")
        time.sleep(0.2)
        raise WorkerError("worker 1 failed")
        """
    )
    result = launcher.run("-n", 2, "--grace", 0.2, script)
    assert "unisono: worker 1/2 failed first, with signal SIGTERM:" in result.err
    report = result.err[result.err.index("failed first") :]
    assert report.index("ValueError: mine") < report.index(
        "WorkerError: worker 1 failed"
    )


def test_a_worker_that_is_stopped_long_after_a_traceback_is_not_the_first(launcher):
    script = launcher.script(
        """
        import traceback
        meet("up")
        if INDEX == 0:
            try:
                1 / 0
            except ZeroDivisionError:
                traceback.print_exc()
            print("goes on")
            sleep()
        time.sleep(0.2)
        raise ValueError("mine")
        """
    )
    result = launcher.run("-n", 2, "--grace", 0.2, script)
    assert "unisono: worker 1/2 failed first, with exit code 1:" in result.err


def test_a_worker_that_aborts_for_a_peer_does_not_hide_who_raised(launcher):
    script = launcher.script(
        """
        import atexit, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        meet("up")
        if INDEX == 1:
            atexit.register(lambda: (time.sleep(1.5), os.abort()))
            raise ValueError("mine")
        time.sleep(0.4)
        os.abort()
        """
    )
    result = launcher.run("-n", 2, "--min", 1, "--restarts", 1, script)
    assert result.code == 128 + signal.SIGABRT
    assert (
        result.err.count("unisono: worker 1/2 failed first, with signal SIGABRT:") == 2
    )
    # Neither is lost: the group keeps its size.
    assert "restart 1 of 1, with 2 worker(s)" in result.err


def test_an_exit_code_of_the_program_s_own_is_passed_on(launcher):
    result = launcher.run("-n", 2, launcher.script("sys.exit(7 if INDEX else 0)"))
    assert result.code == 7
    assert "worker 1/2 failed first, with exit code 7 and no traceback" in result.err


def test_a_killed_worker_ends_the_others(launcher):
    script = launcher.script(
        """
        signal.signal(signal.SIGTERM, lambda *_: (print("asked to end"), sys.exit(0)))
        meet("up")
        sleep()
        """
    )
    process = launcher.start("-n", 2, "--grace", 0.2, script)
    os.kill(launcher.pids("up", 2)[1], signal.SIGKILL)
    result = launcher.finish(process)
    assert result.code == 128 + signal.SIGKILL
    assert "worker 1/2 failed first, with signal SIGKILL and no traceback" in result.err
    assert "[worker 0/2] asked to end" in result.out


def test_the_others_are_told_at_once_who_has_ended_and_how(launcher):
    script = launcher.script(
        """
        meet("up")
        if INDEX == 1:
            raise ValueError("mine")
        if INDEX == 2:
            sys.exit(0)
        pipe = os.fdopen(int(os.environ["UNISONO_NEWS_FD"].partition(":")[0]))
        for line in (pipe.readline(), pipe.readline()):
            told = json.loads(line)
            print(told["job"], told["index"], told["how"], told["said"][-16:])
        """
    )
    result = launcher.run("-n", 3, script)
    assert sorted(result.out.splitlines()) == [
        "[worker 0/3] worker 1 exit code 1 ValueError: mine",
        "[worker 0/3] worker 2 exit code 0 ",
    ]


@pytest.mark.parametrize(
    ("states", "ends_by_itself"),
    [([], False), (["listens"], True), (["listens", "noticed"], False)],
)
def test_a_worker_that_computes_gets_time_until_it_has_noticed(
    launcher, states, ends_by_itself
):
    script = launcher.script(
        f"""
        for state in {states!r}:
            line = json.dumps({{"state": state}}) + chr(10)
            os.write(int(os.environ["UNISONO_PROGRESS_FD"]), line.encode())
        meet("up")
        time.sleep(0.5)
        if INDEX == 1:
            sys.exit(3)
        time.sleep(5.0)
        print("by itself")
        """
    )
    result = launcher.run("-n", 2, "--grace", 0.1, "--stop", 60, script)
    assert result.code == 3
    assert ("by itself" in result.out) is ends_by_itself


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_reaches_every_worker(launcher, number):
    script = launcher.script(
        """
        def leave(number, _):
            print("got", signal.Signals(number).name)
            sys.exit(3)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, leave)
        meet("up")
        sleep()
        """
    )
    process = launcher.start("-n", 2, "--restarts", 3, script)
    launcher.pids("up", 2)
    process.send_signal(number)
    result = launcher.finish(process)
    name = signal.Signals(number).name
    assert sorted(result.out.splitlines()) == [
        f"[worker {i}/2] got {name}" for i in range(2)
    ]
    assert result.code == 3  # And no restart: it was told to end.
    assert f"{name} handed to worker 0/2, worker 1/2" in result.err


def test_keyboard_interrupt_runs_the_workers_finally_clauses(launcher):
    script = launcher.script(
        """
        try:
            meet("up")
            sleep()
        finally:
            print("saved")
        """
    )
    process = launcher.start("-n", 2, script)
    launcher.pids("up", 2)
    process.send_signal(signal.SIGINT)
    result = launcher.finish(process)
    assert result.out.count("saved") == 2
    assert result.code == 128 + signal.SIGINT
    assert "KeyboardInterrupt" in result.err


def test_other_signals_are_handed_on_and_end_nothing(launcher):
    script = launcher.script(
        """
        noted = []
        signal.signal(signal.SIGUSR1, lambda *_: noted.append(print("noted")))
        meet("up")
        while not noted:
            time.sleep(0.01)
        """
    )
    process = launcher.start("-n", 2, script)
    launcher.pids("up", 2)
    process.send_signal(signal.SIGUSR1)
    result = launcher.finish(process)
    assert (result.code, result.out.count("noted")) == (0, 2)


def test_a_worker_that_ignores_sigterm_is_killed_in_time(launcher):
    script = launcher.script(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        meet("up")
        sleep()
        """
    )
    process = launcher.start("-n", 2, "--stop", 0.3, script)
    launcher.pids("up", 2)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    result = launcher.finish(process)
    assert time.monotonic() - start < 5
    assert result.code == 128 + signal.SIGKILL
    assert "worker 0/2, worker 1/2 did not end in time" in result.err


def test_a_second_interrupt_kills_at_once(launcher):
    script = launcher.script(
        """
        signal.signal(signal.SIGINT, lambda *_: print("not yet"))
        meet("up")
        while True:
            sleep()
        """
    )
    process = launcher.start("-n", 1, script)
    launcher.pids("up", 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    result = launcher.finish(process, seconds=10)
    assert result.code == 128 + signal.SIGKILL
    assert "SIGINT once more" in result.err


def test_a_stopped_worker_is_ended_too(launcher):
    script = launcher.script(
        """
        meet("up")
        if INDEX == 1:
            raise SystemExit(4)
        os.kill(os.getpid(), signal.SIGSTOP)
        """
    )
    result = launcher.run("-n", 2, "--grace", 0.2, "--stop", 0.2, script)
    assert result.code == 4


def test_what_workers_started_ends_with_them(launcher):
    script = launcher.script(
        """
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        meet("up")
        sys.exit(1 if INDEX else 0)
        """
    )
    assert launcher.run("-n", 2, script).code == 1


def test_workers_do_not_outlive_a_launcher_that_is_killed(launcher):
    process = launcher.start("-n", 2, launcher.script('meet("up"); sleep()'))
    launcher.pids("up", 2)
    process.send_signal(signal.SIGKILL)
    launcher.finish(process)


WITH_LOADERS = """
    import multiprocessing, subprocess
    if __name__ == "__main__":
        signal.signal(signal.SIGTERM, {action})
        spawn = multiprocessing.get_context("spawn")
        locks = [spawn.Lock() for _ in range(5)]
        (HERE / f"locks-{{INDEX}}").write_text(" ".join(x._semlock.name for x in locks))
        for _ in range(2):
            spawn.Process(target=time.sleep, args=(60,), daemon=True).start()
        subprocess.Popen(["sleep", "60"])
        subprocess.Popen(["sleep", "60"], start_new_session=True)
        meet("up")
        while True:
            time.sleep(1)
"""


@pytest.mark.parametrize(
    ("action", "signals"),
    [
        ("signal.SIG_DFL", [signal.SIGTERM]),
        ("signal.SIG_IGN", [signal.SIGTERM, signal.SIGTERM, signal.SIGTERM]),
        ("signal.SIG_DFL", [signal.SIGKILL]),
    ],
    ids=["terminated", "terminated again", "killed"],
)
def test_loaders_and_semaphores_end_with_the_launcher(launcher, action, signals):
    process = launcher.start(
        "-n", 2, launcher.script(WITH_LOADERS.format(action=action))
    )
    launcher.pids("up", 2)
    names = [(launcher.scratch / f"locks-{i}").read_text().split() for i in range(2)]
    files = [f"/dev/shm/sem.{n[1:]}" for pair in names for n in pair]
    assert len(files) == 10 and all(map(os.path.exists, files))
    for number in signals:
        process.send_signal(number)
        time.sleep(0.2)
    result = launcher.finish(process)
    last = -signals[-1] if signals == [signal.SIGKILL] else 128 + signal.SIGTERM
    assert result.code in (last, 128 + signal.SIGKILL)
    launchers.wait_for(lambda: not any(map(os.path.exists, files)), "semaphores")
    # The fixture sees that no process is left, not even in a session of its own.


def test_a_closed_output_is_told(launcher):
    command = [sys.executable, "-c", launchers.MAIN, "launch", launcher.script("")]
    closed = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command],
        env=launcher.env,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert closed.returncode == 2
    assert "unisono: standard output is closed" in closed.stderr


def test_workers_end_when_nobody_reads_their_output(launcher):
    script = launcher.script(
        """
        meet("up")
        while True:
            print("more")
        """
    )
    process = launcher.start("-n", 2, script)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=30) != 0
    process.stderr.close()


def test_a_launcher_that_cannot_write_its_files_leaves_nothing(launcher):
    logs = launcher.directory / "logs"
    logs.mkdir()
    (logs / "worker-1.log").mkdir()
    script = launcher.script('meet("up"); print("x"); sleep()')
    result = launcher.run("-n", 2, "-o", logs, script)
    assert result.code == 2
    assert "Is a directory" in result.err


def test_a_signal_while_workers_start_ends_them(launcher):
    script = launcher.script('(HERE / f"up-{INDEX}").write_text("1"); sleep()')
    process = launcher.start("-n", 8, script)
    launchers.wait_for(lambda: list(launcher.scratch.iterdir()), "the first worker")
    process.send_signal(signal.SIGTERM)
    assert launcher.finish(process).code == 128 + signal.SIGTERM


def test_the_command_line_is_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "unisono", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "launch" in done.stdout
    assert "Usage: unisono" in done.stdout


def test_a_program_that_cannot_start_is_told(launcher):
    result = launcher.run("-n", 2, "absent.py")
    assert (result.code, result.err) == (
        2,
        "unisono: there is no program 'absent.py'.\n",
    )


def test_an_option_that_is_none_is_told(launcher):
    result = launcher.run("-n", 2, "--device", 3, launcher.script(""))
    assert result.code == 2
    assert "No such option" in result.err and "--devices" in result.err


def test_a_module_can_be_launched(launcher):
    launcher.script("print('as', __name__, sys.argv[1:])", "job.py")
    result = launcher.run("-n", 1, "-m", "job", "-m", "x")
    assert result.out == "[worker 0/1] as __main__ ['-m', 'x']\n"


def test_a_failed_group_is_started_anew_as_a_whole(launcher):
    script = launcher.script(
        """
        meet(f"start{RESTART}")
        port = CONFIG["cluster"]["worker"][INDEX]
        (HERE / f"port{RESTART}-{INDEX}").write_text(port)
        if RESTART < 2 and INDEX == RESTART:
            raise ValueError(f"start {RESTART}")
        if RESTART < 2:
            sleep()
        print("done")
        """
    )
    result = launcher.run("-n", 2, "--grace", 0.1, "--restarts", 3, script)
    assert result.code == 0
    assert result.out.count("done") == 2
    assert "restart 1 of 3, with 2 worker(s)" in result.err
    assert "restart 3 of 3" not in result.err
    pids = [launcher.pids(f"start{r}", 2) for r in range(3)]
    assert len({p for pair in pids for p in pair}) == 6


def test_after_the_last_restart_the_code_is_the_last_failure_s(launcher):
    result = launcher.run(
        "-n", 2, "--restarts", 1, launcher.script("sys.exit(10 + RESTART)")
    )
    assert result.code == 11
    assert result.err.count("failed first") == 2


def test_a_group_goes_on_without_a_worker_that_was_lost(launcher):
    script = launcher.script(
        """
        meet(f"up{RESTART}")
        if RESTART == 0 and INDEX == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if RESTART == 1 and INDEX == 0:
            raise ValueError("an exception is no loss")
        if RESTART == 2:
            print("of", COUNT)
        """
    )
    result = launcher.run("--min", 2, "--max", 3, "--restarts", 2, script)
    assert result.code == 0
    assert result.out.count("of 2") == 2
    assert "restart 1 of 2, with 2 worker(s)" in result.err
    assert "restart 2 of 2, with 2 worker(s)" in result.err


def test_sizes_that_contradict_one_another_are_refused(launcher):
    result = launcher.run("-n", 5, "--min", 2, "--max", 3, launcher.script(""))
    assert result.code == 2
    assert "5 workers were asked for, with at least 2 and at most 3" in result.err


def test_output_goes_to_a_file_each(launcher):
    script = launcher.script(
        """
        print("out", INDEX, RESTART)
        sys.stdout.flush()
        print("err", INDEX, RESTART, file=sys.stderr)
        sys.exit(1 if RESTART == 0 else 0)
        """
    )
    logs = launcher.directory / "logs"
    result = launcher.run("-n", 2, "-o", logs, "--restarts", 1, script)
    assert (result.code, result.out) == (0, "")
    for index in range(2):
        text = (logs / f"worker-{index}.log").read_text()
        for line in ("out", "err"):
            assert f"{line} {index} 0\n" in text and f"{line} {index} 1\n" in text
        assert "unisono: restart 1 of 1" in text


def test_lines_stay_whole_however_they_are_written(launcher):
    script = launcher.script(
        """
        for i in range(2000):
            sys.stdout.write(f"{INDEX}:{i:05d}:")
            sys.stdout.flush() if i % 500 == 0 else None
            sys.stdout.write("x" * 50 + "\\n")
        sys.stdout.write("\\r10%\\r20%\\rdone")
        """
    )
    result = launcher.run("-n", 2, script)
    lines = result.out.splitlines()
    assert len(lines) == 4002
    for index in range(2):
        mine = [ln for ln in lines if ln.startswith(f"[worker {index}/2]")]
        assert mine[-1].endswith("] done")
        assert mine[:-1] == [
            f"[worker {index}/2] {index}:{i:05d}:" + "x" * 50 for i in range(2000)
        ]


def test_a_traceback_that_was_handled_is_shown_as_it_comes(launcher):
    script = launcher.script(
        """
        import traceback
        try:
            1 / 0
        except ZeroDivisionError:
            traceback.print_exc()
        """
    )
    result = launcher.run("-n", 1, script)
    assert result.code == 0
    assert "[worker 0/1] ZeroDivisionError: division by zero" in result.err


def read_terminal(master):
    parts = []
    while True:
        try:
            data = os.read(master, 65_536)
        except OSError:  # Linux says so when the other end is closed.
            break
        if not data:
            break
        parts.append(data)
    return b"".join(parts).decode()


@pytest.mark.parametrize("plain", [False, True])
def test_a_terminal_shows_one_progress_display(launcher, plain):
    script = launcher.script(
        """
        for step in range(5):
            line = json.dumps({"step": step, "total": 4}) + chr(10)
            os.write(int(os.environ["UNISONO_PROGRESS_FD"]), line.encode())
            time.sleep(0.1)
        bad = b'no JSON\\n[]\\n{"step": Infinity, "total": 1}\\n{"step": -1}\\n'
        os.write(int(os.environ["UNISONO_PROGRESS_FD"]), bad)
        print("[bold]as it is")
        """
    )
    master, slave = pty.openpty()
    arguments = ["--plain"] if plain else []
    process = launcher.start(
        *arguments,
        "-n",
        2,
        script,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(slave)
    try:
        shown = read_terminal(master)
        result = launcher.finish(process)
    finally:
        os.close(master)
    assert result.code == 0
    # Piped output is that of the workers alone.
    assert sorted(result.out.splitlines()) == [
        f"[worker {i}/2] [bold]as it is" for i in range(2)
    ]
    assert ("workers running" in shown) is not plain
    assert ("step" in shown) is not plain


@pytest.mark.feature("U01")
def test_tf_config_that_is_set_already_is_handed_on(launcher):
    config = {
        "cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"]},
        "task": {"type": "worker", "index": 1},
        "rpc_layer": "grpc",
    }
    env = {"TF_CONFIG": json.dumps(config)}
    script = launcher.script("print(json.dumps(CONFIG))")
    result = launcher.run(script, env=env)
    assert result.code == 0
    prefix, _, text = result.out.partition("] ")
    assert (prefix, json.loads(text)) == ("[worker 1/2", config)
    refused = launcher.run("-n", 2, script, env=env)
    assert refused.code == 2 and "TF_CONFIG is set and says" in refused.err
    alone = launcher.run("-n", 2, "--attach", "none", script, env=env)
    assert alone.out.count("127.0.0.1") == 4
    evaluator = config | {"task": {"type": "evaluator", "index": 0}}
    result = launcher.run(script, env={"TF_CONFIG": json.dumps(evaluator)})
    assert json.loads(result.out.partition("] ")[2]) == evaluator


@pytest.mark.feature("U01")
def test_in_a_slurm_step_every_launcher_starts_its_own_workers(launcher):
    step = {
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
        "SLURM_STEP_NUM_TASKS": "2",
    }
    script = launcher.script("print(json.dumps(CONFIG))")
    processes = [
        launcher.start("-n", 2, script, env=step | {"SLURM_PROCID": str(rank)})
        for rank in range(2)
    ]
    results = [launcher.finish(p) for p in processes]
    assert [r.code for r in results] == [0, 0]
    for rank, result in enumerate(results):
        lines = sorted(result.out.splitlines())
        for local, line in enumerate(lines):
            assert line.startswith(f"[worker {2 * rank + local}/4] ")
            config = json.loads(line.partition("] ")[2])
            assert config["cluster"] == {
                "worker": ["n1:8888", "n1:8889", "n2:8888", "n2:8889"]
            }
            assert config["task"] == {"type": "worker", "index": 2 * rank + local}


def test_the_command_line_starts_no_backend(launcher):
    script = launcher.script("")
    code = f"""
import sys
sys.argv = ["unisono", "launch", "-n", "1", "-d", "2", {script!r}]
from unisono._src.cli.main import main
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
from jax._src import xla_bridge
assert not xla_bridge._backends, xla_bridge._backends
"""
    subprocess.run(
        [sys.executable, "-c", code], env=launcher.env, check=True, timeout=60
    )


@pytest.mark.feature("U01")
def test_a_launched_program_finds_its_task_and_its_devices(launcher):
    script = launcher.script(
        """
        import jax
        import unisono as uni
        resolver = uni.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = uni.distribute.MirroredStrategy()
        print(resolver.task_type, resolver.task_id, strategy.num_replicas_in_sync)
        """
    )
    env = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    result = launcher.run("-n", 2, "-d", 3, script, env=env)
    assert sorted(result.out.splitlines()) == [
        "[worker 0/2] worker 0 3",
        "[worker 1/2] worker 1 3",
    ], result.err


STOPPED = """
    meet("ready")
    if INDEX == 1:
        if RESUME:
            again = f"kill -CONT {os.getpid()}"
            subprocess.Popen(["sh", "-c", f"sleep 0.7; {again}"])
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1.5)  # The launcher looks several times before this process ends.
        print("went on")
    elif not RESUME:
        sleep()
"""


def test_a_worker_that_stays_stopped_is_killed_and_named(launcher):
    script = launcher.script("import subprocess\nRESUME = False" + dedent(STOPPED))
    result = launcher.run("-n", 2, "--stopped", 1, "--grace", 0.2, script)
    assert result.code == 128 + signal.SIGKILL
    assert (
        "(process " in result.err
        and ("is stopped, as by SIGSTOP; it is killed if it does not go on in 1 s.")
        in result.err
    )
    how = "signal SIGKILL after it had been stopped for 1 s"
    assert f"worker 1/2 ended with {how}; waiting" in result.err
    assert f"worker 1/2 failed first, with {how} and no traceback." in result.err


@pytest.mark.parametrize("seconds", [0, 20])
def test_a_worker_that_was_stopped_for_a_while_goes_on(launcher, seconds):
    script = launcher.script("import subprocess\nRESUME = True" + dedent(STOPPED))
    result = launcher.run("-n", 2, "--stopped", seconds, script)
    assert (result.code, result.out) == (0, "[worker 1/2] went on\n")
    # With 0 nobody looks.
    assert result.err.count("is stopped, as by SIGSTOP") == (seconds > 0)
    assert result.err.count("unisono: worker 1/2 goes on.") == (seconds > 0)
