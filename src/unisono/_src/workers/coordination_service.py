"""Runs the coordination service of a group in a process of its own.

JAX runs the service inside the first worker. When that worker dies, the service dies,
too, and JAX ends all other workers within a fraction of a second; no `except` or
`finally` of theirs runs. In a process of its own the service outlives the first worker
for as long as others are connected, so that they learn what happened and end in order.

This file is run as a program; it imports nothing of the package.
"""

import errno
import json
import os
import select
import socket
import struct
import sys
import time

from jaxlib import _jax

# The longest time that the service waits for the other workers to leave after the
# worker that started it is gone.
_LINGER_SECONDS = 120.0
# The service ends after so long without a connection, because a worker may be about to
# connect.
_QUIET_SECONDS = 1.0
# The workers decide how long they wait for each other. If the service decided, JAX
# would abort them.
_JOIN_SECONDS = 86_400
# The service of an earlier program may need so long to end.
_FREE_SECONDS = 5.0
# How long two services that want one address wait for each other's word, and how many
# bytes it may have.
_CLAIM_SECONDS = 2.0
_LARGEST_CLAIM = 400


def _take_address(address: str) -> socket.socket | None:
    """Waits until nobody else serves at an address; ends this process if one stays.

    gRPC lets several processes listen at one port, and workers would join any of them.

    Returns:
        The socket at which a second service for the address says that it is there; None
        where the system has no such sockets.
    """
    until = time.monotonic() + _FREE_SECONDS
    while True:
        claims = None
        try:
            claims = _listen_for_claims(address)
            _try_to_listen(address)
            return claims
        except OSError as error:
            # Of anything else gRPC says what is wrong.
            if error.errno != errno.EADDRINUSE:
                return claims
            if claims is not None:
                claims.close()
            if time.monotonic() > until:
                _claim(address)
                sys.exit(f"Another process listens at {address}.")
        time.sleep(0.1)


def _try_to_listen(address: str) -> None:
    """Raises `OSError` if this process cannot listen at an address."""
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
    family, _, _, _, place = found[0]
    socket.create_server(place[:2], family=family).close()


def _claims_name(address: str) -> str:
    # Two services for one address are on one machine, in one namespace of the network.
    # There Linux has sockets with names that are no files, and end with their process.
    return f"\0unisono coordination service {address}"


def _listen_for_claims(address: str) -> socket.socket | None:
    """Returns the socket for claims; raises `OSError` if another process has it."""
    if sys.platform != "linux":
        return None
    claims = socket.socket(socket.AF_UNIX)
    try:
        claims.bind(_claims_name(address))
        claims.listen()
    except OSError:
        claims.close()
        raise
    return claims


def _claim(address: str) -> None:
    """Tells the process that serves at an address of this one, and prints its name.

    It does nothing if that is no service of this package, or one of another user.
    """
    if sys.platform != "linux":
        return
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_CLAIM_SECONDS)
            connection.connect(_claims_name(address))
            connection.sendall(_name_worker().encode())
            first = connection.recv(_LARGEST_CLAIM).decode("utf-8", "replace")
    except OSError:
        return
    if first:
        print(f"taken by {first}", flush=True)


def _name_worker() -> str:
    """Returns the name of the worker that started this process."""
    return f"process {os.getppid()} on {socket.gethostname()}"


def _pass_on_claim(claims: socket.socket) -> None:
    """Tells the worker of this process about another one that is the first, too."""
    try:
        with claims.accept()[0] as connection:
            connection.settimeout(_CLAIM_SECONDS)
            # The process, the user and the group of the other side.
            owner = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", owner)[1] != os.getuid():
                return
            second = connection.recv(_LARGEST_CLAIM).decode("utf-8", "replace")
            connection.sendall(_name_worker().encode())
        print(" ".join(second.split()), flush=True)
    except OSError:
        # The other one is gone, or the worker does not listen any more.
        return


def _connections(port: int) -> int | None:
    """Returns how many peers are connected to a port; None if that is not known."""
    # JAX's service does not tell who is connected, so the system is asked.
    count = 0
    try:
        for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
            with open(table, encoding="ascii") as lines:
                rows = [line.split() for line in lines][1:]
            # Column 1 is the local address, 3 the state, of which 01 is established.
            count += sum(int(r[1].split(":")[1], 16) == port and r[3] == "01"
                         for r in rows)  # fmt: skip
    except (OSError, IndexError, ValueError):
        return None
    return count


def _wait_for_worker(parent: int, claims: socket.socket | None) -> None:
    """Waits until the worker that started this process is gone, or closes its pipe."""
    watched: list[int | socket.socket] = [0] if claims is None else [0, claims]
    # A child of the worker may hold the pipe open, so this looks for the worker, too.
    while os.getppid() == parent:
        found = select.select(watched, [], [], 1.0)[0]
        if claims is not None and claims in found:
            _pass_on_claim(claims)
        if 0 in found and not os.read(0, 1024):
            return


def _wait_for_others(port: int) -> None:
    until = time.monotonic() + _LINGER_SECONDS
    quiet_since = None
    while time.monotonic() < until:
        if _connections(port) == 0:
            quiet_since = quiet_since or time.monotonic()
            if time.monotonic() - quiet_since > _QUIET_SECONDS:
                return
        else:
            quiet_since = None
        time.sleep(0.1)


def _main(address: str, workers: str, heartbeat: str, secured: str) -> None:
    claims = _take_address(address)
    service = _jax.get_distributed_runtime_service(
        address,
        int(workers),
        heartbeat_timeout=int(heartbeat),
        cluster_register_timeout=_JOIN_SECONDS,
        shutdown_timeout=5,
        # Else the end of one worker makes JAX abort all others (decision 0013).
        recoverable=True,
        **json.loads(secured),
    )
    print("ready", flush=True)
    # A program that reads the worker's errors to their end would wait for this process,
    # too, if they stayed open here.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    _wait_for_worker(os.getppid(), claims)
    _wait_for_others(int(address.rpartition(":")[2]))
    service.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
