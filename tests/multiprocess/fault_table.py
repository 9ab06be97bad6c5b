"""The faults that are tried: phase, fault and worker, and what all others must get."""

import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import uuid

from tests.multiprocess import launcher as launchers

PROGRAM = str(pathlib.Path(__file__).with_name("faulty.py"))
ERRORS = {
    "kill": "WorkerLostError",
    "terminate": "WorkerLostError",
    "abort": "WorkerLostError",
    "exit": "WorkerLostError",
    "raise": "WorkerFailedError",
    "port": "WorkerFailedError",
    "freeze": "WorkerLostError",
    "stall": "WorkerStalledError",
    "swap": "WorkerMismatchError",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A fault.

    Attributes:
        phase: what the worker does when it goes wrong.
        fault: what it does then.
        victim: which worker it is.
        seconds: how long the others may take to raise, on a machine that is not busy.
        workers: how many workers there are.
        launched: whether the launcher has started them, or something else.
        is_quick: whether it is tried with the other tests, and not only on demand.
    """

    phase: str
    fault: str
    victim: int = 1
    seconds: float = 5.0
    workers: int = 2
    launched: bool = True
    is_quick: bool = False

    @property
    def error(self):
        return ERRORS[self.fault]

    def blamed_by(self, worker):
        """Returns the worker that another one must name."""
        if self.phase == "import" and not self.launched:
            return None
        # Of two workers that differ, none can know who is right.
        is_one_of_two = self.fault == "swap" and self.workers == 2
        return 1 - worker if is_one_of_two else self.victim

    @property
    def name(self):
        by = "launched" if self.launched else "alone"
        return f"{self.phase}-{self.fault}-{self.victim}-of-{self.workers}-{by}"


PHASES = ("import", "start", "compile", "step", "silent", "eager", "save", "restore")
QUICK = {
    ("import", "exit", 1),
    ("silent", "kill", 0),
    ("save", "kill", 1),
}
ROWS = [
    *(
        Row(phase, fault, victim, is_quick=(phase, fault, victim) in QUICK)
        for phase in PHASES
        for fault in ("kill", "raise", "exit")
        for victim in (0, 1)
    ),
    Row("import", "port", 0, seconds=10.0, is_quick=True),
    Row("step", "terminate"),
    Row("step", "abort"),
    # Variables that workers have in parts, which they gather, write and read.
    *(
        Row(phase, fault, victim, is_quick=(phase, victim) == ("save-parts", 1))
        for phase in ("gather", "save-parts", "restore-parts")
        for fault, victim in (("kill", 1), ("kill", 0))
    ),
    Row("gather", "raise", 1),
    Row("gather", "kill", 2, workers=4),
    Row("input", "kill", 1),
    Row("input", "raise", 0),
    Row("join", "kill", 1),
    Row("join", "kill", 0),
    # These raise when they come back from native code.
    Row("compute", "kill", 1, seconds=15.0),
    Row("step", "stall", 1, seconds=9.0),
    # With more workers a survivor waits for others that live, and all must name one.
    *(
        Row("step", fault, 1, workers=n, is_quick=(fault, n) == ("kill", 4))
        for fault in ("kill", "raise")
        for n in (3, 4, 6, 8)
    ),
    Row("step", "kill", 0, workers=4),
    Row("silent", "raise", 2, workers=4),
    *(Row("order", "swap", 1, workers=n, is_quick=n == 3) for n in (2, 3, 4, 6, 8)),
    Row("silent", "kill", 0, workers=3),
    Row("save", "kill", 2, workers=3),
    Row("step", "stall", 1, seconds=9.0, workers=3),
    # A stopped worker is killed by the launcher after 10 s.
    *(Row(phase, "freeze", 1, 12.0) for phase in PHASES),
    Row("step", "freeze", 0, 12.0),
    Row("step", "freeze", 1, 12.0, workers=3),
    # Without our launcher silence tells, after 3.5 s.
    *(
        Row(phase, "kill", victim, 8.0, launched=False)
        for phase in ("start", "step", "silent", "save", "restore")
        for victim in (0, 1)
    ),
    Row("silent", "kill", 1, 8.0, workers=3, launched=False, is_quick=True),
    Row("save", "raise", 1, launched=False),
    Row("step", "freeze", 1, 12.0, launched=False),
    # Before all have joined there is nobody to miss a worker: the limit for joining.
    Row("import", "exit", 1, 15.0, launched=False),
    Row("import", "kill", 0, 15.0, launched=False, is_quick=True),
]


@dataclasses.dataclass
class Report:
    """What came of a fault.

    Attributes:
        told: for each survivor the error that it got; None if it got none.
        ended: the seconds from the fault to the end of the last process.
        codes: the exit status of the launcher, or of each worker.
        left: what was left: processes, files, ports.
        shared: semaphores in shared memory that have come; they may be others'.
        output: what all processes wrote.
    """

    told: dict
    ended: float
    codes: list
    left: list
    shared: list
    output: str


def run(row, directory, limit=120.0):
    """Tries a fault, and returns what came of it."""
    directory = pathlib.Path(directory)
    mark, scratch = uuid.uuid4().hex, directory / "scratch"
    scratch.mkdir()
    (directory / "tmp").mkdir()
    shared = _shared_memory()
    env = {
        **{k: v for k, v in os.environ.items() if k != "TF_CONFIG"},
        launchers.MARK: mark,
        "TMPDIR": str(directory / "tmp"),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": launchers.SOURCE,
        "TEST_TIMEOUT": "4" if row.fault == "stall" or _is_alone_frozen(row) else "30",
        "UNISONO_JOIN_SECONDS": "300" if row.launched else "8",
    }
    arguments = [row.phase, row.fault, str(row.victim), str(scratch)]
    begin = _begin_launched if row.launched else _begin_alone
    with open(directory / "output", "w+b") as output:
        processes = begin(row, arguments, env, output)
        try:
            codes = [p.wait(limit) for p in processes if p is not None]
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        ended = time.time()
        output.seek(0)
        text = output.read().decode(errors="replace")
    fault = float((scratch / "fault").read_text())
    # A worker that differs lives, and gets the error, too.
    told = {i: _read(scratch / f"told-{i}") for i in range(row.workers)
            if i != row.victim or row.fault == "swap"}  # fmt: skip
    addresses = json.loads((scratch / "cluster").read_text())
    left = _left_behind(mark, directory / "tmp", addresses)
    new = sorted(_shared_memory() - shared)
    return Report(told, ended - fault, codes, left, new, text)


def _is_alone_frozen(row):
    return row.fault == "freeze" and not row.launched


def _read(path):
    return json.loads(path.read_text()) if path.exists() else None


def _begin_launched(row, arguments, env, output):
    command = [sys.executable, "-c", launchers.MAIN, "launch", "-n", str(row.workers)]
    if row.fault == "stall":
        command += ["--grace", "1", "--stop", "2"]
    return [
        subprocess.Popen(
            [*command, PROGRAM, *arguments], env=env, stdout=output, stderr=output
        )
    ]


def _begin_alone(row, arguments, env, output):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(row.workers)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        addresses = [f"127.0.0.1:{p.getsockname()[1]}" for p in probes]
    made = []
    for i in range(row.workers):
        task = {"type": "worker", "index": i}
        config = {"cluster": {"worker": addresses}, "task": task}
        made.append(
            subprocess.Popen(
                [sys.executable, PROGRAM, *arguments],
                env={**env, "TF_CONFIG": json.dumps(config)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        )
    if row.fault == "freeze":
        # A frozen process ends only when it is killed, and nobody does that here.
        survivors = [p for i, p in enumerate(made) if i != row.victim]
        for process in survivors:
            process.wait(120)
        made[row.victim].kill()
    return made


def _shared_memory():
    folder = pathlib.Path("/dev/shm")
    return {p.name for p in folder.glob("sem.*")} if folder.is_dir() else set()


def _left_behind(mark, temporary, addresses, seconds=10.0):
    """Returns what is left some time after the end; nothing must be."""
    until = time.monotonic() + seconds
    while True:
        left = [f"process {pid}" for pid in launchers.marked_processes(mark)]
        left += [f"file {p.name}" for p in temporary.iterdir()]
        left += [f"port {a}" for a in addresses if not _is_free(a)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.1)


def _is_free(address):
    try:
        return launchers.can_bind(address)
    except OSError:
        return False
