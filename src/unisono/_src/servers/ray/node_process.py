"""The programs that run one node of Ray: its supervisor, and the node itself.

``supervise FOLDER COMMAND`` starts the command, and waits until its standard input
ends, which it does when the process that has started it ends, even if that was killed.
Then it ends the node and every process that came from it, and removes the folder of the
job. If it has read something before, the node leaves its cluster in order first. It
imports the standard library only.

``start OPTIONS`` starts the processes of a node, as the command ``ray start`` does. It
differs in one thing. Ray takes a loopback address for a wish to be reached from other
machines: it would replace it by the machine's own address and listen on all interfaces.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

# A variable with a random value, which all processes of the node inherit.
MARK = "UNISONO_RAY_NODE"
# What the supervisor reads if the node shall leave its cluster in order.
LEAVE = b"leave"
# What the node prints, in the folder of the job.
LOG = "node.log"
# How long the node may take to leave in order, and to end when killed.
_STOP_SECONDS = 3.0
_KILL_SECONDS = 10.0
_PAUSE = 0.02
# The end of the log is shown if the node did not stay.
_TAIL = 4000
_PR_SET_PDEATHSIG = 1
_PROC = pathlib.Path("/proc")


def supervise(folder: pathlib.Path, command: list[str]) -> int:
    """Runs a node until standard input ends; returns its exit code."""
    with open(folder / LOG, "wb") as log:
        node = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A signal to the program, such as Ctrl-C, must not end the node before it.
            start_new_session=True,
            preexec_fn=_end_with_supervisor,
        )
    is_asked, is_wanted = threading.Event(), threading.Event()
    is_wanted.set()
    reader = threading.Thread(
        target=_wait_for_end, args=(is_asked, is_wanted), daemon=True
    )
    reader.start()
    while is_wanted.is_set() and node.poll() is None:
        time.sleep(_PAUSE)
    if node.poll() is not None:
        text = (folder / LOG).read_bytes()[-_TAIL:]
        sys.stderr.write(text.decode("utf-8", "replace"))
    end(node, _STOP_SECONDS if is_asked.is_set() else 0.0)
    shutil.rmtree(folder, ignore_errors=True)
    return node.wait()


def _end_with_supervisor() -> None:
    """Asks Linux to end this process, the node's, if its supervisor is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_for_end(is_asked: threading.Event, is_wanted: threading.Event) -> None:
    # Not by `sys.stdin`, whose lock a thread would hold when Python ends: an abort.
    while os.read(0, 1 << 12):
        is_asked.set()
    is_wanted.clear()


def end(node: subprocess.Popen[bytes], seconds: float) -> None:
    """Ends a node, which may take so many seconds, and all that came from it."""
    if seconds:
        with contextlib.suppress(ProcessLookupError):
            node.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(seconds)
    until = time.monotonic() + _KILL_SECONDS
    while (found := _find_marked(node)) and time.monotonic() < until:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        node.poll()
        time.sleep(_PAUSE)


def _find_marked(node: subprocess.Popen[bytes]) -> list[int]:
    """Returns the processes that came from the node."""
    if not _PROC.joinpath("self/stat").exists():
        # Ray ends its own processes when the one that has started them is gone.
        return [node.pid] if node.poll() is None else []
    mark = f"{MARK}={os.environ[MARK]}".encode()
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        # Another process may end at any time, or belong to another user.
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may contain anything.
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            variables = (entry / "environ").read_bytes().split(b"\0")
            # Ray's processes write their titles over their arguments and a part of
            # their environment, so the mark may be gone; the node's session is not.
            # After the name: state, parent, group and session.
            is_of_node = int(fields[3]) == node.pid or mark in variables
            # Zombies wait for their parent, and cannot be killed.
            if fields[0] not in "ZX" and is_of_node:
                found.append(int(entry.name))
    return found


def start(options: list[str]) -> None:
    """Starts a node, and returns when it has ended."""
    # Loaded here: only the process of a node needs them.
    from ray._private import services
    from ray.scripts import scripts

    # Ray has no option for it. Ray 2.60 has this function; where it is gone, a node
    # would be reached under the address of the machine.
    services.resolve_ip_for_localhost = lambda host: host
    scripts.cli(["start", "--block", *options])


def main(role: str, *arguments: str) -> int:
    """Runs the supervisor of a node, or the node; returns the exit code."""
    if role == "start":
        start(list(arguments))
        return 0
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    return supervise(pathlib.Path(arguments[0]), list(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
