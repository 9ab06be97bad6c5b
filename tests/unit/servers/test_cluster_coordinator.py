"""Scheduling functions, TensorFlow's facts 12 to 27."""

import gc
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.unit.servers import clusters
from unisono.distribute import coordinator as api

pytestmark = pytest.mark.feature("T06")


@pytest.fixture(scope="module")
def pair():
    with clusters.cluster() as found:
        yield found


@pytest.fixture(scope="module")
def total(pair):
    with pair[0].scope():
        return unisono.Variable(0, name="total")


def test_there_is_one_coordinator_for_a_strategy(pair):
    strategy, coordinator = pair
    assert api.ClusterCoordinator(strategy) is coordinator
    assert coordinator.strategy is strategy
    with pytest.raises(ValueError, match="ParameterServerStrategy"):
        api.ClusterCoordinator(unisono.distribute.MirroredStrategy(["CPU:0"]))


def test_only_functions_are_scheduled_and_no_result_that_is_not_there(pair):
    _, coordinator = pair
    with pytest.raises(TypeError, match=r"only accepts a `tf\.function`"):
        coordinator.schedule(lambda: 1)
    with pytest.raises(ValueError, match="callable"):
        coordinator.schedule(3)
    double = unisono.function(lambda x: 2 * x)
    remote = coordinator.schedule(double, args=(np.float32(2.0),))
    with pytest.raises(ValueError, match="fetch"):
        coordinator.schedule(double, args=([{"x": remote}],))
    with pytest.raises(ValueError, match="fetch"):
        coordinator.schedule(double, kwargs={"x": remote})
    with pytest.raises(TypeError, match=r"fetch\(\)"):
        coordinator.schedule(unisono.function(lambda: jnp.asarray(remote) + 1.0))
    for wrong in ({"args": 3}, {"args": np.ones(2)}, {"kwargs": [1]}):
        with pytest.raises(TypeError, match=r"args=\(x, …\)"):
            coordinator.schedule(double, **wrong)
    assert remote.fetch() == 4.0


def test_a_concrete_function_is_scheduled(pair):
    _, coordinator = pair
    square = unisono.function(lambda x: x * x)
    found = square.get_concrete_function(unisono.TensorSpec((2,)))
    remote = coordinator.schedule(found, args=(np.array([2, 3], np.float32),))
    assert remote.fetch().tolist() == [4.0, 9.0]


def test_a_function_is_traced_once_in_scope_and_both_workers_add(pair, total):
    strategy, coordinator = pair
    traced = []

    @unisono.function
    def add():
        traced.append(unisono.distribute.get_strategy())
        total.assign_add(1)

    before = int(total.numpy())
    for _ in range(2000):
        coordinator.schedule(add)
    coordinator.join()
    assert int(total.numpy()) == before + 2000
    assert traced == [strategy]
    assert coordinator.done()


def test_a_closure_sees_its_own_writes_and_returns_any_structure(pair, total):
    _, coordinator = pair

    @unisono.function
    def step(x):
        old = total.read_value()
        new = total.assign_add(2)
        return {"moved": new - old, "text": "kept", "none": None, "x": [x, total - old]}

    remote = coordinator.schedule(step, args=(np.arange(2),))
    found = coordinator.fetch({"a": remote, "b": 3})
    assert found["b"] == 3
    assert found["a"]["moved"] == 2 and found["a"]["x"][1] == 2
    assert isinstance(found["a"]["moved"], np.generic)
    assert found["a"]["text"] == "kept" and found["a"]["none"] is None
    assert isinstance(remote.get()["x"][0], jax.Array)
    assert coordinator.schedule(unisono.function(lambda: None)).fetch() is None


def broken(elements=0):
    def dataset_fn():
        return unisono.data.Dataset.range(elements + 1).skip(0).take(elements)

    return dataset_fn


def test_the_first_error_is_raised_once_and_what_waits_is_cancelled(total):
    with clusters.cluster(workers=1, carrier="threads") as (strategy, coordinator):
        with strategy.scope():
            seen = unisono.Variable(0)
        iterator = iter(coordinator.create_per_worker_dataset(broken(1)))
        take = unisono.function(lambda: (next(iterator), seen.assign_add(1))[0])
        first = coordinator.schedule(take)
        second = coordinator.schedule(take)
        assert first.fetch() == 0
        with pytest.raises(unisono.errors.OutOfRangeError):
            second.fetch()
        # The closure that is scheduled into the error is put first, so it is cancelled.
        with pytest.raises(unisono.errors.OutOfRangeError):
            coordinator.schedule(take)
        assert coordinator.done()
        coordinator.join()
        assert int(seen.numpy()) == 1
        # After the error everything can be used again, per-worker datasets included.
        other = iter(coordinator.create_per_worker_dataset(broken(1)))
        again = unisono.function(lambda i: next(i))
        assert coordinator.schedule(again, args=(other,)).fetch() == 0
        coordinator.join()


def test_done_raises_an_error_once_and_what_failed_ran_once():
    gate = clusters.Gate()
    with clusters.cluster(workers=1, carrier=gate.carrier) as (strategy, coordinator):
        with strategy.scope():
            seen = unisono.Variable(0)
        iterator = iter(coordinator.create_per_worker_dataset(broken(1)))
        take = unisono.function(lambda: (seen.assign_add(1), next(iterator))[1])
        found = [coordinator.schedule(take) for _ in range(2)]
        assert gate.is_reached.wait(60) and not coordinator.done()
        gate.is_open.set()
        with pytest.raises(unisono.errors.OutOfRangeError):
            found[1].fetch()
        with pytest.raises(unisono.errors.OutOfRangeError):
            while not coordinator.done():
                pass
        assert coordinator.done() and found[0].fetch() == 0
        # An error of its own is no loss of a worker.
        assert [m for *_, m in gate.calls].count("run") == 2
        assert int(seen.numpy()) == 1


def test_functions_start_in_order_and_those_scheduled_while_join_waits_come_later():
    gate, order = clusters.Gate(), []
    with clusters.cluster(workers=1, carrier=gate.carrier) as (strategy, coordinator):
        coordinator.join()
        with strategy.scope():
            last = unisono.Variable(-1)
        step = unisono.function(lambda k: (last.read_value(), last.assign(k))[0])
        found = [coordinator.schedule(step, args=(np.int32(k),)) for k in range(3)]

        def join():
            coordinator.join()
            order.append("joined")

        def schedule():
            found.append(coordinator.schedule(step, args=(np.int32(3),)))
            order.append("scheduled")

        threads = [threading.Thread(target=f) for f in (join, schedule)]
        threads[0].start()
        while not coordinator._queue._cut_off.locked():
            pass
        threads[1].start()
        gate.is_open.set()
        for thread in threads:
            thread.join()
        assert order == ["joined", "scheduled"]
        assert [int(x) for x in coordinator.fetch(found)] == [-1, 0, 1, 2]


def test_results_stay_when_the_worker_is_lost_and_are_dropped_if_nobody_wants_them():
    gate = clusters.Gate()
    with clusters.cluster(workers=1, carrier=gate.carrier) as (strategy, coordinator):
        with strategy.scope():
            total = unisono.Variable(0)
        add = unisono.function(lambda: total.assign_add(1))
        dropped = weakref.ref(coordinator.schedule(add))
        # The closure waits, and does not hold its result.
        gc.collect()
        assert dropped() is None
        gate.is_open.set()
        kept = coordinator.schedule(add)
        coordinator.join()
        gate.carrier.lose("worker", 0)
        assert (kept.fetch(), int(kept.get()), int(total.numpy())) == (2, 2, 2)


def test_workers_let_iterators_go_that_nobody_holds():
    gate = clusters.Gate()
    gate.is_open.set()
    with clusters.cluster(workers=1, carrier=gate.carrier) as (_, coordinator):
        take = unisono.function(lambda i: next(i))
        dataset = coordinator.create_per_worker_dataset(broken(2))
        first, second = iter(dataset), iter(dataset)
        # Each has an iterator of its own on the worker.
        found = [coordinator.schedule(take, args=(i,)) for i in (first, second, first)]
        assert coordinator.fetch(found) == [0, 0, 1]
        coordinator.join()
        # The function keeps the iterators that it was traced with.
        del first, take
        gc.collect()
        last = unisono.function(lambda i: next(i))
        assert coordinator.schedule(last, args=(second,)).fetch() == 1
        assert (None, "worker", 0, "forget") in gate.calls


def test_join_waits_for_functions_of_all_threads_and_may_be_repeated(pair, total):
    _, coordinator = pair
    add = unisono.function(lambda: total.assign_add(1))
    before = int(total.numpy())
    threads = [
        threading.Thread(target=lambda: [coordinator.schedule(add) for _ in range(20)])
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    coordinator.join()
    coordinator.join()
    assert int(total.numpy()) == before + 60


def test_results_that_nobody_holds_are_dropped_and_others_are_kept(pair, total):
    _, coordinator = pair
    add = unisono.function(lambda: total.assign_add(1))
    before = int(total.numpy())
    for _ in range(5):
        coordinator.schedule(add)
    last = coordinator.schedule(add)
    coordinator.join()
    assert last.fetch() <= before + 6 == int(total.numpy())
    assert last.fetch() == last.fetch()


def test_datasets_are_made_by_each_worker_and_iterated_in_functions(pair):
    _, coordinator = pair
    calls = []

    def dataset_fn():
        index = api.experimental_get_current_worker_index()
        calls.append(index)
        return unisono.data.Dataset.range(10 * index, 10 * index + 5).batch(2).repeat()

    dataset = coordinator.create_per_worker_dataset(dataset_fn)
    iterator = iter(dataset)
    assert issubclass(type(iterator), api.PerWorkerValue)
    assert iterator.element_spec.shape == (None,)

    @unisono.function
    def step(source):
        return next(source), api.experimental_get_current_worker_index()

    found = [coordinator.schedule(step, args=(iterator,)) for _ in range(24)]
    seen = [(x.tolist(), int(i)) for x, i in coordinator.fetch(found)]
    for index in (0, 1):
        own = [x for x, i in seen if i == index]
        start = 10 * index
        cycle = [[start, start + 1], [start + 2, start + 3], [start + 4]]
        assert own == [cycle[k % 3] for k in range(len(own))]
    assert sorted(set(calls)) == list(range(len(set(calls))))
    with pytest.raises(NotImplementedError):
        next(iterator)
    with pytest.raises(NotImplementedError):
        next(dataset)
    with pytest.raises(RuntimeError, match="iter"):
        unisono.function(lambda: iter(dataset))()
    with pytest.raises(ValueError, match="Unexpected dataset type"):
        coordinator.create_per_worker_dataset(3)
    with pytest.raises(RuntimeError, match="worker index"):
        api.experimental_get_current_worker_index()


def test_strategies_datasets_give_every_worker_everything(pair):
    strategy, coordinator = pair
    dataset = unisono.data.Dataset.range(4).batch(4)
    contexts = []

    def dataset_fn(context):
        contexts.append((context.num_input_pipelines, context.input_pipeline_id))
        return dataset

    given = [
        dataset,
        strategy.experimental_distribute_dataset(dataset),
        strategy.distribute_datasets_from_function(dataset_fn),
        lambda: strategy.distribute_datasets_from_function(dataset_fn),
    ]
    take = unisono.function(lambda i: next(i))
    for x in given:
        iterator = iter(coordinator.create_per_worker_dataset(x))
        found = coordinator.schedule(take, args=(iterator,)).fetch()
        assert found.tolist() == [0, 1, 2, 3]
    assert set(contexts) == {(1, 0)}
    with pytest.raises(NotImplementedError, match="create_per_worker_dataset"):
        iter(given[1])


def test_a_dataset_that_cannot_be_made_harms_only_those_who_use_it(pair, total):
    _, coordinator = pair

    def dataset_fn():
        raise OSError("no such file")

    def makes_variables():
        return unisono.Variable(1.0, name="inside")

    wrong = iter(coordinator.create_per_worker_dataset(makes_variables))
    with pytest.raises(api.ClosureInputError, match="'inside'"):
        coordinator.schedule(unisono.function(lambda: next(wrong))).fetch()
    with pytest.raises(api.ClosureInputError):
        coordinator.join()
    iterator = iter(coordinator.create_per_worker_dataset(dataset_fn))
    coordinator.schedule(unisono.function(lambda: total.assign_add(0)))
    coordinator.join()
    remote = coordinator.schedule(unisono.function(lambda: next(iterator)))
    with pytest.raises(api.ClosureInputError, match="no such file"):
        remote.fetch()
    with pytest.raises(api.ClosureInputError):
        coordinator.join()
    coordinator.join()


def test_functions_that_cannot_travel_are_refused_by_name(pair):
    _, coordinator = pair
    local = unisono.Variable(1.0, name="local")

    def show(x):
        jax.debug.print("{}", x)

    with pytest.raises(ValueError, match=r"show.*debug"):
        coordinator.schedule(unisono.function(show), args=(np.float32(1),))
    with pytest.raises(ValueError, match=r"'local'.*coordinator"):
        coordinator.schedule(unisono.function(lambda: local.assign_add(1.0)))
    # Reading it is fine: its value travels when the function runs.
    read = unisono.function(lambda: local + 1.0)
    assert coordinator.schedule(read).fetch() == 2.0
    local.assign(5.0)
    assert coordinator.schedule(read).fetch() == 6.0

    def loop(source):
        for _ in source:
            pass

    iterator = iter(coordinator.create_per_worker_dataset(broken(2)))
    with pytest.raises(ValueError, match="loops over a dataset"):
        coordinator.schedule(unisono.function(loop), args=(iterator,))


def test_closures_that_are_scheduled_synchronously_run_in_order():
    carrier = api.ThreadCarrier(synchronous=True)
    before = threading.active_count()
    with clusters.cluster(carrier=carrier) as (strategy, coordinator):
        with strategy.scope():
            v = unisono.Variable(1.0)
        step = unisono.function(
            lambda k: (
                v.assign(v * 2.0 + k),
                api.experimental_get_current_worker_index(),
            )
        )
        found = [coordinator.schedule(step, args=(np.float32(k),)) for k in range(4)]
        seen = [(float(x), int(i)) for x, i in coordinator.fetch(found)]
        assert seen == [(2.0, 0), (5.0, 1), (12.0, 0), (27.0, 1)]
        assert threading.active_count() == before


def test_variables_may_be_created_in_the_first_call(pair):
    _, coordinator = pair
    made = []

    @unisono.function
    def step():
        if not made:
            made.append(unisono.Variable(jnp.ones(2)))
        return made[0].assign_add(jnp.ones(2))

    assert coordinator.schedule(step).fetch().tolist() == [2.0, 2.0]
    assert coordinator.schedule(step).fetch().tolist() == [3.0, 3.0]
    assert "job:ps" in made[0].device


def test_random_keys_are_variables_on_servers(pair):
    strategy, coordinator = pair
    with strategy.scope():
        key = unisono.Variable(jax.random.key(3))

    @unisono.function
    def draw():
        first, second = jax.random.split(key.value())
        key.assign(first)
        return jax.random.uniform(second)

    first, second = jax.random.split(jax.random.key(3))
    assert coordinator.schedule(draw).fetch() == jax.random.uniform(second)
    assert (jax.random.key_data(key.value()) == jax.random.key_data(first)).all()
    key.assign(jax.random.key(3))
    assert coordinator.schedule(draw).fetch() == jax.random.uniform(second)


def test_after_the_end_nothing_can_be_scheduled_and_results_stay():
    with clusters.cluster(workers=1) as (strategy, coordinator):
        with strategy.scope():
            v = unisono.Variable(1.0)
        done = coordinator.schedule(unisono.function(lambda: 1))
        assert done.fetch() == 1
        strategy.shutdown()
        with pytest.raises(RuntimeError, match=r"shut down.*Make a new strategy"):
            coordinator.schedule(unisono.function(lambda: 2))
        assert done.fetch() == 1
        coordinator.join()
        for call in (v.numpy, lambda: v.assign(2.0)):
            with pytest.raises(unisono.errors.UnavailableError, match="shut down"):
                call()


def test_wide_numbers_are_refused_on_their_way_to_a_worker_and_to_a_server(pair):
    strategy, coordinator = pair
    big = np.array([5, 2**40])
    with pytest.raises(OverflowError, match="1099511627776 at"):
        coordinator.schedule(unisono.function(lambda x: x), args=(big,)).fetch()
    with strategy.scope():
        v = unisono.Variable(np.array([0, 0]))
        with pytest.raises(OverflowError, match="1099511627776 at"):
            unisono.Variable(big)
    with pytest.raises(OverflowError, match="1099511627776 at"):
        v.assign(big)

    def data():
        return unisono.data.Dataset.from_tensor_slices(np.arange(4)).batch(2)

    step = unisono.function(lambda i: next(i))
    batches = iter(coordinator.create_per_worker_dataset(data))
    assert coordinator.schedule(step, args=(batches,)).fetch().tolist() == [0, 1]
    assert v.numpy().tolist() == [0, 0]
