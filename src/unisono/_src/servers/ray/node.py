"""A node of Ray, as a child of this process and with a folder of its own."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import final

from unisono._src.foundation import errors
from unisono._src.servers.ray import node_process

LOOPBACK = "127.0.0.1"
# The label by which a node is known; its value is a task such as ``worker-0``.
LABEL = "unisono-task"
_PREFIX = "unisono-"
# The system's limit for the path of a socket, and the longest that Ray puts into its
# folder: the name of a session ends with the number of a process.
_LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
_SESSION = "session_2026-01-31_23-59-59_123456_4194304"
_SOCKET = f"/{_PREFIX}12345678/{_SESSION}/sockets/plasma_store"
_PAUSE = 0.02
_STOP_SECONDS = 20.0
# Keeps Ray from sending reports, printing notices and asking questions.
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_USAGE_STATS_PROMPT_ENABLED": "0",
    # Actors without a GPU keep their hands off the machine's GPUs.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    # A lost node is known after 5 × 300 ms, not after 15 s.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "1500",
    "RAY_health_check_failure_threshold": "5",
}
# The allocator keeps the memory of arrays for the next ones. Otherwise it would give it
# back and get it anew for each message, which takes 20 times as long as a copy of 1 MB.
_ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(128 << 20),
}


@final
class RayNode:
    """Runs a node of Ray until it is stopped or this process ends.

    Args:
        host: the address of this machine at which the node is reached. On the loopback
            address nothing of it can be reached from other machines.
        token: the secret that whoever calls the node must know.
        options: further options of ``ray start``.

    Raises:
        OSError: no folder for temporary files has a short enough path.
    """

    def __init__(self, host: str, token: str, options: list[str]) -> None:
        self.folder = make_folder()
        self.host = host
        # `-P`: the folder of the program does not come into `sys.path`, where
        # the modules of this room would hide others of the same names. The supervisor
        # needs the standard library only (`-I -S`), so that it starts at once and no
        # package can break it.
        file = node_process.__file__
        command = [sys.executable, "-P", file, "start"]
        supervisor = [sys.executable, "-I", "-S", file, "supervise", self.folder]
        self._process = subprocess.Popen(
            [*supervisor, *command, *self._build_options(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=_environment(os.environ, token),
            # It outlives this process for a moment, to tidy up.
            start_new_session=True,
        )

    def _build_options(self, options: list[str]) -> list[str]:
        return [
            f"--node-ip-address={self.host}",
            f"--temp-dir={self.folder}",
            "--disable-usage-stats",
            # Ray would start a process for each; servers and workers ask for none.
            "--num-cpus=0",
            "--include-log-monitor=false",
            # A free port. No dashboard is served there.
            "--dashboard-agent-listen-port=0",
            *options,
        ]

    @property
    def is_running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def stop(self, *, leaves_in_order: bool = False) -> None:
        """Ends it, and removes its folder.

        Args:
            leaves_in_order: whether the head of the cluster stays and shall know at
                once that the node leaves, which takes seconds.
        """
        process = self._process
        assert process.stdin is not None and process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(node_process.LEAVE if leaves_in_order else b"")
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stderr.close()
        # Its supervisor has done so, unless it was killed.
        shutil.rmtree(self.folder, ignore_errors=True)

    def read_last_output(self) -> str:
        """Returns the text that the node printed before it ended by itself."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode("utf-8", "replace").strip()


def make_folder() -> str:
    """Makes a folder in which the paths of Ray's sockets are not too long.

    It is in the folder for temporary files, if that is short enough.

    Raises:
        OSError: no folder is.
    """
    longest = _LONGEST_SOCKET - len(_SOCKET)
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        is_usable = os.access(parent, os.W_OK | os.X_OK)
        if is_usable and len(os.fsencode(parent)) <= longest:
            return tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    raise OSError(
        f"The folder for temporary files, {tempfile.gettempdir()}, has too long a path "
        "for the sockets that Ray makes there, and /tmp cannot be used. Set TMPDIR to "
        f"a folder whose path has at most {longest} characters."
    )


def start_head(host: str, port: int, token: str, seconds: float) -> RayNode:
    """Starts the node that all others join, and waits until it answers.

    Raises:
        UnavailableError: it does not start; the message has what Ray said.
    """
    options = ["--head", f"--port={port}", "--no-monitor", "--include-dashboard=false"]
    made = RayNode(host, token, [*options, f"--labels={LABEL}=chief-0"])
    try:
        wait_for(
            lambda: _is_ready(made, port),
            f"Ray's head node at {host}:{port}",
            seconds,
        )
    except BaseException:
        made.stop()
        raise
    return made


def _is_ready(node: RayNode, port: int) -> bool:
    if not node.is_running:
        raise errors.UnavailableError(
            f"Ray's node at {node.host}:{port} has ended at its start. It said:\n"
            f"{node.read_last_output()}"
        )
    # The head's store listens before its node can run actors.
    sockets = os.path.join(node.folder, "session_latest", "sockets", "raylet")
    return os.path.exists(sockets) and is_listening(node.host, port)


def wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Waits until a condition holds.

    Raises:
        UnavailableError: it does not, after so many seconds; the message says for what.
    """
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise errors.UnavailableError(f"Waited {seconds:g} s for {what}.")
        time.sleep(_PAUSE)


def is_listening(host: str, port: int) -> bool:
    """Whether somebody takes connections at an address."""
    try:
        socket.create_connection((host, port), timeout=2.0).close()
    except OSError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.7")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_free_port() -> int:
    """Returns a port of the loopback address that nobody uses."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _environment(given: Mapping[str, str], token: str) -> dict[str, str]:
    # By this mark the launcher finds, and kills, what its workers have left behind. The
    # supervisor does so itself, and removes the node's folder besides.
    kept = {k: v for k, v in given.items() if k != "UNISONO_WORKER_MARK"}
    return {
        **_ALLOCATOR,
        **kept,
        **_QUIET,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        node_process.MARK: secrets.token_hex(12),
    }
