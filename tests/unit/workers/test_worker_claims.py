"""Two processes that say that they are the same worker."""

import pytest

import unisono
from tests.unit.workers.test_worker_guard import Store
from unisono._src.workers import worker_claims, worker_guard


class ServiceStore(Store):
    """A store that can be looked at without waiting."""

    def key_value_try_get(self, key):
        return self.values[key]


def test_the_second_process_with_an_index_gets_an_error_that_names_both():
    store = ServiceStore()
    assert worker_claims.claim(store, 0) is None
    assert worker_claims.claim(store, 1) is None
    found = worker_claims.claim(store, 1)
    assert isinstance(found, unisono.errors.WorkerError)
    assert found.worker == 1
    assert "they are worker 1: process" in str(found)
    assert str(worker_claims.read(store.values[worker_claims.NOTE])) == str(found)


def test_all_workers_are_told_of_an_index_that_two_processes_have():
    store = ServiceStore()
    guards = [
        worker_guard.Guard(store, i, 2, worker_guard.ASYNC, 30.0) for i in range(2)
    ]
    for _ in range(2):
        worker_claims.claim(store, 1)
    for g in guards:
        g.peers.exchange()
        with pytest.raises(unisono.errors.WorkerError, match="they are worker 1"):
            g.enter("step")
    assert [g.peers.is_claimed_twice for g in guards] == [False, True]
