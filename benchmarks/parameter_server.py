"""Measures closures per second on Ray, beside TensorFlow, and kills workers.

usage: python benchmarks/parameter_server.py [--tensorflow PYTHON] [--kills N]
           [--rounds N] [--bytes] [--table ROWSxWIDTH]

Two workers and two servers on this machine run closures that do nothing, that add 1 to
a scalar, and that pull and push a variable of 1 MB. If PYTHON is an interpreter that
has TensorFlow, the same programs run there, too: both take turns in each round, so that
both see the same load of the machine, and the best round of each counts.

``--kills N`` kills workers N times at random: before, in and between closures, two at
once, and while a dataset is made. Counters must have at least what was scheduled, and
exactly that with ``exactly_once``. ``--bytes`` compares the ways by which arrays can
travel between two actors; docs/decisions/0027 has the results.

``--table 10000000x64`` makes a table of float32 on three servers, and shows what each
holds, what a step that touches 4,096 rows moves, and what it takes to save the table
and to restore it on two servers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import mmap
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

WORKERS, SERVERS = 2, 2
# The name of each program, and how many closures a round has.
PROGRAMS = {"empty": 1000, "scalar": 1000, "1 MB": 300}


def _time_closures(coordinator: Any, program: Any, count: int) -> float:
    """Returns closures per second."""
    begin = time.perf_counter()
    for _ in range(count):
        coordinator.schedule(program)
    coordinator.join()
    return count / (time.perf_counter() - begin)


def _make_programs(module: Any, strategy: Any) -> dict[str, Any]:
    """Returns the programs, for unisono or for TensorFlow."""
    with strategy.scope():
        total = module.Variable(0.0)
        large = module.Variable(np.zeros(250_000, np.float32))

    @module.function
    def empty() -> None:
        return None

    @module.function
    def scalar() -> None:
        total.assign_add(1.0)

    @module.function
    def megabyte() -> None:
        large.assign_add(large * 0.0 + 1.0)

    return dict(zip(PROGRAMS, (empty, scalar, megabyte)))


@contextlib.contextmanager
def _strategy(
    workers: int = WORKERS, servers: int = SERVERS, partitioner: Any = None
) -> Iterator[tuple[Any, Any]]:
    """Gives a strategy on Ray, and its coordinator."""
    import unisono

    jobs = {"worker": [f"w{i}:1" for i in range(workers)]}
    jobs["ps"] = [f"p{i}:1" for i in range(servers)]
    resolver = unisono.distribute.cluster_resolver.SimpleClusterResolver(
        unisono.train.ClusterSpec(jobs)
    )
    strategy = unisono.distribute.ParameterServerStrategy(resolver, partitioner)
    try:
        yield strategy, unisono.distribute.coordinator.ClusterCoordinator(strategy)
    finally:
        strategy.shutdown()


# ---------------------------------------------------------------------- TensorFlow


def _serve_tensorflow(cluster: dict[str, list[str]], job: str, index: int) -> None:
    import tensorflow as tf

    spec = tf.train.ClusterSpec(cluster)
    tf.distribute.Server(spec, job_name=job, task_index=index, protocol="grpc").join()


def run_tensorflow() -> None:
    """Runs the programs on TensorFlow, each when its name comes on standard input."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    with contextlib.ExitStack() as opened:
        probes = [opened.enter_context(socket.socket()) for _ in range(4)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        free = [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    cluster = {"worker": free[:WORKERS], "ps": free[WORKERS:]}
    context = multiprocessing.get_context("spawn")
    tasks = [
        context.Process(target=_serve_tensorflow, args=(cluster, job, index))
        for job, addresses in cluster.items()
        for index in range(len(addresses))
    ]
    for task in tasks:
        task.start()
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    programs = _make_programs(tf, strategy)
    for program in programs.values():
        _time_closures(coordinator, program, 10)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        name = line.strip()
        found = _time_closures(coordinator, programs[name], PROGRAMS[name])
        print(json.dumps(found), flush=True)
    for task in tasks:
        task.kill()
    os._exit(0)  # Threads of the coordinator would wait for the servers.


class _TensorFlow:
    """The same programs, in a process of an interpreter that has TensorFlow."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, "--as-tensorflow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
        )
        self._read()

    def time(self, name: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit("TensorFlow's process has ended.")
        return json.loads(line)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# --------------------------------------------------------------------------- rates


def rates(python: str | None, rounds: int) -> dict[tuple[str, str], float]:
    """Returns closures per second, by who runs them and the program's name."""
    import unisono

    other = _TensorFlow(python) if python else None
    best: dict[tuple[str, str], float] = {}
    with _strategy() as (strategy, coordinator):
        programs = _make_programs(unisono, strategy)
        for program in programs.values():
            _time_closures(coordinator, program, 50)
        for _ in range(rounds):
            for name, count in PROGRAMS.items():
                found = {"unisono": _time_closures(coordinator, programs[name], count)}
                if other is not None:
                    found["TensorFlow"] = other.time(name)
                for who, rate in found.items():
                    best[who, name] = max(rate, best.get((who, name), 0.0))
    if other is not None:
        other.stop()
    return best


def compare(python: str | None, rounds: int) -> None:
    """Shows closures per second, and the ratio to TensorFlow's."""
    best = rates(python, rounds)
    print(f"closures per second, best of {rounds}:")
    for name in PROGRAMS:
        line = f"  {name:8} unisono {best['unisono', name]:7.0f}"
        if python is not None:
            theirs = best["TensorFlow", name]
            ratio = best["unisono", name] / theirs
            line += f"   TensorFlow {theirs:7.0f}   ratio {ratio:.2f}"
        print(line)


# --------------------------------------------------------------------------- kills


_MOMENTS = ("before", "in", "between", "two", "dataset")
_EACH = 300


class _Killing:
    """Closures that count, and workers that are killed meanwhile."""

    def __init__(self, strategy: Any, coordinator: Any) -> None:
        import unisono

        self._strategy, self._coordinator = strategy, coordinator
        self._random = random.Random(0)
        self.killed: set[int] = set()
        with strategy.scope():
            self.once, self.often = unisono.Variable(0), unisono.Variable(0)

        @unisono.function
        def add_once(iterator: Any) -> None:
            next(iterator)
            self.once.assign_add(1)

        @unisono.function
        def add_often() -> None:
            self.often.assign_add(1)

        self._add_once, self._add_often = add_once, add_often
        self._make_dataset()

    def _make_dataset(self) -> None:
        import unisono

        def make() -> Any:
            time.sleep(0.2)
            return unisono.data.Dataset.range(10**9)

        self._iterator = iter(self._coordinator.create_per_worker_dataset(make))

    def _processes(self) -> list[int]:
        carrier = self._strategy._cluster.carrier
        return [carrier.process("worker", i) for i in range(WORKERS)]

    def wait_for_workers(self) -> None:
        """Waits until those that were killed are back."""
        while not self.killed.isdisjoint(self._processes()):
            # A lost worker is noticed, and replaced, when it gets something to do.
            for _ in range(4 * WORKERS):
                self._coordinator.schedule(self._add_often)
            self._coordinator.join()

    def run(self, moment: str) -> float:
        """Runs closures and kills one worker, or two; returns the seconds of `join`."""
        if moment == "dataset":
            self._make_dataset()
        if moment == "before":
            self._kill(moment)
        for _ in range(_EACH):
            self._coordinator.schedule(
                self._add_once, args=(self._iterator,), exactly_once=True
            )
            self._coordinator.schedule(self._add_often)
        if moment == "between":
            self._coordinator.join()
        begin = time.perf_counter()
        if moment != "before":
            time.sleep(self._random.uniform(0.0, 0.1))
            self._kill(moment)
        self._coordinator.join()
        return time.perf_counter() - begin

    def _kill(self, moment: str) -> None:
        pids = self._processes()
        for pid in pids if moment == "two" else [self._random.choice(pids)]:
            os.kill(pid, signal.SIGKILL)
            self.killed.add(pid)


def kill_workers(kills: int) -> None:
    """Kills workers at random while closures run, and checks the counters."""
    with _strategy() as (strategy, coordinator):
        killing, seconds = _Killing(strategy, coordinator), []
        for kill in range(kills):
            killing.wait_for_workers()
            moment = _MOMENTS[kill % len(_MOMENTS)]
            seconds.append(killing.run(moment))
            scheduled = _EACH * (kill + 1)
            counts = int(killing.once.numpy()), int(killing.often.numpy())
            print(f"  kill {kill + 1:2} {moment:8} {counts} of {scheduled}", flush=True)
            if counts[0] != scheduled or counts[1] < scheduled:
                sys.exit("The counters are wrong.")
        count = len(killing.killed)
    print(
        f"{kills} kills of {count} processes: {scheduled} closures counted exactly "
        f"once, and at least once; the slowest join took {max(seconds):.1f} s."
    )


# --------------------------------------------------------------------------- table


_TOUCHED = 4096
_PARTS_PER_SERVER = 4


def _count_arrays(message: Any) -> list[int]:
    """Returns the bytes of the arrays of rows in a message, and of all others."""
    if isinstance(message, np.ndarray):
        return [message.nbytes, 0] if message.ndim > 1 else [0, message.nbytes]
    if isinstance(message, dict):
        message = list(message.values())
    if not isinstance(message, list | tuple):
        return [0, 0]
    found = [_count_arrays(x) for x in message]
    return [sum(x[i] for x in found) for i in (0, 1)]


def _count_in_servers() -> None:
    """Lets the processes of servers count what they receive and send."""
    from unisono._src.servers.ray import actors, shared_memory

    class Counting(actors.TaskActor):  # type: ignore[misc]
        moved = (0, 0)

        def carry(self, method: str, args: Any, place: Any, reply: Any) -> Any:
            if method == "moved":
                return actors.Answer(self.moved)
            # Nothing is packed here, so that all arrays can be seen.
            if place is not None:
                args = shared_memory.unpack(args, self._mappings[place])
            answer = super().carry(method, args, None, None)
            each = self.moved, _count_arrays(args), _count_arrays(answer.message)
            self.moved = tuple(map(sum, zip(*each, strict=True)))
            return answer

    actors.TaskActor = Counting  # type: ignore[misc]


def _make_table(strategy: Any, shape: tuple[int, int], is_new: bool) -> Any:
    """Returns a table of which each row has its number, or of zeros."""
    import unisono

    def make(partition_shape: Any = None, partition_offset: Any = None) -> Any:
        begin = partition_offset[0] if is_new else 0
        rows = np.arange(begin, begin + partition_shape[0], dtype=np.float32) * is_new
        return np.broadcast_to(rows[:, None], partition_shape)

    with strategy.scope():
        return unisono.Variable(make, shape=shape, dtype="float32", name="table")


def _peak(pid: int) -> float:
    """Returns the most GB of memory that a process has had."""
    with open(f"/proc/{pid}/status") as file:
        line = next(x for x in file if x.startswith("VmHWM"))
    return int(line.split()[1]) / 1e6


def _moved(strategy: Any, servers: int) -> Any:
    calls = [strategy._cluster.carrier.server(i).call("moved") for i in range(servers)]
    return np.sum([call.result() for call in calls], axis=0)


def _show_step(strategy: Any, coordinator: Any, table: Any, rows: Any) -> None:
    """Shows what a step moves that looks rows up and updates them."""
    import optax

    import unisono

    with strategy.scope():
        optimizer = unisono.optimizers.Optimizer(optax.sgd(0.1), [table])

    @unisono.function
    def step(ids: Any) -> Any:
        with unisono.GradientTape() as tape:
            found = unisono.nn.embedding_lookup(table, ids)
            loss = (found**2).mean()
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])
        return loss

    coordinator.schedule(step, args=(rows,)).fetch()
    servers = len(strategy.extended.parameter_devices)
    before, begin = _moved(strategy, servers), time.perf_counter()
    coordinator.schedule(step, args=(rows,)).fetch()
    seconds = time.perf_counter() - begin
    values, others = _moved(strategy, servers) - before
    size = rows.size * table.shape[1] * 4
    print(
        f"a step that touches {rows.size:,} rows ({size:,} bytes) moves {values:,} "
        f"bytes of rows, {values / size:.3f} times theirs, and {others:,} bytes of "
        f"positions and counters; {seconds * 1e3:.0f} ms"
    )


def show_table(given: str) -> None:
    """Shows what a large table takes on three servers, and saves and restores it."""
    import unisono

    count, width = map(int, given.split("x"))
    partition = unisono.distribute.experimental.partitioners.FixedShardsPartitioner
    rows = np.random.default_rng(0).choice(count, _TOUCHED, replace=False)
    rows = rows.astype(np.int32)
    _count_in_servers()
    with tempfile.TemporaryDirectory(prefix="table-") as folder:
        with _strategy(1, 3, partition(3 * _PARTS_PER_SERVER)) as pair:
            begin = time.perf_counter()
            table = _make_table(pair[0], (count, width), is_new=True)
            print(f"made in {time.perf_counter() - begin:.1f} s", flush=True)
            carrier = pair[0]._carrier
            for i in range(3):
                held = carrier.server(i).call("describe").result().values()
                size, share = sum(x[2] for x in held), 1 / (count * width * 4)
                peak = _peak(carrier.process("ps", i))
                print(
                    f"server {i} holds {size:,} bytes, {size * share:.4f} of all; "
                    f"at most {peak:.2f} GB of memory"
                )
            _show_step(*pair, table, rows)
            wanted = np.asarray(table.sparse_read(rows))
            before, begin = _peak(os.getpid()), time.perf_counter()
            path = unisono.train.Checkpoint(table=table).write(f"{folder}/c")
            seconds = time.perf_counter() - begin
            peaks = [f"{_peak(carrier.process('ps', i)):.2f}" for i in range(3)]
            print(
                f"saved in {seconds:.1f} s; the coordinator's peak went from "
                f"{before:.2f} to {_peak(os.getpid()):.2f} GB; the servers had "
                f"{', '.join(peaks)} GB",
                flush=True,
            )
            del table
        with _strategy(1, 2, partition(5)) as pair:
            table = _make_table(pair[0], (count, width), is_new=False)
            before, begin = _peak(os.getpid()), time.perf_counter()
            unisono.train.Checkpoint(table=table).read(path).assert_consumed()
            seconds = time.perf_counter() - begin
            assert np.array_equal(np.asarray(table.sparse_read(rows)), wanted)
            others = np.setdiff1d(np.arange(0, count, 9_973, dtype=np.int32), rows)
            found = np.asarray(table.sparse_read(others))
            assert np.array_equal(found[:, 0], others.astype(np.float32))
            assert (found == found[:, :1]).all()
            print(
                f"restored on two servers in {seconds:.1f} s, bit for bit; the "
                f"coordinator's peak went from {before:.2f} to "
                f"{_peak(os.getpid()):.2f} GB"
            )


# --------------------------------------------------------------------------- bytes


class _Segment:
    """Memory that another process can open."""

    def __init__(self, size: int) -> None:
        self.descriptor = os.memfd_create("bytes")
        os.ftruncate(self.descriptor, size)
        self.memory = np.frombuffer(mmap.mmap(self.descriptor, size), np.uint8)
        self.place = os.getpid(), self.descriptor, size


def _start_transfer() -> Any:
    import jax
    from jax.experimental import transfer

    client = jax.devices()[0].client
    return transfer.start_transfer_server(client, "127.0.0.1:0", ["127.0.0.1:0"])


def _spec(size: int) -> Any:
    import jax

    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.ShapeDtypeStruct((size,), np.uint8, sharding=here)


class _Keeper:
    """Keeps arrays, and gives and takes them in four ways."""

    def __init__(self) -> None:
        self._arrays: dict[int, np.ndarray] = {}
        self._maps: dict[Any, np.ndarray] = {}
        self._number = 0

    def make(self, size: int) -> None:
        self._arrays[size] = np.ones(size, np.uint8)

    def pull_result(self, size: int) -> Any:
        return self._arrays[size]

    def push_result(self, size: int, array: Any) -> None:
        self._arrays[size][:] = array

    def pull_store(self, size: int) -> Any:
        import ray

        return [ray.put(self._arrays[size])]

    def push_store(self, size: int, refs: Any) -> None:
        import ray

        self._arrays[size][:] = ray.get(refs[0])

    def _map(self, place: Any) -> np.ndarray:
        if place not in self._maps:
            opened = os.open(f"/proc/{place[0]}/fd/{place[1]}", os.O_RDWR)
            self._maps[place] = np.frombuffer(mmap.mmap(opened, place[2]), np.uint8)
            os.close(opened)
        return self._maps[place]

    def pull_shared(self, size: int, place: Any) -> None:
        self._map(place)[:size] = self._arrays[size].copy()

    def push_shared(self, size: int, place: Any) -> None:
        self._arrays[size][:] = self._map(place)[:size].copy()

    def start_transfer(self) -> str:
        self._server = _start_transfer()
        address: str = self._server.address()
        return address

    def pull_transfer(self, size: int) -> int:
        import jax

        self._number += 1
        array = jax.block_until_ready(jax.device_put(self._arrays[size]))
        self._server.await_pull(self._number, [array])
        return self._number

    def push_transfer(self, size: int, address: str, number: int) -> None:
        if not hasattr(self, "_peer"):
            self._peer = self._server.connect(address)
        (found,) = self._peer.pull(number, [_spec(size)])
        self._arrays[size][:] = np.asarray(found)


class _Caller:
    """Pulls arrays from a keeper and pushes them, and takes the time."""

    def __init__(self, keeper: Any) -> None:
        self._keeper, self._number = keeper, 10**6

    def time(self, way: str, size: int, repeats: int) -> float:
        """Returns the milliseconds of the fastest of so many."""
        self._size, self._array = size, np.ones(size, np.uint8)
        self._segment = _Segment(size)
        if way.endswith("transfer"):
            self._connect()
        go = getattr(self, "_" + way.replace(" ", "_"))
        go()
        taken = []
        for _ in range(repeats):
            begin = time.perf_counter()
            go()
            taken.append(time.perf_counter() - begin)
        return min(taken) * 1e3

    def _ask(self, method: str, *args: Any) -> Any:
        import ray

        return ray.get(getattr(self._keeper, method).remote(*args))

    def _call(self) -> Any:
        return self._ask("make", 1)

    def _pull_result(self) -> Any:
        return self._ask("pull_result", self._size)

    def _push_result(self) -> Any:
        return self._ask("push_result", self._size, self._array)

    def _pull_store(self) -> Any:
        import ray

        return ray.get(self._ask("pull_store", self._size)[0])

    def _push_store(self) -> Any:
        import ray

        return self._ask("push_store", self._size, [ray.put(self._array)])

    def _pull_shared(self) -> Any:
        self._ask("pull_shared", self._size, self._segment.place)
        return self._segment.memory[: self._size].copy()

    def _push_shared(self) -> Any:
        self._segment.memory[: self._size] = self._array
        return self._ask("push_shared", self._size, self._segment.place)

    def _pull_transfer(self) -> Any:
        number = self._ask("pull_transfer", self._size)
        return np.asarray(self._peer.pull(number, [_spec(self._size)])[0])

    def _push_transfer(self) -> Any:
        import jax

        self._number += 1
        self._server.await_pull(self._number, [jax.device_put(self._array)])
        own = self._server.address()
        return self._ask("push_transfer", self._size, own, self._number)

    def _connect(self) -> None:
        import ray

        if not hasattr(self, "_server"):
            self._server = _start_transfer()
            address = ray.get(self._keeper.start_transfer.remote())
            self._peer = self._server.connect(address)


def compare_bytes(rounds: int) -> None:
    """Shows the milliseconds of pulls and pushes, by way and size."""
    from unisono._src.servers.ray import connection

    ways = [f"{a} {b}" for a in ("pull", "push") for b in _WAYS]
    opened = connection.open_local(120.0)
    import ray

    keeper = ray.remote(num_cpus=0)(_Keeper).remote()
    caller = ray.remote(num_cpus=0)(_Caller).remote(keeper)
    best: dict[tuple[str, int], float] = {}
    for size in _SIZES:
        ray.get(keeper.make.remote(size))
    for _ in range(rounds):
        for size, repeats in _SIZES.items():
            for way in ("call", *ways):
                found = ray.get(caller.time.remote(way, size, repeats))
                best[way, size] = min(found, best.get((way, size), float("inf")))
    opened.close()
    print(f"milliseconds, fastest of {rounds} rounds:")
    print(f"  {'':14}" + "".join(f"{size:>13,}" for size in _SIZES))
    for way in ("call", *ways):
        print(f"  {way:14}" + "".join(f"{best[way, s]:13.2f}" for s in _SIZES))


_WAYS = ("result", "store", "shared", "transfer")
_SIZES = {1_000: 200, 100_000: 100, 1_000_000: 60, 10_000_000: 20, 100_000_000: 4}


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensorflow", metavar="PYTHON")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--table", metavar="ROWSxWIDTH")
    parser.add_argument("--as-tensorflow", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.as_tensorflow:
        run_tensorflow()
    elif given.table:
        show_table(given.table)
    elif given.bytes:
        compare_bytes(given.rounds)
    elif given.kills:
        kill_workers(given.kills)
    else:
        compare(given.tensorflow, given.rounds)


if __name__ == "__main__":
    main()
