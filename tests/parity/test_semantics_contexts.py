"""Which strategy and which context code runs in, and what each context allows."""

import copy
import threading

import jax
import jax.numpy as jnp
import pytest

import unisono as tf
from tests.parity.programs import (
    COMPILED,
    ENCLOSED,
    EXECUTIONS,
    MEAN,
    central,
    context,
    execute,
    index,
    kind,
    local,
    mirrored,
    number,
    numbers,
    one_device,
    per_replica,
    plain,
    variable,
)

STRATEGIES = [
    pytest.param(lambda: mirrored(1), id="mirrored-1"),
    pytest.param(lambda: mirrored(2), id="mirrored-2"),
    pytest.param(lambda: mirrored(8), id="mirrored-8"),
    pytest.param(lambda: central(2), id="central-2"),
    pytest.param(one_device, id="one-device"),
]


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    return request.param()


@pytest.fixture
def default():
    return tf.distribute.get_strategy()


# Without a strategy.


@pytest.mark.feature("B13", "C01", "C04", "C05", "T08")
def test_without_scope_the_default_strategy_and_replica_0_of_1_are_current(default):
    assert not tf.distribute.has_strategy()
    assert not tf.distribute.in_cross_replica_context()
    assert tf.distribute.get_strategy() is default
    assert type(context().replica_id_in_sync_group) is int
    assert context().replica_id_in_sync_group == 0
    assert context().num_replicas_in_sync == 1
    assert context().strategy is default


@pytest.mark.feature("T08")
def test_the_default_strategy_runs_once_and_passes_values_through(default):
    assert plain(default.run(lambda x: x + 1, args=(jnp.asarray(1),))) == 2
    assert default.reduce("SUM", 5, axis=None) == 5
    assert default.experimental_local_results([1, 2]) == ([1, 2],)
    assert default.num_replicas_in_sync == 1
    assert plain(default.gather(jnp.asarray([1]), axis=0)) == [1]
    assert default.extended.call_for_each_replica(lambda x: x + 1, args=(1,)) == 2
    seen = default.experimental_distribute_values_from_function(
        lambda c: (c.replica_id_in_sync_group, c.num_replicas_in_sync)
    )
    assert seen == (0, 1)


@pytest.mark.feature("F03", "T08")
def test_the_default_strategy_reduces_an_axis_and_nothing_else(default):
    x = jnp.asarray([1.0, 2.0, 3.0])
    assert plain(default.reduce("SUM", x, axis=0)) == 6.0
    assert plain(default.reduce("MEAN", x, axis=0)) == 2.0
    assert plain(default.reduce("MEAN", x, axis=None)) == [1.0, 2.0, 3.0]


@pytest.mark.feature("T08")
def test_run_of_the_default_strategy_gives_a_replica_context(default):
    def look():
        replica = context().replica_id_in_sync_group
        return (
            tf.distribute.has_strategy(),
            tf.distribute.in_cross_replica_context(),
            isinstance(replica, jax.Array),
        )

    assert default.run(look) == (False, False, True)


@pytest.mark.feature("C08", "T08")
def test_merge_call_of_the_default_context_calls_at_once(default):
    seen = context().merge_call(
        lambda st, x: (st, tf.distribute.in_cross_replica_context(), x), args=(3,)
    )
    assert seen == (default, True, 3)


@pytest.mark.feature("L07", "L10", "T08")
def test_collectives_of_the_default_context_change_nothing():
    assert plain(context().all_reduce("SUM", 3.0)) == 3.0
    assert plain(context().all_reduce(MEAN, [1.0, 2.0])) == [1.0, 2.0]
    assert plain(context().all_gather(jnp.asarray([1.0, 2.0]), 0)) == [1.0, 2.0]


@pytest.mark.feature("N04", "N05", "T08")
def test_the_default_strategy_names_no_devices(default):
    with pytest.raises(RuntimeError, match="worker_devices"):
        _ = default.extended.worker_devices
    with pytest.raises(RuntimeError, match="parameter_devices"):
        _ = default.extended.parameter_devices


@pytest.mark.feature("Q07", "T08")
def test_update_of_the_default_strategy_calls_once_with_the_variable(default):
    v = tf.Variable(1.0)
    result = default.extended.update(v, lambda x, y: x.assign_add(y), args=(2.0,))
    apart = default.extended.update(v, lambda x: x.read_value(), group=False)
    assert plain([v, result, apart]) == [3.0, 3.0, (3.0,)]


@pytest.mark.feature("P16", "T08")
def test_the_default_strategy_owns_variables_made_without_scope(default):
    plain_one, mirrored_one = tf.Variable(1.0), variable(mirrored(2))
    assert default.extended.variable_created_in_scope(plain_one)
    assert not default.extended.variable_created_in_scope(mirrored_one)


@pytest.mark.feature("B13", "T08")
def test_the_scope_of_the_default_strategy_changes_nothing(default):
    with default.scope() as entered:
        assert entered is default
        assert not tf.distribute.has_strategy()
        assert not tf.distribute.in_cross_replica_context()
        assert context() is not None


@pytest.mark.feature("T08")
def test_strategies_may_be_copied_deeply_but_there_is_one_default(default):
    with pytest.raises(RuntimeError, match="single instance"):
        copy.deepcopy(default)
    with pytest.raises(RuntimeError, match="deepcopy"):
        copy.copy(mirrored(2))
    twin = copy.deepcopy(mirrored(2))
    assert twin is not mirrored(2)
    assert local(twin, twin.run(number)) == [1.0, 2.0]
    v = variable(twin)
    assert twin.extended.variable_created_in_scope(v)
    assert not mirrored(2).extended.variable_created_in_scope(v)


# In scope.


@pytest.mark.feature("B01", "B02", "C01", "C02", "C03", "C04")
def test_a_scope_makes_its_strategy_current_and_crosses_replicas(strategy):
    with strategy.scope() as entered:
        assert entered is strategy
        assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.has_strategy()
        assert tf.distribute.in_cross_replica_context()
        assert context() is None
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("B03")
def test_the_same_scope_nests_and_the_outer_one_stays(strategy):
    with strategy.scope():
        with strategy.scope():
            assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.get_strategy() is strategy
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("B03", "C13")
def test_the_scope_of_another_strategy_is_refused(strategy):
    other = mirrored(4)
    with strategy.scope():
        with pytest.raises(RuntimeError, match="Mixing different"), other.scope():
            pass
        assert tf.distribute.get_strategy() is strategy


@pytest.mark.feature("B03", "C13")
def test_the_scope_of_the_default_strategy_is_refused_inside_another(strategy, default):
    with (
        strategy.scope(),
        pytest.raises(RuntimeError, match="Must not nest"),
        default.scope(),
    ):
        pass


@pytest.mark.feature("B01")
def test_an_exception_leaves_the_scope(strategy):
    with pytest.raises(KeyError), strategy.scope():
        raise KeyError("x")
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("B01")
def test_a_scope_object_nests_in_itself_but_is_not_entered_again(strategy):
    scope = strategy.scope()
    with scope:
        with scope:
            assert tf.distribute.has_strategy()
        assert tf.distribute.has_strategy()
    with pytest.raises(AttributeError):
        scope.__enter__()
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("B08")
def test_a_scope_alone_distributes_no_computation(strategy):
    with strategy.scope():
        assert kind(jnp.ones(3) + 1) == "array"


@pytest.mark.feature("B07", "T05")
def test_a_scope_leaves_the_default_device_alone(strategy):
    before = jnp.asarray(1.0).devices()
    with strategy.scope():
        assert jnp.asarray(1.0).devices() == before


@pytest.mark.feature("B11", "F01")
def test_run_reduce_and_gather_need_no_scope():
    s = mirrored(2)
    assert plain(s.reduce("SUM", per_replica(s, 1.0, 2.0), axis=None)) == 3.0
    assert plain(s.gather(per_replica(s, [1.0], [2.0]), axis=0)) == [1.0, 2.0]
    assert local(s, s.run(number)) == [1.0, 2.0]


@pytest.mark.feature("B12")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_run_gives_the_same_inside_and_outside_the_scope(how):
    s = mirrored(2)
    with s.scope():
        inside = execute(how, s, number)
    assert local(s, inside) == local(s, execute(how, s, number)) == [1.0, 2.0]


@pytest.mark.feature("B04")
def test_another_thread_starts_in_the_default_context(strategy):
    seen = []
    with strategy.scope():
        thread = threading.Thread(
            target=lambda: seen.append(tf.distribute.has_strategy())
        )
        thread.start()
        thread.join()
        assert tf.distribute.has_strategy()
    assert seen == [False]


@pytest.mark.needs_devices(8)
@pytest.mark.feature("B04")
def test_two_threads_run_two_strategies_at_once():
    both = threading.Barrier(2)
    results = {}

    def work(n):
        s = mirrored(n)
        with s.scope():
            both.wait()
            v = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)
            s.run(lambda: v.assign_add(number()))
            results[n] = plain(s.reduce("SUM", s.run(number), axis=None)), plain(v)

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {2: (3.0, 3.0), 4: (10.0, 10.0)}


@pytest.mark.feature("C09")
def test_a_strategy_can_be_set_for_good_and_taken_back(strategy, default):
    tf.distribute.experimental_set_strategy(strategy)
    try:
        assert tf.distribute.get_strategy() is strategy
        assert tf.distribute.in_cross_replica_context()
        v = tf.Variable(1.0)
        assert strategy.extended.variable_created_in_scope(v)
    finally:
        tf.distribute.experimental_set_strategy(None)
    assert tf.distribute.get_strategy() is default


@pytest.mark.feature("C09", "C13")
def test_a_strategy_cannot_be_set_inside_a_scope(strategy):
    words = "Must not be called inside a `tf.distribute.Strategy` scope"
    with strategy.scope(), pytest.raises(RuntimeError, match=words):
        tf.distribute.experimental_set_strategy(mirrored(4))


# In a replica.


@pytest.mark.feature("C06", "D01", "L01")
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_every_replica_knows_its_id_and_its_strategy(n):
    s, seen = mirrored(n), []

    def look():
        replica = context().replica_id_in_sync_group
        assert isinstance(replica, jax.Array)
        assert replica.dtype == jnp.int32
        assert replica.shape == ()
        assert tf.distribute.has_strategy()
        assert tf.distribute.get_strategy() is s
        assert context().strategy is s
        assert not tf.distribute.in_cross_replica_context()
        seen.append((int(replica), context().num_replicas_in_sync))

    s.run(look)
    assert seen == [(i, n) for i in range(n)]


@pytest.mark.feature("L01")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_replica_id_is_an_int32_scalar_in_compiled_code_too(how, n):
    s = mirrored(n)

    def look():
        replica = context().replica_id_in_sync_group
        assert jnp.asarray(replica).dtype == jnp.int32
        assert jnp.shape(replica) == ()
        return jnp.where(replica == 0, 10, replica)

    assert local(s, execute(how, s, look)) == [10, *range(1, n)]


@pytest.mark.feature("C13", "L01")
def test_a_python_if_on_a_replica_id_chooses_for_each_replica():
    s = mirrored(2)

    def choose():
        return 1.0 if context().replica_id_in_sync_group == 0 else 2.0

    assert local(s, s.run(choose)) == [1.0, 2.0]
    for how in (COMPILED, ENCLOSED):
        assert local(s, execute(how, s, choose)) == [1.0, 2.0]


@pytest.mark.feature("C01", "C02", "C03", "D12")
def test_a_compiled_function_sees_the_context_in_which_it_is_called():
    s = mirrored(2)

    @tf.function
    def look():
        return tf.distribute.has_strategy(), tf.distribute.in_cross_replica_context()

    assert plain(look()) == (False, False)
    with s.scope():
        assert plain(look()) == (True, True)
    assert plain(s.run(look)) == (True, False)
    assert plain(look()) == (False, False)


@pytest.mark.feature("C13")
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.scope().__enter__(),
        lambda s: s.run(lambda: 1),
        lambda s: s.reduce("SUM", 1.0, axis=None),
        lambda s: s.extended.reduce_to("SUM", jnp.asarray(1.0), "CPU:0"),
        lambda s: s.extended.batch_reduce_to("SUM", [(jnp.asarray(1.0), "CPU:0")]),
        lambda s: s.extended.broadcast_to(jnp.asarray(1.0), "CPU:0"),
        lambda s: s.extended.call_for_each_replica(lambda: 1),
        lambda s: s.extended.update_non_slot(("CPU:0",), lambda: 1),
    ],
    ids=[
        "scope", "run", "reduce", "reduce_to", "batch_reduce_to", "broadcast_to",
        "call_for_each_replica", "update_non_slot",
    ],
)  # fmt: skip
def test_what_crosses_replicas_is_refused_in_a_replica(call, n):
    s = mirrored(n)
    with pytest.raises(RuntimeError, match="requires being in cross-replica context"):
        s.run(lambda: call(s))
    with pytest.raises(RuntimeError, match="requires being in cross-replica context"):
        s.run(tf.function(lambda: call(s)))


@pytest.mark.feature("C13", "L10")
def test_gather_in_a_replica_is_refused_and_names_all_gather():
    s = mirrored(2)
    with pytest.raises(RuntimeError, match="all_gather"):
        s.run(lambda: s.gather(jnp.asarray([1.0]), axis=0))


@pytest.mark.feature("C13")
def test_another_strategy_is_refused_in_scope_and_in_a_replica(strategy):
    other = mirrored(4)
    with pytest.raises(RuntimeError, match="Mixing different"):
        strategy.run(lambda: other.run(lambda: 1))
    with strategy.scope():
        with pytest.raises(RuntimeError, match="Mixing different"):
            other.run(lambda: 1)
        with pytest.raises(RuntimeError, match="Mixing different"):
            other.reduce("SUM", per_replica(other, 1.0, 2.0, 3.0, 4.0), axis=None)


@pytest.mark.feature("C08", "C13")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_run_is_legal_again_inside_merge_call(how):
    s = mirrored(2)
    result = execute(
        how, s, lambda: context().merge_call(lambda st: st.run(lambda: number() * 2.0))
    )
    assert local(s, result) == [2.0, 4.0]


@pytest.mark.feature("C13", "L02")
def test_a_kept_replica_context_is_of_no_use_elsewhere():
    s, kept = mirrored(2), []
    s.run(lambda: kept.append(context()))
    inside = r"Need to be inside `call_for_each_replica\(\)`"
    with s.scope(), pytest.raises(RuntimeError, match=inside):
        kept[0].merge_call(lambda st: 1)
    with s.scope(), pytest.raises(RuntimeError, match="call_for_each_replica"):
        kept[0].all_reduce("SUM", 1.0)
    with pytest.raises(RuntimeError, match="Mismatching tf"):
        kept[0].merge_call(lambda st: 1)
    kept.clear()

    def borrow():
        kept.append(context())
        return kept[0].merge_call(lambda st: 1)

    with pytest.raises(RuntimeError, match="Mismatching ReplicaContext"):
        s.run(borrow)


@pytest.mark.feature("C02", "C13")
def test_there_is_no_replica_context_to_reduce_with_across_replicas(strategy):
    with strategy.scope(), pytest.raises(AttributeError):
        context().all_reduce("SUM", 1.0)


@pytest.mark.feature("C07")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_update_crosses_replicas_and_sees_component_variables(n):
    s, seen = mirrored(n), []
    v = variable(s)

    def look(component):
        assert tf.distribute.in_cross_replica_context()
        assert context() is None
        assert tf.distribute.get_strategy() is s
        seen.append(kind(component))

    s.extended.update(v, look)
    assert seen == ["ResourceVariable"] * n


@pytest.mark.feature("C08", "L02")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 8])
def test_merge_call_crosses_replicas_once(how, n):
    s, seen = mirrored(n), []

    def merge(st):
        assert st is s
        assert tf.distribute.in_cross_replica_context()
        assert context() is None
        seen.append(tf.distribute.get_strategy() is s)

    execute(how, s, lambda: context().merge_call(merge))
    assert seen == [True]


@pytest.mark.feature("V07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_layer_that_asks_for_the_context_works_in_and_out_of_run(how):
    """As a batch normalization layer does: local here, over all replicas there."""

    def centred(x):
        if tf.distribute.in_cross_replica_context() or not tf.distribute.has_strategy():
            return x - jnp.mean(x)
        total = context().all_reduce("SUM", jnp.stack([jnp.sum(x), 1.0 * x.size]))
        return x - total[0] / total[1]

    s = mirrored(2)
    x = jnp.asarray([1.0, 2.0, 3.0, 6.0])
    batch = per_replica(s, x[:2], x[2:])
    parts = local(s, execute(how, s, centred, args=(batch,)))
    with s.scope():
        whole = plain(centred(x))
    assert parts[0] + parts[1] == whole == plain(centred(x)) == [-2.0, -1.0, 0.0, 3.0]


@pytest.mark.feature("C06")
@pytest.mark.parametrize("n", [2, 4])
def test_replicas_run_in_order_up_to_the_next_merge_call(n):
    s, log = mirrored(n), []

    def fn():
        log.append(("before", index()))
        context().merge_call(lambda st: log.append("merge"))
        log.append(("after", index()))

    s.run(fn)
    before = [("before", i) for i in range(n)]
    assert log == [*before, "merge", *[("after", i) for i in range(n)]]


@pytest.mark.feature("A04")
def test_a_strategy_for_one_machine_has_no_cluster_resolver(strategy, default):
    assert strategy.cluster_resolver is None
    assert default.cluster_resolver is None


@pytest.mark.feature("A02", "A03")
def test_a_strategy_has_replicas_and_lower_level_methods(strategy):
    count = strategy.num_replicas_in_sync
    assert len(strategy.extended.worker_devices) == count
    assert isinstance(strategy.extended, tf.distribute.StrategyExtended)
    assert isinstance(strategy, tf.distribute.Strategy)
    assert len(numbers(count)) == len(local(strategy, strategy.run(number)))
