"""The connections over which workers' collectives send, and how to break them.

A collective of Gloo that waits for another worker cannot be interrupted. The other one
may live and still never come, because it has raised an error about a third one. Then
only an end of the connection ends the wait. See docs/decisions/0028.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
from collections.abc import Iterator
from typing import NamedTuple, final

from unisono._src.workers.coordination_client import CoordinationClient

_PLACE = "unisono/connections/"
# Gloo does not tell its connections, so the system is asked. It tells them on Linux.
_DESCRIPTORS = pathlib.Path("/proc/self/fd")
_TABLES = ("/proc/self/net/tcp", "/proc/self/net/tcp6")
_LISTENS = "0A"


@final
class _OwnSocket(NamedTuple):
    """A socket of this process, with its addresses in the spelling of the system."""

    descriptor: int
    local: str
    remote: str
    state: str


@final
class WorkerConnections:
    """The connections of this worker to others, known by where workers listen.

    Args:
        client: JAX's client of the coordination service.
        worker: the number of this worker.
    """

    def __init__(self, client: CoordinationClient, worker: int) -> None:
        self._client = client
        self._own = f"{_PLACE}{worker}"

    @contextlib.contextmanager
    def find_listener(self) -> Iterator[None]:
        """Tells all workers where this process listens since the block has begun.

        Gloo opens its port when the backend starts, and connects later.
        """
        before = _list_listening()
        yield
        found = sorted(_list_listening() - before)
        self._client.key_value_set(self._own, json.dumps(found), allow_overwrite=True)

    def shut(self) -> None:
        """Ends all connections with other workers; what waits for them fails at once.

        It leaves alone those to the coordination service and those of the program.
        """
        told = self._client.key_value_dir_get(_PLACE[:-1])
        listeners = {str(x) for _, text in told for x in json.loads(text)}
        for found in _list_connections():
            if found.state != _LISTENS and listeners & {found.local, found.remote}:
                with contextlib.suppress(OSError):
                    _shut(found.descriptor)


def _shut(descriptor: int) -> None:
    # A connection ends for all copies of its descriptor, and this one is closed here.
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def _list_listening() -> set[str]:
    """Returns the addresses at which this process takes connections."""
    return {c.local for c in _list_connections() if c.state == _LISTENS}


def _list_connections() -> list[_OwnSocket]:
    """Returns the connections and listeners of this process; none if not known."""
    try:
        own = dict(_number_sockets())
        texts = [pathlib.Path(table).read_text("ascii") for table in _TABLES]
    except OSError:
        return []
    rows = [line.split() for text in texts for line in text.splitlines()]
    # Columns 1 to 3 are the addresses and the state, 9 is the socket's number.
    return [
        _OwnSocket(own[r[9]], r[1], r[2], r[3])
        for r in rows
        if len(r) > 9 and r[9] in own
    ]


def _number_sockets() -> Iterator[tuple[str, int]]:
    """Yields the system's number of each socket of this process, and a descriptor."""
    for path in _DESCRIPTORS.iterdir():
        # Another thread may have closed it meanwhile.
        with contextlib.suppress(OSError):
            kind, _, number = os.readlink(path).partition(":")
            if kind == "socket":
                yield number.strip("[]"), int(path.name)
