"""Which connections of a process are those with other workers, and how they end."""

import contextlib
import pathlib
import socket

import pytest

from tests.unit.workers.test_worker_guard import Store
from unisono._src.workers import worker_connections

pytestmark = pytest.mark.skipif(
    not pathlib.Path("/proc/self/net/tcp").exists(), reason="Linux tells connections."
)


def connect(stack, listener):
    """Returns both ends of a new connection."""
    client = stack.enter_context(socket.create_connection(listener.getsockname()[:2]))
    server = stack.enter_context(listener.accept()[0])
    for end in (client, server):
        end.settimeout(10.0)
    return client, server


@pytest.fixture
def stack():
    with contextlib.ExitStack() as found:
        yield found


@pytest.mark.parametrize("place", [0, 1])
def test_connections_with_workers_end_and_others_do_not(stack, place):
    store = Store()
    own, other = (worker_connections.WorkerConnections(store, i) for i in range(2))
    before = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    with (own, other)[place].find_listener():
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    between, program = connect(stack, listener), connect(stack, before)
    own.shut()
    assert [end.recv(1) for end in between] == [b"", b""]
    program[0].sendall(b"x")
    assert program[1].recv(1) == b"x"
    # What is not connected yet, such as a listener, is left alone.
    connect(stack, listener)


def test_nothing_ends_where_the_system_tells_no_connections(stack, monkeypatch):
    monkeypatch.setattr(worker_connections, "_TABLES", ("/nowhere",))
    made = worker_connections.WorkerConnections(Store(), 0)
    with made.find_listener():
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    client, server = connect(stack, listener)
    made.shut()
    client.sendall(b"x")
    assert server.recv(1) == b"x"
