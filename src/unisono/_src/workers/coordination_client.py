"""Starts JAX's coordination service in a process of its own, and reaches it.

The options for mutual TLS between workers and the service come from JAX's. Here two
processes that say that they are the same worker are found.
"""

from __future__ import annotations

import ipaddress
import json
import os
import select
import socket
import subprocess
import sys
from typing import Protocol

import jax

from unisono._src.cluster import launcher_pipes
from unisono._src.foundation import errors
from unisono._src.workers import coordination_service

# Where workers publish their records in the service; and beside them, so that it is
# read with them, which index two processes have.
RECORDS = "unisono/guard/worker"
CLAIMED_TWICE = f"{RECORDS}/claimed twice"
_CLAIMS = "unisono/claims/"
# After how long without a sign of life JAX gives a worker up. The guard finds a lost
# worker much earlier.
HEARTBEAT_SECONDS = 100
# How long the service may take to listen.
_START_SECONDS = 60
# What the service prints, instead of "ready", if another process has the address.
_TAKEN = b"taken by "
_BIND_VARIABLE = "JAX_COORDINATOR_BIND_ADDRESS"
# JAX's options, each with the argument of the coordination service that it sets.
_OPTIONS = {
    "jax_mtls_cert_file": "mtls_cert_file",
    "jax_mtls_key_file": "mtls_key_file",
    "jax_mtls_ca_file": "mtls_ca_file",
    "jax_mtls_peer_uri_prefix": "mtls_peer_uri_prefix",
    "jax_distributed_verify_secure_credentials": "verify_secure_credentials",
}
_FILES = ("jax_mtls_cert_file", "jax_mtls_key_file", "jax_mtls_ca_file")


class CoordinationClient(Protocol):
    """The part of JAX's client of the service that stores texts for all workers."""

    def key_value_set(
        self, key: str, value: str, allow_overwrite: bool = False
    ) -> None:
        """Stores a text; raises `RuntimeError` if there is one."""

    def key_value_try_get(self, key: str) -> str:
        """Returns a text; raises `RuntimeError` if there is none."""

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Returns a text, once there is one."""

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Returns the keys and texts in a folder of keys."""

    def key_value_delete(self, key: str) -> None:
        """Deletes a text."""


def coordination_arguments() -> dict[str, str | bool]:
    """Returns the arguments that secure JAX's coordination service, if any are set.

    They come from JAX's own options (``jax_mtls_cert_file`` and the others, or the
    environment variables ``JAX_MTLS_CERT_FILE`` …).

    Raises:
        ValueError: some files are named and others are not, or one cannot be read.
        RuntimeError: the environment asks for secure connections, and this version of
            JAX has none.

    >>> coordination_arguments()
    {}
    """
    if not hasattr(jax.config, _FILES[0]):
        _refuse_secure_connections()
        return {}
    found = {name: getattr(jax.config, name) for name in _OPTIONS}
    given = [name for name in _FILES if found[name]]
    if given and len(given) < len(_FILES):
        missing = [name for name in _FILES if name not in given]
        raise ValueError(
            "Mutual TLS needs a certificate, its key and a CA bundle; "
            f"{_join_names(given)} {'is' if len(given) == 1 else 'are'} set and "
            f"{_join_names(missing)} not."
        )
    for name in given:
        if not os.access(found[name], os.R_OK):
            raise ValueError(
                f"The file of {name}, {found[name]!r}, cannot be read by this worker."
            )
    return {_OPTIONS[name]: value for name, value in found.items() if value}


def _refuse_secure_connections() -> None:
    """Raises `RuntimeError` if the environment asks for what this JAX lacks."""
    variables = [name.upper() for name in _OPTIONS]
    no = ("", "0", "f", "false", "n", "no", "off")
    asked = [v for v in variables if os.environ.get(v, "").lower() not in no]
    if asked:
        raise RuntimeError(
            f"{_join_names(asked)} {'asks' if len(asked) == 1 else 'ask'} for secure "
            f"connections between workers, which JAX {jax.__version__} does not have. "
            "Install a newer JAX (0.12 has them), or unset what asks for them."
        )


def _join_names(names: list[str]) -> str:
    """Returns names as a text, with commas and "and"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def start_service(
    address: str, workers: int, secured: dict[str, str | bool]
) -> subprocess.Popen[bytes]:
    """Starts the coordination service; it ends after this process and the others.

    Args:
        address: the address that workers know.
        workers: the number of workers.
        secured: the result of `coordination_arguments`.

    Returns:
        The process of the service. Keep it: the service notices the end of this process
        when its pipe closes.

    Raises:
        WorkerError: another process on this machine is the first worker, too. That one
            learns it by `read_claim`. If the two are on different machines, because
            their clusters have different addresses, neither knows of the other.
        WorkerLostError: the service cannot listen at the address.
    """
    address = bind_address(address)
    # With `-P` the folder of the file, which has modules of ours, is not on the path.
    command = [sys.executable, "-P", coordination_service.__file__]
    process = subprocess.Popen(
        [*command, address, str(workers), str(HEARTBEAT_SECONDS), json.dumps(secured)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_service_environment(),
        # Ctrl-C in a terminal goes to the worker's whole group, which this outlives.
        start_new_session=True,
    )
    assert process.stdout is not None
    is_there = select.select([process.stdout], [], [], _START_SECONDS)[0]
    said = process.stdout.readline() if is_there else b""
    if said != b"ready\n":
        process.stdout.close()
        process.kill()
        process.wait()
        if said.startswith(_TAKEN):
            first = said.removeprefix(_TAKEN).decode("utf-8", "replace").strip()
            raise claimed_twice_error(f"0 {first}, and {name_process()}")
        raise errors.WorkerLostError(
            f"The coordination service could not listen at {address}; see what it "
            "printed. Is the port taken, is another process the first worker, too, or "
            "is this not an address of this machine?"
        )
    # The service outlives this process on purpose. With a return code, `Popen` does not
    # warn at exit that it still runs.
    process.returncode = 0
    return process


def read_claim(service: subprocess.Popen[bytes]) -> str | None:
    """Returns the note about a process that wants to be the first worker, too, if any.

    Args:
        service: the process of the service, which tells each of them once.
    """
    assert service.stdout is not None
    if not select.select([service.stdout], [], [], 0)[0]:
        return None
    # It writes a whole line at once; nothing comes when it is gone.
    found = os.read(service.stdout.fileno(), 1024)
    rival = found.decode("utf-8", "replace").strip()
    return f"0 {name_process()}, and {rival}" if rival else None


def name_process() -> str:
    """Returns the name of this process, for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def claim(client: CoordinationClient, worker: int) -> errors.WorkerError | None:
    """Tells all workers which process a worker is, and if there are two.

    JAX takes the second one for the first, started again. Then one of them is aborted,
    and the other waits for ever. Of two processes with index 0 the second does not come
    here, because it cannot listen; see `start_service`.

    Args:
        client: JAX's client of the coordination service, which has joined.
        worker: the number of this worker.

    Returns:
        The error about another process that is the same worker; None if there is none.
    """
    own, place = name_process(), f"{_CLAIMS}{worker}"
    try:
        # The first one wins; a second one may not write here.
        client.key_value_set(place, own)
    except RuntimeError:
        note = f"{worker} {client.key_value_try_get(place)}, and {own}"
        client.key_value_set(CLAIMED_TWICE, note, allow_overwrite=True)
        return claimed_twice_error(note)
    return None


def claimed_twice_error(note: str) -> errors.WorkerError:
    """Returns the error about two processes that are the same worker.

    Args:
        note: the number of the worker, and the names of both processes.
    """
    worker, _, processes = note.partition(" ")
    return errors.WorkerError(
        f"Two processes say that they are worker {worker}: {processes}. Each worker "
        "needs an index of its own in TF_CONFIG (or its resolver). Is a program of an "
        "earlier run still there, or was one started twice?",
        int(worker) if worker.isdigit() else None,
    )


def _service_environment() -> dict[str, str]:
    """Returns the environment of the service, which ends after the chief."""
    # The launcher ends all processes with its mark when the worker ends.
    kept = {k: v for k, v in os.environ.items() if k != launcher_pipes.MARK}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2"}


def bind_address(address: str) -> str:
    """Returns the one address at which the coordinator listens, not all of its host's.

    >>> bind_address("localhost:1234"), bind_address("10.0.0.1:1234")
    ('127.0.0.1:1234', '10.0.0.1:1234')
    """
    given = os.environ.get(_BIND_VARIABLE)
    if given:
        return given
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if _is_loopback(host) else address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
