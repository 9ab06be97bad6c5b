"""The strategy, TensorFlow's facts 1 to 11, 43 and 44."""

import gc
import logging
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import unisono
from tests.unit.servers import clusters
from unisono._src.servers.server import ParameterServer
from unisono.distribute import coordinator as api
from unisono.distribute.experimental import partitioners

pytestmark = pytest.mark.feature("T06")


@pytest.mark.parametrize(
    ("jobs", "text"),
    [
        ({}, "non-empty"),
        ({"worker": ["a:1"]}, r"There must be at least one ps\."),
        ({"ps": ["a:1"]}, r"There must be at least one worker\."),
        ({"ps": ["a:1"], "worker": ["b:1"], "master": ["c:1"]}, "Disallowed.*master"),
        ({"chief": ["c:1", "d:1"]}, r"There must be at most one 'chief' job\."),
        ({"evaluator": ["c:1", "d:1"]}, r"There must be at most one 'evaluator' job\."),
    ],
)
def test_a_cluster_needs_workers_and_servers_and_nothing_unknown(jobs, text):
    full = {"ps": ["a:1"], "worker": ["b:1"]} if "d:1" in str(jobs) else {}
    resolver = clusters.resolver(0, 0, **full, **jobs)
    with pytest.raises(ValueError, match=text):
        unisono.distribute.ParameterServerStrategy(resolver, carrier="threads")


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (("master", 0), "Unrecognized task_type: 'master'"),
        (("chief", 0), "`task_type` 'chief' not found in cluster_spec"),
        (("worker", 2), "The `task_id` 2 exceeds the maximum id of worker"),
    ],
)
def test_the_task_of_the_process_must_be_one_of_the_cluster(task, text):
    resolver = clusters.resolver(2, 1)
    resolver.task_type, resolver.task_id = task
    with pytest.raises(ValueError, match=text):
        unisono.distribute.ParameterServerStrategy(resolver, carrier="threads")


def test_an_unknown_carrier_is_refused_by_name():
    with pytest.raises(ValueError, match=r"threads.*'smoke'"):
        unisono.distribute.ParameterServerStrategy(clusters.resolver(), carrier="smoke")


@pytest.mark.parametrize(
    ("resolver", "partitioner", "text"),
    [
        (None, None, r"received None.*SimpleClusterResolver"),
        (unisono.train.ClusterSpec({"ps": ["a:1"]}), None, "SimpleClusterResolver"),
        (clusters.resolver(), 3, "variable_partitioner.*received 3"),
    ],
)
def test_arguments_that_are_something_else_are_told(resolver, partitioner, text):
    with pytest.raises(TypeError, match=text):
        unisono.distribute.ParameterServerStrategy(
            resolver, partitioner, carrier="threads"
        )


@pytest.fixture(scope="module")
def pair():
    with clusters.cluster() as found:
        yield found


def test_the_old_names_are_the_same_objects():
    experimental = unisono.distribute.experimental
    assert experimental.ParameterServerStrategy is (
        unisono.distribute.ParameterServerStrategy
    )
    assert experimental.coordinator.ClusterCoordinator is api.ClusterCoordinator
    assert experimental.coordinator.RemoteValue is api.RemoteValue
    assert experimental.coordinator.PerWorkerValues is api.PerWorkerValue


def test_variables_in_scope_are_on_servers_and_others_here(pair):
    strategy, _ = pair
    assert strategy.num_replicas_in_sync == 1
    assert len(strategy.extended.parameter_devices) == 2
    outside = unisono.Variable(1.0)
    with strategy.scope():
        first = unisono.Variable([1.0, 2.0], name="first")
        with strategy.extended.colocate_vars_with(first):
            beside = unisono.Variable(0.0)
        on_read = unisono.Variable(
            2.0,
            synchronization=unisono.VariableSynchronization.ON_READ,
            aggregation=unisono.VariableAggregation.SUM,
        )
    assert "job:ps" not in outside.device
    assert first.device.startswith("/job:ps/replica:0/task:")
    assert beside.device == first.device
    assert first.distribute_strategy is strategy
    # Reads and writes of the coordinator go to the server; ON_READ has no effect.
    assert first.assign_add([1.0, 1.0]).tolist() == [2.0, 3.0]
    assert first.scatter_update(
        unisono.IndexedSlices(jnp.array([9.0]), jnp.array([1]))
    ).tolist() == [2.0, 9.0]
    assert float(on_read.assign_add(1.0)) == 3.0
    assert first.assign([0.0, 1.0], read_value=False) is None
    assert (first + 1.0).tolist() == [1.0, 2.0]
    assert first[1:].assign([7.0]).tolist() == [0.0, 7.0]
    assert first.scatter_nd_add([[0]], [5.0]).tolist() == [5.0, 7.0]
    found = strategy.describe([first, beside])
    server = int(first.device.partition("task:")[2][0])
    assert found.bytes_per_server == {server: 12}
    text = str(found)
    assert f"on server {server}" in text and "first" in text and "total" not in text
    assert f"<th>server {server}</th>" in found._repr_html_()
    every = strategy.describe_servers()
    assert {"first", "Variable"} <= {row.name for row in every.rows}
    assert sum(every.bytes_per_server.values()) >= 16


def test_a_dataset_function_that_travels_has_what_it_needs_of_the_strategy(pair):
    there = pickle.loads(pickle.dumps(pair[0]))
    assert there.num_replicas_in_sync == 1
    dataset = unisono.data.Dataset.range(3)
    given = [
        there.experimental_distribute_dataset(dataset),
        there.distribute_datasets_from_function(lambda context: dataset),
    ]
    assert all(x.make() is dataset for x in given)


def test_servers_hold_about_the_same_number_of_bytes():
    sizes = np.random.default_rng(0).choice([7, 100, 450, 2000], 60)
    with clusters.cluster(servers=3) as (strategy, _):
        with strategy.scope():
            kept = [unisono.Variable(np.zeros(n, np.float32)) for n in sizes]
        totals = {}
        for v in kept:
            totals[v.device] = totals.get(v.device, 0) + v.size
        assert max(totals.values()) <= 1.1 * min(totals.values())
        # What nobody holds any more is forgotten by the servers, too.
        del kept, v
        with strategy.scope():
            last = unisono.Variable(1.0)
        held = [strategy._cluster.servers.call(i, "", "describe") for i in range(3)]
        assert sum(len(h) for h in held) == 1 and float(last.numpy()) == 1.0


def test_workers_and_servers_end_when_nobody_has_the_strategy():
    before = set(threading.enumerate())

    def use():
        strategy = unisono.distribute.ParameterServerStrategy(
            clusters.resolver(), carrier="threads"
        )
        coordinator = api.ClusterCoordinator(strategy)
        with strategy.scope():
            v = unisono.Variable(1)
        return int(coordinator.schedule(unisono.function(lambda: v + 1)).fetch())

    assert use() == 2
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(5.0)
    assert set(threading.enumerate()) <= before


def test_the_strategy_connects_when_it_is_made(monkeypatch):
    carrier, seen = api.ThreadCarrier(), []
    monkeypatch.setattr(carrier, "start", seen.append)
    resolver = clusters.resolver()
    unisono.distribute.ParameterServerStrategy(resolver, carrier=carrier)
    assert seen == [resolver.cluster_spec()]


@pytest.mark.parametrize("name", ["NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_a_worker_is_one_replica_whatever_the_aggregation(name):
    gate = clusters.Gate()
    gate.is_open.set()
    with clusters.cluster(carrier=gate.carrier) as (strategy, coordinator):
        with strategy.scope():
            v = unisono.Variable(
                1.0, aggregation=getattr(unisono.VariableAggregation, name)
            )

        def replica_fn(x):
            context = unisono.distribute.get_replica_context()
            v.assign_add(x)
            return context.all_reduce("SUM", x)

        @unisono.function
        def step(x):
            own = strategy.run(replica_fn, args=(x,))
            return own, strategy.reduce("SUM", own, axis=None)

        found = [coordinator.schedule(step, args=(np.float32(2.0),)) for _ in range(4)]
        # Collectives are within one worker.
        assert coordinator.fetch(found) == [(2.0, 2.0)] * 4
        assert float(v.numpy()) == 9.0
        # Workers reach servers only, and the coordinator reaches both.
        assert {kind for c, kind, *_ in gate.calls if c is not None} == {"ps"}


def test_workers_shuffle_without_a_seed_in_orders_of_their_own():
    carrier = api.ThreadCarrier(synchronous=True)
    with clusters.cluster(carrier=carrier) as (strategy, coordinator):
        given = unisono.data.Dataset.range(64).shuffle(64).batch(64)
        data = strategy.experimental_distribute_dataset(given)
        iterator = iter(coordinator.create_per_worker_dataset(data))
        take = unisono.function(lambda: next(iterator))
        first, second = (coordinator.schedule(take).fetch().tolist() for _ in range(2))
        assert sorted(first) == sorted(second) == list(range(64))
        assert first != second


def test_run_and_reduce_work_on_the_coordinator_with_a_warning(pair, caplog):
    strategy, _ = pair
    strategy.extended._warned.clear()
    with caplog.at_level(logging.WARNING, "unisono"):
        assert float(strategy.run(lambda x: x + 1.0, args=(1.0,))) == 2.0
        assert float(strategy.reduce("SUM", 3.0, axis=None)) == 3.0
    text = "ClusterCoordinator.schedule"
    told = [r.message for r in caplog.records if text in r.message]
    assert len(told) == 2


def test_reads_are_cached_only_in_the_block(pair):
    strategy, coordinator = pair
    with strategy.scope():
        v = unisono.Variable(1.0)

    @unisono.function
    def step():
        first = v.read_value()
        v.assign(5.0)
        return first + v.read_value()

    with api.cache_variable_reads():
        with pytest.raises(ValueError, match="nested"), api.cache_variable_reads():
            pass
        assert coordinator.schedule(step).fetch() == 2.0
    assert float(v.numpy()) == 5.0
    fresh = unisono.function(lambda: v.assign(v * 2.0) + v)
    assert coordinator.schedule(fresh).fetch() == 20.0


def mlp(strategy, schedule, tx, batches):
    """Trains a small network, and returns its weights and the last loss."""
    with strategy.scope():
        weight = unisono.Variable(np.linspace(-1, 1, 12).reshape(4, 3), dtype="float32")
        bias = unisono.Variable(jnp.zeros(3))
        optimizer = unisono.optimizers.Optimizer(tx, [weight, bias])
        mean = unisono.metrics.Mean()

    def replica_fn(x, y):
        def loss_fn():
            return jnp.mean((jnp.tanh(x @ weight) + bias - y) ** 2)

        loss, gradients = unisono.value_and_grad(loss_fn, [weight, bias])()
        optimizer.apply_gradients(zip(gradients, [weight, bias]))
        mean.update_state(loss)
        return loss

    step = unisono.function(lambda x, y: strategy.run(replica_fn, args=(x, y)))
    for x, y in batches:
        loss = schedule(step, (x, y))
    counts = int(optimizer.iterations.numpy()), float(mean.result())
    return weight.numpy(), bias.numpy(), np.asarray(loss), counts


TRANSFORMATIONS = {
    "sgd": lambda: optax.sgd(0.1, momentum=0.9),
    "norm": lambda: optax.chain(optax.clip_by_global_norm(0.1), optax.adam(0.05)),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_synchronous_training_is_equal_to_a_mirrored_strategy(name):
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(8, 4)), rng.normal(size=(8, 3))) for _ in range(5)]
    batches = [(x.astype(np.float32), y.astype(np.float32)) for x, y in batches]
    tx = TRANSFORMATIONS[name]()
    mirrored = unisono.distribute.MirroredStrategy(["CPU:0"])
    wanted = mlp(mirrored, lambda fn, args: fn(*args), tx, batches)
    carrier = api.ThreadCarrier(synchronous=True)
    with clusters.cluster(carrier=carrier) as (strategy, coordinator):
        found = mlp(
            strategy,
            lambda fn, args: coordinator.schedule(fn, args=args).fetch(),
            tx,
            batches,
        )
    for x, y in zip(found[:3], wanted[:3]):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert found[3][0] == 5 and found[3][1] == pytest.approx(wanted[3][1], 1e-6)


def test_an_update_that_needs_variables_of_two_servers_is_refused(pair):
    strategy, _ = pair

    def scale_by_all(updates, state, params):
        total = sum(jnp.sum(p) for p in params)
        return [u * total for u in updates], state

    tx = optax.GradientTransformation(lambda p: optax.EmptyState(), scale_by_all)
    with strategy.scope():
        first, second = unisono.Variable([1.0, 2.0]), unisono.Variable([3.0, 4.0])
        assert first.device != second.device
        optimizer = unisono.optimizers.Optimizer(tx, [first, second])
    with pytest.raises(NotImplementedError, match="of other parameter servers"):
        optimizer.apply_gradients([(jnp.ones(2), first), (jnp.ones(2), second)])
    with pytest.raises(ValueError, match="accumulate_steps"), strategy.scope():
        unisono.optimizers.Optimizer(optax.sgd(0.1), [first], accumulate_steps=2)
    outside = unisono.Variable(1.0, name="outside")
    with pytest.raises(ValueError, match="outside"), strategy.scope():
        unisono.optimizers.Optimizer(optax.sgd(0.1), [first, outside])


class Bytes:
    """Counts the bytes of rows that travel between workers and servers."""

    def __init__(self, monkeypatch):
        self.total = 0
        pull, push = ParameterServer.pull, ParameterServer.push

        def count_pull(server, requests):
            found = pull(server, requests)
            self.total += sum(x.nbytes for x in found)
            return found

        def count_push(server, operations, closure=None):
            self.total += sum(x.nbytes for o in operations for x in o.operands)
            push(server, operations, closure)

        monkeypatch.setattr(ParameterServer, "pull", count_pull)
        monkeypatch.setattr(ParameterServer, "push", count_push)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("by_tape", [False, True])
def test_only_the_rows_that_are_used_travel(monkeypatch, parts, by_tape):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(3000, 16)).astype(np.float32)
    ids = rng.choice(3000, 64, replace=False).reshape(16, 4)
    ids[3] = ids[2]  # Some rows are used twice.
    partitioner = partitioners.FixedShardsPartitioner(parts)
    carrier = api.ThreadCarrier(synchronous=True)

    def train(strategy, schedule):
        with strategy.scope():
            embedding = unisono.Variable(table, name="embedding")
            optimizer = unisono.optimizers.Optimizer(optax.adagrad(0.1), [embedding])

        def loss_fn(x):
            return jnp.sum(unisono.nn.embedding_lookup(embedding, x) ** 2)

        @unisono.function
        def step(x):
            if by_tape:
                with unisono.GradientTape() as tape:
                    loss = loss_fn(x)
                gradient = tape.gradient(loss, embedding)
            else:
                loss, gradient = unisono.value_and_grad(loss_fn, embedding)(x)
            assert isinstance(gradient, unisono.IndexedSlices) or parts == 0
            optimizer.apply_gradients([(gradient, embedding)])
            return loss

        loss = schedule(step, ids)
        return loss, embedding.numpy()

    with clusters.cluster(1, 3, partitioner, carrier) as (strategy, coordinator):
        counter = Bytes(monkeypatch)

        def schedule(fn, x):
            before = counter.total
            found = coordinator.schedule(fn, args=(x,)).fetch()
            used = len(np.unique(x)) * 16 * 4
            # The rows once in each direction, their positions and the counters.
            assert counter.total - before <= 2 * used + 8 * x.size + 64
            return found

        loss, found = train(strategy, schedule)
    gradient = np.zeros_like(table)
    np.add.at(gradient, ids.ravel(), 2 * table[ids.ravel()])
    wanted = table - 0.1 * gradient / np.sqrt(0.1 + gradient**2 + 1e-7)
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    np.testing.assert_allclose(loss, (table[ids] ** 2).sum(), rtol=1e-5)


def test_lookups_in_loops_are_refused_by_name_and_dependent_ones_work(pair):
    strategy, coordinator = pair
    with strategy.scope():
        links = unisono.Variable([2, 0, 1], name="links")
        table = unisono.Variable([[1.0], [2.0], [4.0]])
    lookup = unisono.nn.embedding_lookup
    follow = unisono.function(lambda i: lookup(table, lookup(links, lookup(links, i))))
    found = coordinator.schedule(follow, args=(np.array([0, 1]),)).fetch()
    assert found.ravel().tolist() == [2.0, 4.0]

    def loop(x):
        return jax.lax.map(lambda i: lookup(table, i), x)

    with pytest.raises(ValueError, match=r"loop.*scan"):
        coordinator.schedule(unisono.function(loop), args=(np.array([0, 1]),))
