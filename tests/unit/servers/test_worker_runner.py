"""Lost workers and servers, TensorFlow's facts 16 and 28 to 35."""

import collections
import threading
import time

import numpy as np
import pytest

import unisono
from tests.unit.servers import clusters
from unisono._src.servers import carrier
from unisono.distribute import coordinator as api

pytestmark = pytest.mark.feature("T06")


class Killer:
    """Loses a worker at chosen calls: `plan` has (caller, kind, index, method, nth)."""

    def __init__(self, *plan):
        self.carrier = api.ThreadCarrier(watch=self.watch)
        self.plan = list(plan)
        self.seen = []
        self.lock = threading.Lock()

    def watch(self, caller, kind, index, method):
        with self.lock:
            call = (caller, kind, index, method)
            self.seen.append(call)
            due = [
                p for p in self.plan if p[0] == call and self.seen.count(call) == p[1]
            ]
            for p in due:
                self.plan.remove(p)
        for _, _, victim in due:
            self.carrier.lose("worker", victim)


def counted(killer, **options):
    """Returns the counters on both servers, less the number of closures.

    As many closures are scheduled as it takes until all of the plan has happened.
    """
    with clusters.cluster(carrier=killer.carrier) as (strategy, coordinator):
        with strategy.scope():
            first, second = unisono.Variable(0), unisono.Variable(0)

        @unisono.function
        def add(x):
            first.assign_add(1)
            second.assign_add(1)
            return x

        count = 0
        while killer.plan:
            given = [np.int32(count + i) for i in range(10)]
            remote = [coordinator.schedule(add, args=(x,), **options) for x in given]
            coordinator.join()
            assert coordinator.fetch(remote) == given
            count += 10
        return int(first.numpy()) - count, int(second.numpy()) - count


PUSH_0 = (0, "ps", 0, "push")
PUSH_1 = (0, "ps", 1, "push")


@pytest.mark.parametrize(
    ("plan", "is_exact"),
    [
        # Between two closures, before anything of the next one was done.
        ([((None, "worker", 0, "run"), 3, 0)], True),
        # Inside a closure: one server has its change, the other has not.
        ([(PUSH_1, 2, 0)], False),
        # Again and again, and both at once.
        ([(PUSH_1, 2, 0), (PUSH_1, 4, 0)], False),
        ([(PUSH_1, 2, 0), (PUSH_0, 3, 0), ((1, "ps", 1, "push"), 3, 1)], False),
    ],
)
def test_closures_of_lost_workers_run_again(plan, is_exact):
    first, second = counted(Killer(*plan))
    assert first >= 0 and second >= 0
    assert not is_exact or (first, second) == (0, 0)


def test_changes_are_made_exactly_once_if_that_is_asked_for():
    plan = [(PUSH_1, 2, 0), (PUSH_1, 4, 0), ((1, "ps", 1, "push"), 2, 1)]
    assert counted(Killer(*plan), exactly_once=True) == (0, 0)


def test_without_it_a_lost_worker_makes_a_change_twice():
    with clusters.cluster(workers=1, carrier=Killer((PUSH_1, 1, 0)).carrier) as pair:
        strategy, coordinator = pair
        with strategy.scope():
            first, second = unisono.Variable(0), unisono.Variable(0)
        add = unisono.function(lambda: (first.assign_add(1), second.assign_add(1)))
        coordinator.schedule(add)
        coordinator.join()
        assert (int(first.numpy()), int(second.numpy())) == (2, 1)


def test_a_worker_that_comes_back_makes_its_datasets_before_it_gets_work():
    killer = Killer(((None, "worker", 0, "run"), 3, 0))
    made = []

    def dataset_fn():
        made.append(len(killer.seen))
        return unisono.data.Dataset.range(100)

    with clusters.cluster(workers=1, carrier=killer.carrier) as (_, coordinator):
        iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
        other = iter(coordinator.create_per_worker_dataset(dataset_fn))
        take = unisono.function(lambda: (next(iterator), next(other)))
        found = [coordinator.schedule(take) for _ in range(4)]
        # The new worker begins its dataset anew, as in TensorFlow.
        assert [int(x) for x, _ in coordinator.fetch(found)] == [0, 1, 0, 1]
        assert len(made) == 4
        calls = [m for c, k, i, m in killer.seen if k == "worker"]
        after = calls[len(calls) - 1 - calls[::-1].index("build") :]
        assert "run" in after and "run" not in calls[calls.index("build") : 2]


def test_a_worker_lost_while_it_makes_a_dataset_is_replaced():
    killer = Killer(((None, "worker", 0, "build"), 1, 0))
    with clusters.cluster(workers=1, carrier=killer.carrier) as (_, coordinator):
        data = unisono.data.Dataset.range(3).batch(3)
        iterator = iter(coordinator.create_per_worker_dataset(data))
        take = unisono.function(lambda: next(iterator))
        assert coordinator.schedule(take).fetch().tolist() == [0, 1, 2]


def test_a_lost_server_is_named_with_what_it_held_in_every_call():
    carrier = api.ThreadCarrier()
    with clusters.cluster(carrier=carrier) as (strategy, coordinator):
        with strategy.scope():
            weight, bias = unisono.Variable(1.0, name="weight"), unisono.Variable(0.0)
        add = unisono.function(lambda: weight.assign_add(1.0))
        coordinator.schedule(add).fetch()
        carrier.lose("ps", 0)
        start = time.monotonic()
        remote = coordinator.schedule(add)
        wanted = r"parameter server 0 .*weight.*restore the last checkpoint"
        for call in (remote.fetch, coordinator.join, weight.numpy):
            with pytest.raises(unisono.errors.UnavailableError, match=wanted) as found:
                call()
            assert (found.value.task_type, found.value.task_index) == ("ps", 0)
        # Two seconds, and more on a machine that others use, too.
        assert time.monotonic() - start < 6.0
        assert float(bias.numpy()) == 0.0


@pytest.mark.parametrize("lost", [[0], [0, 1]])
def test_a_lost_server_comes_back_from_the_checkpoint(tmp_path, lost):
    carrier, restored = api.ThreadCarrier(), []

    def restore():
        restored.append(checkpoint.restore(path))

    strategy = unisono.distribute.ParameterServerStrategy(
        clusters.resolver(), carrier=carrier, restore_from=restore
    )
    try:
        coordinator = api.ClusterCoordinator(strategy)
        with strategy.scope():
            first, second = unisono.Variable([1.0, 2.0]), unisono.Variable(5.0)
        checkpoint = unisono.train.Checkpoint(first=first, second=second)
        path = checkpoint.save(str(tmp_path / "ck"))
        add = unisono.function(
            lambda: (first.assign_add([1.0, 1.0]), second.assign_add(1.0))[1]
        )
        coordinator.schedule(add)
        coordinator.join()
        for index in lost:
            carrier.lose("ps", index)
        for _ in range(10):
            coordinator.schedule(add)
        coordinator.join()
        assert len(restored) == 1
        # All variables are as of the checkpoint, and the ten closures came after it;
        # those that ran before the loss was seen are gone with it.
        assert first.numpy().tolist() == [1.0 + (second.numpy() - 5.0), 2.0 + 10.0]
        assert float(second.numpy()) == 15.0
    finally:
        strategy.shutdown()


class Absent:
    """Has no place for new workers until it is told so."""

    def __init__(self, monkeypatch):
        self.carrier = api.ThreadCarrier()
        self.tried = collections.Counter()
        self.is_there = threading.Event()
        self.is_there.set()
        self.start = self.carrier.replace
        monkeypatch.setattr(self.carrier, "replace", self.replace)

    def replace(self, kind, index):
        self.tried[index] += 1
        if not self.is_there.is_set():
            raise unisono.errors.UnavailableError("No place yet.", kind, index)
        self.start(kind, index)


def test_join_waits_while_all_workers_are_gone_and_variables_can_be_read(monkeypatch):
    assert carrier.PATIENCE == 3600
    group = Absent(monkeypatch)
    with clusters.cluster(carrier=group.carrier) as (strategy, coordinator):
        group.is_there.clear()
        with strategy.scope():
            total = unisono.Variable(3)
        add = unisono.function(lambda: total.assign_add(1))
        for index in (0, 1):
            group.carrier.lose("worker", index)
        group.tried.clear()
        for _ in range(4):
            coordinator.schedule(add)
        joined = threading.Thread(target=coordinator.join)
        joined.start()
        while min(group.tried[0], group.tried[1]) < 3:
            time.sleep(0.001)
        assert joined.is_alive() and int(total.numpy()) == 3
        group.is_there.set()
        joined.join()
        assert int(total.numpy()) == 7


def test_a_server_lost_while_a_worker_comes_back_is_named():
    carrier = api.ThreadCarrier()
    with clusters.cluster(workers=1, servers=1, carrier=carrier) as pair:
        strategy, coordinator = pair
        seen = strategy.extended._create_per_worker_variable(
            None, initial_value=5, name="seen"
        )
        add = unisono.function(lambda: seen.assign_add(1))
        assert coordinator.schedule(add).fetch() == 6
        for kind in ("ps", "worker"):
            carrier.lose(kind, 0)
        with pytest.raises(unisono.errors.UnavailableError, match=r"server 0 .*seen"):
            coordinator.schedule(add).fetch()


def test_after_the_loss_of_the_coordinator_a_checkpoint_goes_on(tmp_path):
    for count in (3, 6):
        with clusters.cluster() as (strategy, coordinator):
            with strategy.scope():
                total = unisono.Variable(0)
            checkpoint = unisono.train.Checkpoint(total=total)
            checkpoint.restore(unisono.train.latest_checkpoint(str(tmp_path)))
            add = unisono.function(lambda total=total: total.assign_add(1))
            for _ in range(3):
                coordinator.schedule(add)
            coordinator.join()
            assert int(total.numpy()) == count
            checkpoint.save(str(tmp_path / "ck"))


@pytest.mark.parametrize("restore", [None, lambda: pytest.fail("nothing is there")])
def test_the_end_of_the_whole_cluster_is_raised_and_nothing_is_waited_for(restore):
    is_gone = threading.Event()

    def watch(caller, kind, index, method):
        if is_gone.is_set():
            raise unisono.errors.UnavailableError("All are gone.", "chief", 0)

    strategy = unisono.distribute.ParameterServerStrategy(
        clusters.resolver(),
        carrier=api.ThreadCarrier(watch=watch),
        restore_from=restore,
    )
    coordinator = api.ClusterCoordinator(strategy)
    with strategy.scope():
        total = unisono.Variable(0)
    add = unisono.function(lambda: total.assign_add(1))
    coordinator.schedule(add)
    coordinator.join()
    is_gone.set()
    for _ in range(2):
        with pytest.raises(unisono.errors.UnavailableError, match="All are gone"):
            coordinator.schedule(add)
            coordinator.join()
    with pytest.raises(unisono.errors.UnavailableError, match="All are gone"):
        total.numpy()
    strategy.shutdown()
