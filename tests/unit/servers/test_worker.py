"""Closures that travel together, with few messages to the servers."""

import collections

import pytest

import unisono
from unisono import distribute


class Counting:
    """Threads that stand for processes: closures travel together, calls are counted."""

    def __init__(self, workers, lose=None):
        self.calls = collections.Counter()
        self.carrier = distribute.coordinator.ThreadCarrier(watch=self.watch)
        self.carrier.is_remote = True
        self.lose = lose
        spec = {"worker": [f"w{i}:1" for i in range(workers)], "ps": ["p0:1", "p1:1"]}
        resolver = distribute.cluster_resolver.SimpleClusterResolver(
            unisono.train.ClusterSpec(spec)
        )
        self.strategy = distribute.ParameterServerStrategy(
            resolver, carrier=self.carrier
        )
        self.coordinator = distribute.coordinator.ClusterCoordinator(self.strategy)

    def watch(self, caller, kind, index, method):
        self.calls[method] += 1
        if self.lose is not None and self.lose(self.calls, caller, method):
            self.carrier.lose("worker", caller)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.strategy.shutdown()


def test_closures_that_wait_travel_together_and_each_change_is_made_once():
    with Counting(workers=2) as group:
        with group.strategy.scope():
            total = unisono.Variable(0)

        @unisono.function
        def add():
            total.assign_add(1)

        for _ in range(600):
            group.coordinator.schedule(add)
        group.coordinator.join()
        assert int(total.numpy()) == 600
        assert group.calls["run_many"] > 0
        assert group.calls["exchange"] + group.calls["push"] < 400


def test_a_closure_sees_what_those_before_it_have_done():
    with Counting(workers=1) as group:
        with group.strategy.scope():
            value, other = unisono.Variable(1.0), unisono.Variable(0.0)

        @unisono.function
        def double():
            value.assign_add(value)
            other.assign(value)
            return value.read_value()

        found = [group.coordinator.schedule(double) for _ in range(60)]
        group.coordinator.join()
        assert group.calls["run_many"] > 0
        assert float(other.numpy()) == 2.0**60
        # The result is what the closure itself has computed.
        assert [float(x.fetch()) for x in found] == [2.0**i for i in range(1, 61)]


def test_the_error_of_one_closure_is_its_own_and_what_follows_is_cancelled():
    with Counting(workers=1) as group:
        with group.strategy.scope():
            total = unisono.Variable([4, 4])

        @unisono.function
        def divide(by):
            total.scatter_div(unisono.IndexedSlices(by, [0]))

        kept = [group.coordinator.schedule(divide, args=([1],)) for _ in range(100)]
        kept.append(group.coordinator.schedule(divide, args=([0],)))
        with pytest.raises(unisono.errors.InvalidArgumentError, match="by zero"):
            group.coordinator.join()
        assert all(x.fetch() is None for x in kept[:100])
        with pytest.raises(unisono.errors.InvalidArgumentError):
            kept[100].fetch()
        group.coordinator.schedule(divide, args=([2],))
        group.coordinator.join()
        assert total.numpy().tolist() == [2, 4]


def test_closures_of_a_lost_worker_run_again_and_count_once_if_asked_to():
    def lose(calls, caller, method):
        return caller is not None and method == "exchange" and calls[method] == 5

    with Counting(workers=2, lose=lose) as group:
        with group.strategy.scope():
            total = unisono.Variable(0)

        @unisono.function
        def add():
            total.assign_add(1)

        for _ in range(300):
            group.coordinator.schedule(add, exactly_once=True)
        group.coordinator.join()
        assert int(total.numpy()) == 300
        assert group.calls["exchange"] >= 5
