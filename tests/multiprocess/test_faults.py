"""Whatever happens to a worker, the others are told what, by whom, and in time.

`UNISONO_TEST_FAULTS=all` tries the faults of FURTHER, too. Those in `make test` show
each error and each way to notice it once; the others differ in the victim, or in what
the workers' programs differ by, which the tests of the guard have without processes.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.multiprocess import harness
from tests.multiprocess.launcher import SOURCE

pytestmark = pytest.mark.timeout(120)

# When workers agree; the fault; its victim; the error of the others; the time in which
# they have it, when a worker may be behind for 4 s; and what the message must say.
FAULTS = [
    ("async", "kill", 0, "WorkerLostError", 5.0, "no sign of life"),
    ("async", "raise", 1, "WorkerFailedError", 5.0, "this worker has had enough"),
    ("async", "input", 1, "WorkerFailedError", 5.0, "the input is broken"),
    ("async", "exit", 1, "WorkerLostError", 5.0, "has ended its program after step"),
    ("async", "sleep", 1, "WorkerStalledError", 8.5, "is still at step"),
    ("async", "order", 1, "WorkerMismatchError", 8.5, "in step 12. Worker 1: 'other["),
    ("strict", "functions", 1, "WorkerMismatchError", 8.5, "workers differ in step"),
    ("strict", "kill", 0, "WorkerLostError", 5.0, "no sign of life"),
]
FURTHER = [
    ("async", "kill", 1, "WorkerLostError", 5.0, "no sign of life"),
    ("async", "raise", 0, "WorkerFailedError", 5.0, "this worker has had enough"),
    ("async", "stop", 1, "WorkerLostError", 8.5, "no sign of life"),
    ("async", "shapes", 1, "WorkerMismatchError", 8.5, "workers differ in step"),
    ("async", "functions", 1, "WorkerMismatchError", 8.5, "workers differ in step"),
    ("async", "rate", 1, "WorkerMismatchError", 8.5, "in step 2. Worker 1: 'step["),
    ("strict", "sleep", 1, "WorkerStalledError", 8.5, "is still at step"),
]
if os.environ.get("UNISONO_TEST_FAULTS") == "all":
    FAULTS += FURTHER


@pytest.mark.parametrize(
    ("mode", "fault", "victim", "error", "seconds", "says"),
    FAULTS,
    ids=["-".join(map(str, fault[:3])) for fault in FAULTS],
)
def test_a_fault_is_the_same_error_on_every_other_worker(
    mode, fault, victim, error, seconds, says, tmp_path
):
    settings = {"TEST_TIMEOUT": "4", "TEST_GUARD": mode}
    with harness.Group(tmp_path, 2, **settings) as group:
        group.send("faulty_loop", fault=fault, victim=victim)
        (told,) = group.collect(30.0, only={1 - victim})
        assert "result" in told, (told, group.logs())
        kind, worker, message, took, finished, value = told["result"]
        assert (kind, worker) == (error, victim), message
        assert says in message
        assert took < seconds
        assert finished
        if mode == "strict":
            # All agreed before each step, so the last one was never begun.
            assert value == ["ok", 5.0]
        if fault in ("shapes", "functions", "order", "rate"):
            (other,) = group.collect(10.0, only={victim})
            assert other["result"][0] == error
    assert group.left_behind() == []


def test_sigterm_ends_a_worker_and_the_others_are_told(tmp_path):
    with harness.Group(tmp_path, 2) as group:
        group.send("faulty_loop", fault="none", victim=0, steps=100_000)
        time.sleep(1.0)
        group.workers[1].signal(signal.SIGTERM)
        told = group.collect(20.0)
        assert told[1] == {"gone": -signal.SIGTERM}
        assert told[0]["result"][:2] == ["WorkerLostError", 1]
    assert group.left_behind() == []


def test_a_port_that_is_taken_is_an_error_that_names_it(tmp_path):
    with socket.socket() as taken, pytest.raises(harness.WorkerFailed) as failed:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with harness.Group(tmp_path, 1, ports=[port, port + 1]) as group:
            assert "gone" in group.started[0]
            raise harness.WorkerFailed(group.logs())
    said = f"could not listen at 127.0.0.1:{port}"
    assert said in str(failed.value)


TRAINING = """
import jax.numpy as jnp, unisono as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
while True:
    strategy.reduce("SUM", strategy.run(lambda: jnp.ones(())), None)
"""


@pytest.mark.parametrize(
    ("indices", "twice"), [((0, 1, 1), 1), ((0, 1, 0), 0), ((0, 0), 0)]
)
def test_two_processes_with_one_index_are_an_error_on_all(indices, twice):
    addresses = [f"127.0.0.1:{harness.free_port()}" for _ in range(2)]
    processes = []
    for index in indices:
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        env = {"TF_CONFIG": config, "JAX_PLATFORMS": "cpu", "PYTHONPATH": SOURCE}
        command = [sys.executable, "-c", TRAINING]
        processes.append(
            subprocess.Popen(
                command, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True
            )
        )
    try:
        said = [process.communicate(timeout=60)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, text in zip(processes, said):
        assert f"Two processes say that they are worker {twice}" in text
        assert process.returncode == 1, text


def test_workers_that_end_in_order_leave_nothing_behind(tmp_path):
    with harness.Group(tmp_path, 2) as group:
        group.call("reduce")
        for worker in group.workers:
            worker.process.stdin.close()
        codes = [w.process.wait(20) for w in group.workers]
        assert codes == [0, 0], group.logs()
        assert group.left_behind() == []


def test_the_coordinator_of_local_workers_listens_on_loopback_only(tmp_path):
    with harness.Group(tmp_path, 2) as group:
        port = int(group.addresses[0].rpartition(":")[2])
        rows = []
        for table in ("tcp", "tcp6"):
            lines = pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]
            rows += [line.split() for line in lines]
    # Column 1 is the local address, 3 the state, of which 0A is listening.
    found = [r[1] for r in rows if r[3] == "0A" and r[1].endswith(f":{port:04X}")]
    assert len(found) == 1
    assert found[0].endswith(f"0100007F:{port:04X}")


def test_all_others_blame_the_worker_that_began_it(tmp_path):
    with harness.Group(tmp_path, 3, TEST_TIMEOUT="10") as group:
        group.send("faulty_loop", fault="raise", victim=1)
        told = group.collect(30.0, only={0, 2})
        for t in told:
            assert t["result"][:2] == ["WorkerFailedError", 1], (t, group.logs())
            assert "this worker has had enough" in t["result"][2]
