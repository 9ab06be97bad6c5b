"""How the coordination service is started, and what it tells the worker."""

import subprocess
import sys

import pytest

import unisono
from tests.unit.workers.test_worker_guard import Store
from unisono._src.workers import coordination_client, worker_guard


@pytest.mark.parametrize(
    "address, bound",
    [
        ("localhost:7", "127.0.0.1:7"),
        ("127.0.0.1:7", "127.0.0.1:7"),
        ("[::1]:7", "127.0.0.1:7"),
        ("10.1.2.3:7", "10.1.2.3:7"),
        ("node-3.cluster:7", "node-3.cluster:7"),
    ],
)
def test_the_coordinator_listens_only_where_it_is_known(address, bound, monkeypatch):
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS", raising=False)
    assert coordination_client.bind_address(address) == bound


def test_where_the_coordinator_listens_can_be_said(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "0.0.0.0:9")
    assert coordination_client.bind_address("10.1.2.3:7") == "0.0.0.0:9"


def test_the_service_tells_of_another_first_worker_once():
    command = [sys.executable, "-c", "print('process 7 on here')"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as service:
        service.wait()
        note = coordination_client.read_claim(service)
        assert note.startswith("0 process ")
        assert note.endswith(", and process 7 on here")
        # The end of the service is no claim.
        assert coordination_client.read_claim(service) is None


def test_a_service_that_says_nothing_is_not_waited_for():
    command = [sys.executable, "-c", "input()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as service:
        assert coordination_client.read_claim(service) is None
        service.communicate(b"\n")


class ServiceStore(Store):
    """A store that can be looked at without waiting."""

    def key_value_try_get(self, key):
        return self.values[key]


def test_the_second_process_with_an_index_gets_an_error_that_names_both():
    store = ServiceStore()
    assert coordination_client.claim(store, 0) is None
    assert coordination_client.claim(store, 1) is None
    found = coordination_client.claim(store, 1)
    assert isinstance(found, unisono.errors.WorkerError)
    assert found.worker == 1
    assert "they are worker 1: process" in str(found)
    assert str(
        coordination_client.claimed_twice_error(
            store.values[coordination_client.CLAIMED_TWICE]
        )
    ) == str(found)


def test_all_workers_are_told_of_an_index_that_two_processes_have():
    store = ServiceStore()
    guards = [
        worker_guard.Guard(store, i, 2, worker_guard.ASYNC, 30.0) for i in range(2)
    ]
    for _ in range(2):
        coordination_client.claim(store, 1)
    for g in guards:
        g.peers.exchange()
        with pytest.raises(unisono.errors.WorkerError, match="they are worker 1"):
            g.enter("step")
    assert [g.peers.is_claimed_twice for g in guards] == [False, True]


def test_all_workers_are_told_of_another_first_worker_that_cannot_join():
    store, notes = Store(), ["0 process 1, and process 2"]
    first, second = (
        worker_guard.Guard(store, i, 2, worker_guard.ASYNC, 30.0, read)
        for i, read in enumerate([lambda: notes.pop() if notes else None, lambda: None])
    )
    for g in (first, second):
        g.peers.exchange()
        with pytest.raises(unisono.errors.WorkerError, match="they are worker 0"):
            g.enter("step")
    assert (first.peers.is_claimed_twice, second.peers.is_claimed_twice) == (
        True,
        False,
    )
