"""Small clusters for the tests of this folder."""

import contextlib
import threading

import unisono
from unisono.distribute import coordinator


def resolver(workers=2, servers=2, **jobs):
    jobs |= {"worker": [f"w{i}:1" for i in range(workers)]} if workers else {}
    jobs |= {"ps": [f"p{i}:1" for i in range(servers)]} if servers else {}
    spec = unisono.train.ClusterSpec(jobs)
    return unisono.distribute.cluster_resolver.SimpleClusterResolver(spec)


@contextlib.contextmanager
def cluster(workers=2, servers=2, partitioner=None, carrier="threads"):
    """Gives a strategy and its coordinator, and ends them."""
    strategy = unisono.distribute.ParameterServerStrategy(
        resolver(workers, servers), partitioner, carrier=carrier
    )
    try:
        yield strategy, coordinator.ClusterCoordinator(strategy)
    finally:
        strategy.shutdown()


class Together:
    """Lets two workers read before one of them changes something."""

    def __init__(self):
        self.carrier = coordinator.ThreadCarrier(watch=self.watch)
        self.barrier = threading.Barrier(2, timeout=60)
        self.seen = set()

    def watch(self, caller, kind, index, method):
        if method == "push" and caller is not None and caller not in self.seen:
            self.seen.add(caller)
            self.barrier.wait()


class Gate:
    """Holds calls of a method of workers until it is opened, and notes all calls."""

    def __init__(self, method="run"):
        self.carrier = coordinator.ThreadCarrier(watch=self.watch)
        self.method = method
        self.calls = []
        self.is_reached, self.is_open = threading.Event(), threading.Event()

    def watch(self, caller, kind, index, method):
        self.calls.append((caller, kind, index, method))
        if (kind, method) == ("worker", self.method):
            self.is_reached.set()
            assert self.is_open.wait(60)
