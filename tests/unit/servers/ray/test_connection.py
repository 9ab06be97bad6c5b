"""A head of Ray that ends by itself ends the connection, and not the program."""

import threading
import types

import pytest

import unisono
from unisono._src.servers.ray import connection, library, node


class Head:
    """A head that runs until it is told otherwise."""

    is_running = True
    stops = 0

    def stop(self):
        self.stops += 1


@pytest.fixture
def ray(monkeypatch):
    """Returns the calls of a Ray that only counts them."""
    calls = []
    made = types.SimpleNamespace(shutdown=lambda: calls.append("shutdown"))
    monkeypatch.setattr(library, "load", lambda: made)
    monkeypatch.setattr(node, "is_listening", lambda *address: True)
    return calls


def connect(monkeypatch, head):
    held = connection.Connection("127.0.0.1:1", head, is_ours=True)
    monkeypatch.setattr(connection, "_current", held)
    return held


def test_a_head_that_ends_is_told_once_and_ray_is_left(ray, monkeypatch):
    head, told, is_told = Head(), [], threading.Event()
    held = connect(monkeypatch, head)
    held.listeners.append(lambda error: (told.append(error), is_told.set()))
    held.check()
    head.is_running = False
    assert is_told.wait(20)
    assert [error.task_type for error in told] == ["chief"]
    assert held.is_lost and not held.is_open
    with pytest.raises(unisono.errors.UnavailableError, match="head node at 127"):
        held.check()
    held.close()
    assert (ray, head.stops, len(told)) == (["shutdown"], 1, 1)


def test_a_head_that_does_not_listen_any_more_is_gone(ray, monkeypatch):
    held = connect(monkeypatch, Head())
    monkeypatch.setattr(node, "is_listening", lambda *address: False)
    with pytest.raises(unisono.errors.UnavailableError, match="head node"):
        held.check()
    held.close()
    assert ray == ["shutdown"]


def test_the_end_of_a_connection_is_no_loss(ray, monkeypatch):
    head, told = Head(), []
    held = connect(monkeypatch, head)
    held.listeners.append(told.append)
    held.share().close()
    assert held.is_open
    held.close()
    assert (ray, head.stops, told) == (["shutdown"], 1, [])
    assert not held.is_open and not held.is_lost
