"""What the guard concludes from the records that workers publish."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import jax
import pytest

import unisono
from unisono._src.cluster import launcher_pipes
from unisono._src.workers import peers, step_agreement, worker_guard, worker_records


class Store:
    """The part of JAX's client that the guard uses, within one process."""

    def __init__(self):
        self.values = {}
        self.changed = threading.Condition()

    def key_value_set(self, key, value, allow_overwrite=False):
        with self.changed:
            if key in self.values and not allow_overwrite:
                raise RuntimeError(f"ALREADY_EXISTS: {key}")
            self.values[key] = value
            self.changed.notify_all()

    def key_value_dir_get(self, prefix):
        with self.changed:
            return [(k, v) for k, v in self.values.items() if k.startswith(prefix)]

    def key_value_delete(self, key):
        del self.values[key]

    def blocking_key_value_get(self, key, milliseconds):
        with self.changed:
            if not self.changed.wait_for(
                lambda: key in self.values, milliseconds / 1000
            ):
                raise RuntimeError(f"DEADLINE_EXCEEDED: {key}")
            return self.values[key]


@pytest.fixture
def alone(monkeypatch):
    """Lets a guard take a step although the others do not take it at the same time."""
    monkeypatch.setattr(
        step_agreement.StepAgreement, "agree", lambda self, history: None
    )


@pytest.fixture
def pair(alone, monkeypatch):
    """Returns two guards that are not started: they look when they are told."""
    monkeypatch.setattr(peers, "_HISTORY_SECONDS", 0.05)
    store = Store()
    made = [worker_guard.Guard(store, i, 2, worker_guard.ASYNC, 30.0) for i in range(2)]
    for g in made:
        g.own.publish()
    return made


def look(*guards):
    for g in guards:
        g.peers.exchange()


def test_workers_that_do_the_same_are_left_alone(pair):
    for k in range(5000):
        for g in pair:
            g.enter(("step", [(k % 3,)]))
    look(*pair, *pair)
    assert [g.own.verdict for g in pair] == [None, None]


@pytest.mark.parametrize("labels", [("a", "b"), (("f", [(1,)]), ("f", [(2,)]))])
def test_steps_that_differ_are_an_error_on_both(pair, labels):
    for g, label in zip(pair, labels):
        g.enter("first")
        g.enter(label)
    look(*pair, *pair)
    for g, other in zip(pair, (1, 0)):
        assert isinstance(g.own.verdict, unisono.errors.WorkerMismatchError)
        assert (g.own.verdict.worker, g.own.verdict.step) == (other, 2)
        with pytest.raises(
            unisono.errors.WorkerMismatchError, match="differ in step 2"
        ):
            g.enter("next")


def look_together(pair):
    for g in pair:
        g.own.publish()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(look, pair))


@pytest.mark.parametrize("later", [0, 3, 500])
def test_a_difference_of_long_ago_is_found_and_named(pair, later, monkeypatch):
    monkeypatch.setattr(peers, "_HISTORY_SECONDS", 20.0)
    for g, order in zip(pair, ("train evaluate", "evaluate train")):
        for label in ["begin", *order.split(), *["train"] * later]:
            g.enter(label)
    look_together(pair)
    for g, mine, theirs in zip(pair, ("train", "evaluate"), ("evaluate", "train")):
        assert isinstance(g.own.verdict, unisono.errors.WorkerMismatchError)
        assert g.own.verdict.step == 2
        told = (
            f"differ in step 2. Worker {1 - g.own.worker}: '{theirs}'. Here: '{mine}'."
        )
        assert told in str(g.own.verdict)


def test_a_step_that_was_not_taken_leaves_no_trace(pair):
    for g in pair:
        g.enter("first")
    pair[0].enter("other shapes")
    pair[0].leave()
    for g in pair:
        g.enter("second")
    look(*pair, *pair)
    assert [g.own.verdict for g in pair] == [None, None]


def test_a_number_that_differing_workers_computed_is_not_read(pair):
    for g, label in zip(pair, "ab"):
        g.enter(label)
    look(*pair, *pair)
    with pytest.raises(unisono.errors.WorkerMismatchError):
        pair[0].results.wait_for(jax.numpy.zeros(()))
    # It was told once; what was computed before, the ledgers tell, may be read.
    pair[0].results.wait_for(jax.numpy.zeros(()))
    pair[0].check_marks()


def test_workers_that_meet_compare_what_they_have_done(pair):
    for g, label in zip(pair, "ab"):
        g.enter(label)
        g.enter("save")
    for g in pair:
        g.own.publish()
    for g in pair:
        with pytest.raises(unisono.errors.WorkerMismatchError):
            g.compare()


@pytest.mark.parametrize(
    ("labels", "code"), [(("a", "a"), None), (("a", "b"), 1), (("a", "aa"), 1)]
)
def test_a_program_in_which_workers_differed_does_not_end_well(
    pair, labels, code, monkeypatch, capsys
):
    ends = []
    monkeypatch.setattr(os, "_exit", ends.append)
    for g, each in zip(pair, labels):
        for label in each:
            g.enter(label)
        g._thread.start()
        g.close()
    assert ends == ([] if code is None else [code])
    assert ("WorkerMismatchError" in capsys.readouterr().err) == bool(code)


def test_an_exception_reaches_the_other_with_its_traceback(pair):
    try:
        raise KeyError("the culprit")
    except KeyError as error:
        pair[1].own.fail(error)
    look(pair[0])
    assert isinstance(pair[0].own.verdict, unisono.errors.WorkerFailedError)
    assert "the culprit" in str(pair[0].own.verdict)
    assert "test_worker_guard.py" in str(pair[0].own.verdict)


def test_the_worker_that_began_it_is_blamed():
    store = Store()
    watching, first, second = (
        worker_guard.Guard(store, i, 3, worker_guard.ASYNC, 30.0) for i in range(3)
    )
    first.own.fail(unisono.errors.WorkerFailedError("worker 2 failed", 2))
    second.own.fail(ValueError("the origin"))
    watching.peers.exchange()
    assert watching.own.verdict.worker == 2
    assert "the origin" in str(watching.own.verdict)


def test_a_worker_that_left_is_missed_only_by_those_who_go_on(pair):
    for g in pair:
        g.enter("step")
    pair[1].own.state = worker_records.LEFT
    pair[1].own.publish()
    look(pair[0])
    assert pair[0].own.verdict is None
    pair[0].enter("step")
    look(pair[0])
    assert isinstance(pair[0].own.verdict, unisono.errors.WorkerLostError)
    assert "has ended its program after step 1" in str(pair[0].own.verdict)


def test_a_pause_of_all_workers_is_not_a_stall_of_the_last_to_go_on(pair):
    for g in pair:
        g.enter("step")
    look(*pair, *pair)
    now = time.monotonic() + 100.0
    pair[0].enter("step")
    assert pair[0].peers._judge(now, 1000.0) is None
    assert pair[0].peers._judge(now + 29.0, 1000.0) is None
    pair[0].peers._records[1].beaten_at = now + 31.0
    found = pair[0].peers._judge(now + 31.0, 1000.0)
    assert isinstance(found, unisono.errors.WorkerStalledError)
    assert found.worker == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"beat": 1}',
        json.dumps({"beat": "x", "step": 1, "state": "failed"}),
        '{"beat": 9, "step": 9, "state": "failed", "label": "", "error": "", '
        '"secondary": false, "blame": null, "recent": [[1]]}',
        '{"beat": 9, "step": 9, "state": "failed", "label": "", "error": "", '
        '"secondary": false, "blame": ["SystemExit", 1, 1, ""], "recent": []}',
        "0" * 100_000,
    ],
)
def test_a_record_of_another_form_is_ignored(pair, text):
    pair[0].own._client.values["unisono/guard/worker/1"] = text
    look(pair[0])
    assert pair[0].own.verdict is None


def test_a_step_that_is_taken_back_does_not_count(pair):
    pair[0].enter("step")
    pair[0].leave()
    for g in pair:
        g.enter("other")
    look(*pair, *pair)
    assert [g.own.verdict for g in pair] == [None, None]
    assert pair[0].step == 1


def test_what_has_nothing_to_do_with_workers_stays_as_it_is(pair):
    error = ValueError("a wrong shape")
    assert pair[0].peers.explain(error) is error


def test_strict_workers_find_a_difference_before_the_step():
    told = enter_together([["a"] * 20 + ["mine"], ["a"] * 21], mode=worker_guard.STRICT)
    assert told == [("WorkerMismatchError", 1, 21), ("WorkerMismatchError", 0, 21)]


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'async', 'strict' or 'off'"):
        unisono.distribute.MultiWorkerMirroredStrategy(guard="loose")


@pytest.fixture
def three(alone):
    """Returns three guards of one group, which look when they are told."""
    store = Store()
    made = [worker_guard.Guard(store, i, 3, worker_guard.ASYNC, 30.0) for i in range(3)]
    for g in made:
        g.own.publish()
    return made


KILLED = launcher_pipes.WorkerEnding("worker", 1, "signal SIGKILL")


def test_a_worker_of_which_the_launcher_says_that_it_ended_is_lost(pair):
    pair[0].enter("step")
    pair[0].hear(1, KILLED)
    look(pair[0])
    assert isinstance(pair[0].own.verdict, unisono.errors.WorkerLostError)
    assert "worker 1 has ended with signal SIGKILL" in str(pair[0].own.verdict)


def test_what_a_worker_said_before_its_end_counts_more_than_its_end(pair):
    pair[0].hear(1, launcher_pipes.WorkerEnding("worker", 1, "exit code 1"))
    pair[1].own.fail(KeyError("the culprit"))
    look(pair[0])
    assert isinstance(pair[0].own.verdict, unisono.errors.WorkerFailedError)
    assert "the culprit" in str(pair[0].own.verdict)


def test_a_worker_that_ended_in_order_is_not_lost_for_those_who_end_too(pair):
    pair[1].own.state = worker_records.LEFT
    pair[1].own.publish()
    pair[0].hear(1, launcher_pipes.WorkerEnding("worker", 1, "exit code 0"))
    look(pair[0])
    assert pair[0].own.verdict is None
    assert "with exit code 0" in str(pair[0].peers.explain_absence(1))


def test_all_survivors_name_the_worker_that_was_lost_first(three):
    three[0].hear(1, KILLED)
    look(three[0])
    with pytest.raises(unisono.errors.WorkerLostError) as raised:
        three[0].enter("step")
    three[0].own.fail(raised.value)
    look(three[2])
    found = three[2].own.verdict
    assert type(found) is unisono.errors.WorkerLostError
    assert (found.worker, str(found)) == (1, str(raised.value))


def test_an_error_that_follows_from_a_lost_worker_names_that_worker(three):
    try:
        try:
            raise unisono.errors.WorkerLostError("worker 1 is gone", 1, 5)
        except unisono.errors.WorkerError as cause:
            raise ValueError("so I cannot go on") from cause
    except ValueError as error:
        three[0].own.fail(error)
    look(three[2])
    assert type(three[2].own.verdict) is unisono.errors.WorkerLostError
    assert three[2].own.verdict.worker == 1


def test_a_worker_that_was_given_up_gets_the_error_about_itself(pair):
    pair[0].own.notice(unisono.errors.WorkerStalledError("worker 1 is behind", 1, 7))
    look(pair[1])
    found = pair[1].own.verdict
    assert isinstance(found, unisono.errors.WorkerStalledError)
    assert (found.worker, found.step) == (1, 7)
    assert "Worker 0 has given up this one" in str(found)


def test_a_worker_that_is_behind_and_silent_is_lost_and_does_not_live(pair):
    look(*pair)
    now = time.monotonic()
    pair[0].enter("step")
    assert pair[0].peers._judge(now, 30.0) is None
    pair[0].peers._records[1].beaten_at = now + 20.0
    found = pair[0].peers._judge(now + 30.1, 30.0)
    assert isinstance(found, unisono.errors.WorkerLostError)


def test_only_a_worker_that_is_waited_for_is_lost_after_a_short_silence(three):
    look(*three)
    for r in three[0].peers._records.values():
        r.beaten_at -= 4.0
    assert three[0].peers._judge(time.monotonic(), 30.0) is None
    assert three[0].peers.explain_absence(2).worker == 2


def test_a_worker_that_is_stopped_is_left_to_the_launcher(pair):
    look(*pair)
    now = time.monotonic()
    pair[0].hear(1, launcher_pipes.WorkerPause("worker", 1, True))
    assert pair[0].peers._judge(now + 20.0, 30.0, [1]) is None
    found = pair[0].peers._judge(now + 31.0, 30.0, [1])
    assert "is stopped, as by SIGSTOP, as its launcher says" in str(found)
    pair[0].peers._records[1].beaten_at -= 20.0
    pair[0].hear(1, launcher_pipes.WorkerPause("worker", 1, False))
    assert pair[0].peers.explain_absence(1) is None


def test_a_worker_that_was_stopped_itself_does_not_miss_the_others(three):
    look(*three)
    guard = three[0]
    # As if all of this had been twenty seconds ago, and nobody had looked since.
    guard.peers._poll_times._last -= 20.0
    for r in guard.peers._records.values():
        r.beaten_at -= 20.0
    assert guard.peers.explain_absence(2) is None
    three[1].own.publish()
    look(guard)
    assert guard.peers.explain_absence() is None
    guard.peers._records[2].beaten_at -= 4.0
    assert guard.peers.explain_absence(2).worker == 2


def test_a_failed_step_is_noticed_although_nobody_reads_its_result(pair, monkeypatch):
    class Failed:
        def is_deleted(self):
            return False

        def is_ready(self):
            return True

        def block_until_ready(self):
            raise ValueError("Gloo: connection closed by peer")

    monkeypatch.setattr(jax, "Array", Failed)
    pair[0].results.newest = [Failed()]
    pair[0].hear(1, KILLED)
    pair[0].results.look_at_newest()
    assert isinstance(pair[0].own.verdict, unisono.errors.WorkerLostError)
    with pytest.raises(unisono.errors.WorkerLostError):
        pair[0].enter("step")


def test_words_in_any_script_fit_into_a_record(pair):
    pair[1].own.fail(ValueError("人\ud800" * 10_000))
    look(pair[0])
    assert isinstance(pair[0].own.verdict, unisono.errors.WorkerFailedError)


class Late:
    """An array that is there after some looks, if ever."""

    def __init__(self, looks):
        self.looks = looks

    def is_ready(self):
        self.looks -= 1
        return self.looks < 0


def test_a_result_that_comes_is_waited_for(pair):
    late = Late(20)
    pair[0].results.waits_in_python = True
    pair[0].results.wait_for(late)
    assert late.looks < 0


def test_a_result_that_will_not_come_is_the_error_about_the_worker(pair):
    pair[0].hear(1, KILLED)
    look(pair[0])
    pair[0].results.waits_in_python = True
    before = time.monotonic()
    with pytest.raises(unisono.errors.WorkerLostError):
        pair[0].results.wait_for(Late(float("inf")))
    assert time.monotonic() - before < 5.0


def enter_together(labels, seconds=30.0, mode=worker_guard.ASYNC):
    """Returns what workers get that take steps of these kinds at the same time.

    It is an error with its worker and step, or the number of steps.
    """
    store, count = Store(), len(labels)
    guards = [worker_guard.Guard(store, i, count, mode, seconds) for i in range(count)]
    for g in guards:
        g.own.publish()

    def enter(guard, kinds):
        try:
            for kind in kinds:
                guard.enter(kind)
            # A thread of a worker that runs publishes what the worker has done, and
            # looks what the others have done.
            while (
                any(len(k) > len(kinds) for k in labels) and guard.own.verdict is None
            ):
                guard.peers.exchange()
            guard.peers.exchange()
            return guard.step
        except unisono.errors.WorkerError as error:
            return type(error).__name__, error.worker, error.step

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(enter, guards, labels))


def test_workers_that_meet_a_new_step_go_on_together():
    assert enter_together([["a", "b", "a", "b"]] * 2) == [4, 4]


def test_a_new_step_of_one_worker_is_an_error_before_it_is_taken():
    told = enter_together([["a", "a", "b"], ["a", "a", "c"]])
    assert told == [("WorkerMismatchError", 1, 3), ("WorkerMismatchError", 0, 3)]


def test_a_known_step_out_of_turn_is_an_error_before_it_is_taken():
    usual = ["train", "log"] * 10
    others, odd = [*usual, "train"], [*usual, "log"]
    told = enter_together([others, odd, others])
    # Those who do what was to be expected do not wait. The other does not take its
    # step, and knows that it is the one who differs.
    assert told == [21, ("WorkerMismatchError", 1, 21), 21]


def test_a_step_that_another_does_not_come_to_is_not_waited_for_for_ever(pair):
    with pytest.raises(unisono.errors.WorkerStalledError) as raised:
        pair[0]._agreement._wait_for("a key", 1, until=time.monotonic())
    assert raised.value.worker == 1


def test_an_abort_in_native_code_says_which_worker_is_to_blame():
    program = """
import os, resource
import unisono
from tests.unit.workers.test_worker_guard import KILLED, Store
from unisono._src.workers import worker_guard
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
guard = worker_guard.Guard(Store(), 0, 2, worker_guard.ASYNC, 30.0)
guard.start()
guard.hear(1, KILLED)
guard.peers.exchange()
os.abort()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == -signal.SIGABRT
    assert "XLA or Gloo aborts worker 0" in done.stderr
    assert "worker 1 has ended with signal SIGKILL" in done.stderr


def test_a_program_that_ends_in_order_is_silent():
    program = """
from tests.unit.workers.test_worker_guard import Store
from unisono._src.workers import worker_guard
worker_guard.Guard(Store(), 0, 2, worker_guard.ASYNC, 30.0).start()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/net/tcp").exists(), reason="Linux tells connections."
)


def connect(stack, listener):
    """Returns both ends of a new connection."""
    client = stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
    server = stack.enter_context(listener.accept()[0])
    for end in (client, server):
        end.settimeout(10.0)
    return client, server


@pytest.fixture
def stack():
    with contextlib.ExitStack() as found:
        yield found


@pytest.mark.parametrize("place", [0, 1])
def test_connections_with_workers_end_and_others_do_not(stack, place):
    store = Store()
    own, other = (worker_guard.WorkerConnections(store, i) for i in range(2))
    before = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    with (own, other)[place].find_listener():
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    between, program = connect(stack, listener), connect(stack, before)
    own.shut()
    assert [end.recv(1) for end in between] == [b"", b""]
    program[0].sendall(b"x")
    assert program[1].recv(1) == b"x"
    # What is not connected yet, such as a listener, is left alone.
    connect(stack, listener)


def test_nothing_ends_where_the_system_tells_no_connections(stack, monkeypatch):
    monkeypatch.setattr(worker_guard, "_TABLES", ("/nowhere",))
    made = worker_guard.WorkerConnections(Store(), 0)
    with made.find_listener():
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    client, server = connect(stack, listener)
    made.shut()
    client.sendall(b"x")
    assert server.recv(1) == b"x"
