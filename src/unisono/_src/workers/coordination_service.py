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


def _wait_until_free(address: str) -> None:
    """Ends this process if another one keeps listening at the address.

    gRPC lets several processes listen at one port, and workers would join any of them.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + _FREE_SECONDS
    while True:
        try:
            found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)
            family, _, _, _, place = found[0]
            socket.create_server(place[:2], family=family).close()
            return
        except OSError as error:
            # Of anything else gRPC says what is wrong.
            if error.errno != errno.EADDRINUSE:
                return
            if time.monotonic() > until:
                sys.exit(f"Another process listens at {address}.")
        time.sleep(0.1)


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


def _wait_for_worker(parent: int) -> None:
    """Waits until the worker that started this process is gone, or closes its pipe."""
    # A child of the worker may hold the pipe open, so this looks for the worker, too.
    while os.getppid() == parent:
        if select.select([0], [], [], 1.0)[0] and not os.read(0, 1024):
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
    _wait_until_free(address)
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
    # A program that reads the worker's output to its end would wait for this process,
    # too, if the output stayed open here.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    _wait_for_worker(os.getppid())
    _wait_for_others(int(address.rpartition(":")[2]))
    service.shutdown()


if __name__ == "__main__":
    _main(*sys.argv[1:])
