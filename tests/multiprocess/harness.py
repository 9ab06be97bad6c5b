"""Real worker processes on loopback: started, told what to run, and always ended."""

import contextlib
import json
import os
import pathlib
import selectors
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
START_SECONDS = 60.0
CALL_SECONDS = 60.0


class WorkerFailed(Exception):
    """A scenario raised on a worker, or the worker is gone."""


def free_port():
    """Returns a port that nobody listens at."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Worker:
    """One process; scenarios go in by its input, results come back by a pipe."""

    def __init__(self, group, index, command, environment):
        self.index = index
        read, write = os.pipe()
        self.log = group.directory / f"worker{index}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, str(write)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(write,),
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )
        os.close(write)
        self.results = read
        self._buffer = b""

    def tell(self, message):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def receive(self):
        """Returns a complete message if there is one, False at the end of all."""
        more = os.read(self.results, 1 << 16)
        self._buffer += more
        line, newline, rest = self._buffer.partition(b"\n")
        if newline:
            self._buffer = rest
            return json.loads(line)
        return None if more else False

    def signal(self, number):
        if self.process.poll() is None:
            os.kill(self.process.pid, number)

    def end(self):
        # A stopped process takes no other signal than this one.
        self.signal(signal.SIGKILL)
        self.process.wait(10)
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.results)


class Group:
    """Workers that make one cluster.

    Args:
        directory: for their logs.
        workers: how many.
        devices: virtual CPU devices of each; a list if they have different numbers.
        ports: of all workers of the cluster, also of some that are not started.
        environment: more variables for all of them.
    """

    def __init__(self, directory, workers, devices=1, ports=None, **environment):
        self.directory = pathlib.Path(directory)
        self.devices = devices
        ports = ports or [free_port() for _ in range(workers)]
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        command = [sys.executable, "-u", "-m", "tests.multiprocess.worker"]
        self.workers = []
        try:
            for i in range(workers):
                given = {**os.environ, **environment, **self._variables(i)}
                self.workers.append(Worker(self, i, command, given))
            self.started = self._collect(self.workers, START_SECONDS)
        except BaseException:
            self.end()
            raise

    def _variables(self, index):
        config = {
            "cluster": {"worker": self.addresses},
            "task": {"type": "worker", "index": index},
        }
        # A list if the workers have different numbers.
        count = self.devices if isinstance(self.devices, int) else self.devices[index]
        return {
            "TF_CONFIG": json.dumps(config),
            "XLA_FLAGS": " ".join(
                [
                    os.environ.get("XLA_FLAGS", ""),
                    f"--xla_force_host_platform_device_count={count}",
                ]
            ),
            "PYTHONPATH": str(ROOT / "src"),
        }

    def send(self, scenario, **arguments):
        """Have all workers begin a scenario."""
        for w in self.workers:
            w.tell({"scenario": scenario, "arguments": arguments})

    def collect(self, seconds=CALL_SECONDS, only=None):
        """Returns what each worker says: a result, an error, or that it is gone."""
        chosen = [w for w in self.workers if only is None or w.index in only]
        return self._collect(chosen, seconds)

    def call(self, scenario, seconds=CALL_SECONDS, **arguments):
        """Returns each worker's result of a scenario; raises if one has none."""
        self.send(scenario, **arguments)
        told = self.collect(seconds)
        wrong = [f"worker {i}: {t}" for i, t in enumerate(told) if "result" not in t]
        if wrong:
            raise WorkerFailed("\n".join([*wrong, self.logs()]))
        return [t["result"] for t in told]

    def _collect(self, chosen, seconds):
        until = time.monotonic() + seconds
        told = {}
        with selectors.DefaultSelector() as ready:
            for w in chosen:
                ready.register(w.results, selectors.EVENT_READ, w)
            while len(told) < len(chosen):
                left = until - time.monotonic()
                events = ready.select(left) if left > 0 else []
                if not events:
                    late = [w.index for w in chosen if w.index not in told]
                    said = f"No answer of workers {late} within {seconds} s."
                    raise WorkerFailed(f"{said}\n{self.logs()}")
                for key, _ in events:
                    message = key.data.receive()
                    if message is None:
                        continue
                    if message is False:
                        message = {"gone": key.data.process.wait(10)}
                    told[key.data.index] = message
                    ready.unregister(key.fd)
        return [told[w.index] for w in chosen]

    def logs(self):
        """Returns the end of every worker's output."""
        return "\n".join(
            f"--- output of worker {w.index}\n{w.log.read_text()[-3000:]}"
            for w in self.workers
        )

    def end(self):
        """End all processes, whatever they do."""
        for w in self.workers:
            w.end()
        self.workers = []

    def left_behind(self, seconds=10.0):
        """Returns command lines of processes that outlive the group."""
        until = time.monotonic() + seconds
        while found := self._related():
            if time.monotonic() > until:
                return found
            time.sleep(0.1)
        return []

    def _related(self):
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                text = process.read_bytes().replace(b"\0", b" ").decode()
                if any(a in text for a in self.addresses):
                    found.append(text)
        return found

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.end()
