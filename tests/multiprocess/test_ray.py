"""Parameter servers and workers as processes of Ray; the tests share one cluster."""

import gc
import ipaddress
import os
import pathlib
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import ml_dtypes
import numpy as np
import pytest

import unisono
from tests.multiprocess import launcher as launchers
from tests.unit.servers import clusters
from unisono import distribute
from unisono.distribute.coordinator import ClusterCoordinator, RayCarrier

pytest.importorskip("ray")
pytestmark = pytest.mark.feature("T06")


class Group:
    """A strategy on Ray with its coordinator."""

    def __init__(self, workers, servers, **given):
        self.carrier = RayCarrier(timeout_seconds=110)
        self.strategy = distribute.ParameterServerStrategy(
            clusters.resolver(workers, servers), carrier=self.carrier, **given
        )
        self.coordinator = ClusterCoordinator(self.strategy)

    def variable(self, value):
        with self.strategy.scope():
            return unisono.Variable(value)

    def kill(self, kind, index, number=signal.SIGKILL):
        # After an earlier kill it may not be back yet.
        launchers.wait_for(
            lambda: pathlib.Path(f"/proc/{self.carrier.process(kind, index)}").exists(),
            f"the {kind} {index} to come back",
            60,
        )
        os.kill(self.carrier.process(kind, index), number)

    def schedule(self, fn, times, **given):
        return [self.coordinator.schedule(fn, **given) for _ in range(times)]


@pytest.fixture(scope="module")
def group():
    before = dict(os.environ)
    # A folder of its own, with a short path: other processes make such folders, too.
    folder = tempfile.mkdtemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        made = Group(workers=2, servers=2)
    assert os.listdir(folder)
    mark = _mark(made.carrier.process("ps", 0))
    assert launchers.marked_processes(mark)
    yield made
    made.strategy.shutdown()
    gc.collect()
    launchers.wait_for(
        lambda: not launchers.marked_processes(mark), "the end of Ray's processes"
    )
    assert os.listdir(folder) == []
    os.rmdir(folder)
    now = dict(os.environ) | {"PYTEST_CURRENT_TEST": ""}
    assert now == before | {"PYTEST_CURRENT_TEST": ""}


def _mark(pid):
    variables = pathlib.Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(v for v in variables if v.startswith("UNISONO_RAY_NODE="))


def test_workers_add_up_what_servers_keep(group):
    total = group.variable(0)

    @unisono.function
    def add():
        total.assign_add(1)
        return distribute.coordinator.experimental_get_current_worker_index()

    found = group.coordinator.fetch(group.schedule(add, 2000))
    assert int(total.numpy()) == 2000
    assert set(map(int, found)) == {0, 1}
    pids = [group.carrier.process(k, i) for k in ("ps", "worker") for i in (0, 1)]
    assert len({*pids, os.getpid()}) == 5
    assert total.device.startswith("/job:ps/")


def test_nothing_listens_where_other_machines_could_reach_it(group):
    mark = _mark(group.carrier.process("worker", 0))
    pids = [*launchers.marked_processes(mark), os.getpid()]
    ours = {i for pid in pids for i in _sockets(pid)}
    seen = {a for inode, a in _listening() if inode in ours}
    assert seen
    assert {a for a in seen if not a.is_loopback} == set()


def _sockets(pid):
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[8:-1]


def _listening():
    """Yields the inode and address of every TCP socket that takes connections."""
    for name, family, size in (
        ("tcp", socket.AF_INET, 4),
        ("tcp6", socket.AF_INET6, 16),
    ):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                words = bytes.fromhex(fields[1].split(":")[0])
                data = b"".join(words[i : i + 4][::-1] for i in range(0, size, 4))
                address = ipaddress.ip_address(socket.inet_ntop(family, data))
                yield fields[9], getattr(address, "ipv4_mapped", None) or address


@pytest.mark.parametrize(
    "value",
    [
        np.arange(300_000, dtype=np.float32),  # through shared memory
        np.arange(5_000_000, dtype=np.float32),  # through Ray's store
        np.arange(20_000).astype(ml_dtypes.bfloat16),
        np.float32(2.5),
    ],
    ids=["1 MB", "20 MB", "bfloat16", "scalar"],
)
def test_values_of_all_sizes_come_back_as_they_went(group, value):
    variable = group.variable(value)

    @unisono.function
    def double():
        variable.assign_add(variable)
        return variable * 1

    for times in (2, 4):
        found = group.coordinator.schedule(double).fetch()
        np.testing.assert_array_equal(np.asarray(found), np.asarray(value) * times)
    np.testing.assert_array_equal(variable.numpy(), np.asarray(value) * 4)


def test_functions_of_other_processes_print_and_check_here(group, capsys):
    @unisono.function
    def step(x):
        unisono.print("x is", x, output_stream=sys.stdout)
        unisono.debugging.assert_positive(x)
        return x

    for _ in range(3):
        group.schedule(step, 4, args=(np.ones(20_000, np.float32),))
    group.coordinator.join()
    assert capsys.readouterr().out == "x is [1 1 1 ... 1 1 1]\n" * 12
    group.schedule(step, 3, args=(np.float32(-1.0),))
    with pytest.raises(unisono.errors.InvalidArgumentError, match="x > 0"):
        group.coordinator.join()
    assert float(group.schedule(step, 1, args=(np.float32(1.0),))[0].fetch()) == 1.0


def test_each_worker_reads_a_dataset_of_its_own(group):
    def make():
        index = distribute.coordinator.experimental_get_current_worker_index()
        return unisono.data.Dataset.range(1000).map(lambda x: x * 0 + index)

    # TensorFlow's tutorial decorates the function.
    made = group.coordinator.create_per_worker_dataset(unisono.function(make))
    iterator = iter(made)
    index = distribute.coordinator.experimental_get_current_worker_index

    @unisono.function
    def step(iterator):
        return next(iterator) - index()

    found = group.coordinator.fetch(group.schedule(step, 40, args=(iterator,)))
    assert {int(x) for x in found} == {0}


def test_an_error_of_a_dataset_function_is_told_with_its_place(group):
    def fail():
        raise KeyError("no such file")

    step = unisono.function(lambda iterator: next(iterator))
    error = distribute.coordinator.ClosureInputError
    with pytest.raises(error, match="no such file") as caught:
        iterator = iter(group.coordinator.create_per_worker_dataset(fail))
        group.coordinator.schedule(step, args=(iterator,))
        group.coordinator.join()
    assert "On the worker" in "".join(caught.value.__cause__.__notes__)
    add = unisono.function(lambda: 1)
    assert int(group.coordinator.schedule(add).fetch()) == 1


def test_what_cannot_be_sent_is_named(group):
    lock = threading.Lock()

    def make():
        with lock:
            return unisono.data.Dataset.range(3)

    step = unisono.function(lambda iterator: next(iterator))
    with pytest.raises(Exception, match="cannot be sent to another process") as caught:
        iterator = iter(group.coordinator.create_per_worker_dataset(make))
        group.coordinator.schedule(step, args=(iterator,))
        group.coordinator.join()
    assert "'make.lock', a lock" in str(caught.value)


def test_a_killed_worker_s_closures_run_again_and_count_once_if_asked_to(group):
    total, often = group.variable(0), group.variable(0)
    data = unisono.data.Dataset.range(10**6)
    iterator = iter(group.coordinator.create_per_worker_dataset(data))

    @unisono.function
    def add(iterator):
        next(iterator)
        total.assign_add(1)

    @unisono.function
    def add_again():
        often.assign_add(1)

    before = group.coordinator.schedule(add, args=(iterator,), exactly_once=True)
    before.fetch()
    group.schedule(add_again, 200)
    group.schedule(add, 1500, args=(iterator,), exactly_once=True)
    group.kill("worker", 1)
    # Reading goes on meanwhile, and what was fetched stays.
    assert int(total.numpy()) >= 1
    assert before.fetch() is None
    group.coordinator.join()
    assert int(total.numpy()) == 1501
    assert int(often.numpy()) >= 200


def test_all_workers_may_be_killed_at_once(group):
    total = group.variable(0)

    @unisono.function
    def add():
        total.assign_add(1)

    group.schedule(add, 5)
    group.coordinator.join()
    for index in (0, 1):
        group.kill("worker", index)
    group.schedule(add, 50, exactly_once=True)
    group.coordinator.join()
    assert int(total.numpy()) == 55


def test_a_killed_server_is_named_at_once_or_restored(group, tmp_path):
    def restore():
        checkpoint.restore(path).assert_consumed()

    other = Group(workers=1, servers=1, restore_from=restore)
    try:
        kept = other.variable(np.float32(1.0))
        # The server writes and reads this one itself.
        table = other.variable(np.arange(400_000, dtype=np.float32))
        checkpoint = unisono.train.Checkpoint(kept=kept, table=table)

        @unisono.function
        def add():
            kept.assign_add(1.0)

        other.schedule(add, 9)
        other.coordinator.join()
        path = checkpoint.save(str(tmp_path / "c"))
        address = other.carrier.address("ps", 0)
        other.kill("ps", 0)
        start = time.monotonic()
        with pytest.raises(unisono.errors.UnavailableError) as caught:
            kept.numpy()
        # Two seconds, and more on a machine that others use, too.
        assert time.monotonic() - start < 6.0
        assert address in str(caught.value)
        assert "Variable" in str(caught.value)
        worker = other.carrier.process("worker", 0)
        other.schedule(add, 3)
        other.coordinator.join()
        assert float(kept.numpy()) == 13.0
        np.testing.assert_array_equal(table.numpy(), np.arange(400_000))
        assert other.carrier.process("worker", 0) == worker
        late = _schedule_a_long_one(other)
    finally:
        start = time.monotonic()
        other.strategy.shutdown()
    assert time.monotonic() - start < 20.0
    with pytest.raises(unisono.errors.CancelledError):
        late.fetch()
    # Others still use the cluster.
    assert int(group.variable(7).numpy()) == 7


def test_a_worker_and_a_server_that_stay_stopped_count_as_lost(group, monkeypatch):
    monkeypatch.setenv("UNISONO_STOPPED_SECONDS", "1")
    other = Group(workers=1, servers=1)
    try:
        kept = other.variable(0)
        add = unisono.function(lambda: kept.assign_add(1))
        stopped = other.carrier.process("worker", 0)
        other.kill("worker", 0, signal.SIGSTOP)
        other.schedule(add, 3, exactly_once=True)
        other.coordinator.join()
        assert int(kept.numpy()) == 3
        assert other.carrier.process("worker", 0) != stopped
        other.kill("ps", 0, signal.SIGSTOP)
        other.schedule(add, 3)
        with pytest.raises(unisono.errors.UnavailableError) as caught:
            other.coordinator.join()
        assert (caught.value.task_type, caught.value.task_index) == ("ps", 0)
    finally:
        other.strategy.shutdown()


def test_the_end_of_the_head_is_an_error_and_no_end_of_the_program(tmp_path):
    code = """
    import os, signal, time
    from tests.multiprocess import test_ray
    import unisono
    made = test_ray.Group(workers=1, servers=1)
    kept = made.variable(0)
    add = unisono.function(lambda: kept.assign_add(1))
    made.schedule(add, 3)
    made.coordinator.join()
    start = time.monotonic()
    os.kill(test_ray.find_child(os.getpid(), "gcs_server"), signal.SIGKILL)
    for use in (made.coordinator.join, kept.numpy, made.coordinator.join):
        try:
            while True:
                made.coordinator.schedule(add)
                use()
        except unisono.errors.UnavailableError as error:
            print(error.task_type, "head node" in str(error))
    # Two seconds, and more on a machine that others use, too.
    assert time.monotonic() - start < 20.0
    made.strategy.shutdown()
    """
    # The paths of sockets in this folder would be too long.
    long = tmp_path / ("long" * 20)
    long.mkdir()
    mark = {"UNISONO_TEST_MARK": str(tmp_path), "TMPDIR": str(long)}
    root = str(pathlib.Path(__file__).resolve().parents[2])
    out = _run(code, PYTHONPATH=os.pathsep.join([launchers.SOURCE, root]), **mark)
    assert out.splitlines() == ["chief True"] * 3
    launchers.wait_for(
        lambda: not launchers.marked_processes(str(tmp_path)), "Ray's processes"
    )
    assert list(long.iterdir()) == []


def find_child(pid, name):
    """Returns the process of a program that came from another process."""
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]
        if command.decode().endswith(name):
            return int(child)
        if found := find_child(child, name):
            return found
    return None


def _schedule_a_long_one(group):
    """Lets a worker wait for an element, for longer than any test may take."""

    def make():
        def read():
            yield np.float32(0.0)
            threading.Event().wait(1000)

        return unisono.data.Dataset.from_generator(
            read, output_signature=unisono.TensorSpec((), np.float32)
        )

    iterator = iter(group.coordinator.create_per_worker_dataset(make))

    @unisono.function
    def step(iterator):
        return next(iterator)

    group.coordinator.schedule(step, args=(iterator,)).fetch()
    return group.coordinator.schedule(step, args=(iterator,))


class _Hello(socketserver.BaseRequestHandler):
    """Answers, but is no cluster of Ray."""

    def handle(self):
        self.request.sendall(b"220 hello\r\n")


def test_a_dead_address_and_a_wrong_token_are_told_within_seconds(group):
    code = """
    import sys, time
    import unisono
    from unisono.distribute.coordinator import RayCarrier
    spec = unisono.train.ClusterSpec({"worker": ["a:1"], "ps": ["b:1"]})
    start = time.monotonic()
    for address in (*sys.argv[1:], None):
        try:
            RayCarrier(address).start(spec)
        except Exception as error:
            print(type(error).__name__, error)
    assert time.monotonic() - start < 10
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{probe.getsockname()[1]}"
    address = group.carrier._connection.address
    given = {"RAY_ADDRESS": address, "RAY_AUTH_TOKEN": "0" * 64}
    with socketserver.TCPServer(("127.0.0.1", 0), _Hello) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        other = f"127.0.0.1:{stranger.server_address[1]}"
        told = _run(code, dead, "nonsense", other, **given).splitlines()
        stranger.shutdown()
    assert told[0].startswith(f"UnavailableError No cluster of Ray answers at {dead}")
    assert told[1].endswith("is 'nonsense', without a port; use 'host:port'.")
    assert told[2].startswith(
        f"UnavailableError The server at {other} is no cluster of Ray"
    )
    assert told[3].startswith(
        f"PermissionError The cluster of Ray at {address} does not accept this process"
    )


def test_a_killed_program_leaves_nothing_behind(tmp_path):
    code = """
    import os, time
    from unisono._src.servers.ray import node
    made = node.start_head("127.0.0.1", node.find_free_port(), "0" * 64, 60)
    print(made.folder, flush=True)
    time.sleep(100)
    """
    with _start(code, UNISONO_TEST_MARK=str(tmp_path)) as program:
        folder = pathlib.Path(program.stdout.readline().strip())
        assert folder.is_dir()
        assert len(launchers.marked_processes(str(tmp_path))) > 3
        program.kill()
    launchers.wait_for(
        lambda: not launchers.marked_processes(str(tmp_path)) and not folder.exists(),
        "the end of Ray's processes and of the folder",
    )


@pytest.mark.feature("U02")
def test_a_launched_job_has_a_chief_servers_and_workers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import unisono
            from unisono import distribute

            found = distribute.cluster_resolver.TFConfigClusterResolver()
            if found.task_type in ("worker", "ps"):
                cluster = found.cluster_spec()
                distribute.Server(cluster, found.task_type, found.task_id).join()
            strategy = distribute.ParameterServerStrategy(found)
            coordinator = distribute.coordinator.ClusterCoordinator(strategy)
            with strategy.scope():
                total = unisono.Variable(0)

            @unisono.function
            def add():
                total.assign_add(1)

            for _ in range(50):
                coordinator.schedule(add)
            coordinator.join()
            address = found.cluster_spec().task_address("worker", 0)
            carrier = strategy._cluster.carrier
            is_there = carrier.address("worker", 0).startswith(address)
            print("total", int(total.numpy()), is_there)
            """
        )
    )
    mark = f"RAY_AUTH_TOKEN={tmp_path.name}"
    command = ["-m", "unisono", "launch", "--ps", "1", "--workers", "1", "--plain"]
    done = subprocess.run(
        [sys.executable, *command, str(script)],
        capture_output=True,
        text=True,
        timeout=115,
        env=os.environ | {"RAY_AUTH_TOKEN": tmp_path.name},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[chief 0/1] total 50 True\n"
    launchers.wait_for(
        lambda: not launchers.marked_processes(mark), "their end", seconds=60.0
    )


def _start(code, *args, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def _run(code, *args, **environment):
    with _start(code, *args, **environment) as program:
        out, _ = program.communicate(timeout=100)
    assert program.returncode == 0
    return out
