"""Starts the real launcher on small scripts, and sees that it leaves nothing behind."""

import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import textwrap
import time
import uuid

import pytest

import unisono

SOURCE = str(pathlib.Path(unisono.__file__).resolve().parents[1])
MARK = "UNISONO_TEST_MARK"
# The command line by itself, without `import unisono` and JAX, which take a second.
# Whoever runs the tests may have told them to ignore the end of a terminal.
MAIN = f"""
import signal, sys, types
signal.signal(signal.SIGHUP, signal.SIG_DFL)
sys.modules["unisono"] = types.ModuleType("unisono")
sys.modules["unisono"].__path__ = [{SOURCE + "/unisono"!r}]
from unisono._src.cli.main import main
assert "jax" not in sys.modules
main()
"""

# What every script of these tests may use.
PREAMBLE = """
import json, os, signal, sys, time, pathlib
CONFIG = json.loads(os.environ["TF_CONFIG"])
INDEX = CONFIG["task"]["index"]
COUNT = len(CONFIG["cluster"]["worker"])
RESTART = int(os.environ["UNISONO_RESTART"])
HERE = pathlib.Path(os.environ["SCRATCH"])

def meet(name):
    (HERE / f"{name}-{INDEX}").write_text(str(os.getpid()))
    while not all((HERE / f"{name}-{i}").exists() for i in range(COUNT)):
        time.sleep(0.01)

def sleep():
    time.sleep(60)
"""


def marked_processes(mark):
    """Returns the processes whose environment has the mark: workers and their own."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for(condition, what, seconds=20.0):
    """Waits until `condition()` is true."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.01)
    return value


@dataclasses.dataclass
class Result:
    """How a launcher ended."""

    code: int
    out: str
    err: str


class Launcher:
    """One directory with scripts, and the launchers that ran them."""

    def __init__(self, directory):
        self.directory = directory
        self.scratch = directory / "scratch"
        self.scratch.mkdir()
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.mark = uuid.uuid4().hex
        self.env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("SLURM_", "OMPI_", "PMI_")) and k != "TF_CONFIG"
        } | {
            MARK: self.mark,
            "SCRATCH": str(self.scratch),
            "TMPDIR": str(self.temporary),
            "JAX_PLATFORMS": "cpu",
            # Wherever the scripts run, they find the package that is tested.
            "PYTHONPATH": os.pathsep.join(
                [SOURCE, *filter(None, [os.environ.get("PYTHONPATH")])]
            ),
        }

    def script(self, text, name="script.py"):
        """Writes a script, after the preamble."""
        path = self.directory / name
        path.write_text(PREAMBLE + textwrap.dedent(text), encoding="utf-8")
        return str(path)

    def start(self, *arguments, **options):
        """Starts ``unisono launch`` with arguments; returns the process."""
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, "launch", *map(str, arguments)],
            env=self.env | options.pop("env", {}),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            text=True,
            cwd=self.directory,
            **options,
        )

    def finish(self, process, seconds=60):
        """Waits for a launcher's end."""
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            out, err = process.communicate()
            pytest.fail(f"the launcher did not end in {seconds} s:\n{out}\n{err}")
        return Result(process.returncode, out, err)

    def run(self, *arguments, **options):
        """Runs ``unisono launch`` to its end."""
        return self.finish(self.start(*arguments, **options))

    def pids(self, name, count):
        """Waits for the process ids that `meet(name)` of `count` workers wrote."""
        paths = [self.scratch / f"{name}-{i}" for i in range(count)]
        wait_for(lambda: all(p.exists() and p.read_text() for p in paths), name)
        return [int(p.read_text()) for p in paths]

    def check_nothing_is_left(self):
        """Fails if a process or a temporary file is left."""
        wait_for(lambda: not marked_processes(self.mark), "processes to be gone", 5)
        assert list(self.temporary.iterdir()) == []


def can_bind(address):
    """Returns whether a port is free."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))
    return True
