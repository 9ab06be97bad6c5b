"""The named strategies: placement, properties, own strategies, and old names."""

import jax
import jax.numpy as jnp
import pytest

import unisono as tf
from tests.parity.programs import (
    COMPILED,
    EAGER,
    EXECUTIONS,
    central,
    context,
    device_index,
    execute,
    index,
    kind,
    local,
    mirrored,
    number,
    numbers,
    on_read,
    one_device,
    per_replica,
    plain,
    variable,
)

FULL = "/job:localhost/replica:0/task:0/device:CPU:{}"


# MirroredStrategy.


@pytest.mark.needs_devices(8)
@pytest.mark.feature("T01")
def test_a_mirrored_strategy_takes_all_devices_unless_told():
    assert tf.distribute.MirroredStrategy().num_replicas_in_sync == 8
    assert tf.distribute.MirroredStrategy([]).num_replicas_in_sync == 8
    assert tf.distribute.MirroredStrategy(["CPU:3"]).num_replicas_in_sync == 1
    with pytest.raises(AssertionError, match="No duplicates allowed"):
        tf.distribute.MirroredStrategy(["CPU:0", "/cpu:0"])
    with pytest.raises(ValueError, match=r"set_virtual_devices\(100\)"):
        tf.distribute.MirroredStrategy(["CPU:99"])


@pytest.mark.needs_devices(8)
@pytest.mark.feature("N04", "N05", "T01")
def test_devices_have_their_full_names_in_every_spelling():
    devices = tf.config.list_logical_devices("CPU")
    for spelling in ("CPU:2", "cpu:2", "/cpu:2", "/device:CPU:2", devices[2]):
        s = tf.distribute.MirroredStrategy([spelling])
        assert s.extended.worker_devices == (FULL.format(2),)
    by_device = tf.distribute.MirroredStrategy(jax.devices("cpu")[1:3])
    assert by_device.extended.worker_devices == (FULL.format(1), FULL.format(2))


@pytest.mark.feature("T01")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_replicas_may_be_on_any_devices_in_any_order(how):
    s = tf.distribute.MirroredStrategy(["CPU:5", "CPU:2", "CPU:7"])
    v, w = variable(s, 1.0, "SUM"), on_read(s, 1.0)

    def fn(x):
        v.assign_add(number() * x)
        w.assign_add(number())
        return context().all_reduce("SUM", number()), number()

    total, own = execute(how, s, fn, args=(per_replica(s, 1.0, 10.0, 100.0),))
    assert local(s, total) == [6.0] * 3
    assert local(s, own) == [1.0, 2.0, 3.0]
    assert plain(v) == 322.0
    assert local(s, w) == [2.0, 3.0, 4.0]
    found = [device_index(x) for x in s.experimental_local_results(own)]
    assert found == [5, 2, 7]
    assert [device_index(c.value()) for c in v.values] == [5, 2, 7]


# Properties.


@pytest.mark.feature("N01", "N02", "N03", "N06", "N07", "T01", "T04", "T05")
@pytest.mark.parametrize(
    ("make", "between_graph"),
    [
        (lambda: mirrored(2), False),
        (lambda: central(2), True),
        (one_device, False),
        (tf.distribute.get_strategy, False),
    ],
    ids=["mirrored", "central", "one-device", "default"],
)
def test_the_flags_of_a_strategy_for_one_machine(make, between_graph):
    e = make().extended
    assert e.experimental_between_graph is between_graph
    assert e.experimental_require_static_shapes is False
    assert e.experimental_should_init is True
    assert e.should_checkpoint is True
    assert e.should_save_summary is True


@pytest.mark.feature("M10", "N04", "N05")
def test_worker_and_parameter_devices():
    e = mirrored(2).extended
    assert e.worker_devices == e.parameter_devices == (FULL.format(0), FULL.format(1))
    c = tf.distribute.experimental.CentralStorageStrategy(["CPU:1", "CPU:2"], "CPU:3")
    assert list(c.extended.worker_devices) == [FULL.format(1), FULL.format(2)]
    assert c.extended.parameter_devices == (FULL.format(3),)
    one = one_device().extended
    assert one.worker_devices == one.parameter_devices == (FULL.format(1),)


@pytest.mark.feature("P01")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_call_for_each_replica_is_run(n):
    s = mirrored(n)
    result = s.extended.call_for_each_replica(
        lambda x, k: x * k, args=(s.run(number),), kwargs={"k": 10.0}
    )
    assert local(s, result) == [10.0 * x for x in numbers(n)]
    with s.scope():
        again = s.extended.call_for_each_replica(number)
    assert local(s, again) == numbers(n)


@pytest.mark.feature("D16", "P01")
def test_call_for_each_replica_needs_no_scope_to_make_variables():
    s = mirrored(2)
    v = s.extended.call_for_each_replica(lambda: tf.Variable(number()))
    assert kind(v) == "MirroredVariable"
    assert s.extended.variable_created_in_scope(v)
    compiled = s.extended.call_for_each_replica(tf.function(number))
    assert local(s, compiled) == [1.0, 2.0]


@pytest.mark.feature("P01")
@pytest.mark.parametrize("n", [1, 2])
def test_call_for_each_replica_runs_the_program_of_a_function(n):
    s, traces = mirrored(n), []

    @tf.function
    def step(x, k=1.0):
        traces.append(1)
        return number() * x * k

    for x in (2.0, 3.0, 4.0):
        found = s.extended.call_for_each_replica(
            step, args=(jnp.float32(x),), kwargs={"k": 10.0}
        )
        assert local(s, found) == [10.0 * x * i for i in numbers(n)]
    assert step.experimental_get_tracing_count() == 1
    # For each replica once, to compare their programs.
    assert len(traces) == n
    with pytest.raises(ValueError, match="args must be a list or tuple"):
        s.extended.call_for_each_replica(step, args=jnp.float32(2.0))
    with pytest.raises(RuntimeError, match="cross-replica context"):
        s.run(lambda: s.extended.call_for_each_replica(step, args=(1.0,)))


# CentralStorageStrategy.


@pytest.mark.feature("M10", "T04")
def test_a_central_variable_is_one_copy_on_the_parameter_device():
    c = tf.distribute.CentralStorageStrategy(["CPU:1", "CPU:2"], "CPU:3")
    v = variable(c, 1.0, name="v")
    assert (kind(v), v.device[-5:], device_index(v.value())) == (
        "AggregatingVariable",
        "CPU:3",
        3,
    )
    assert isinstance(v, tf.Variable)
    assert not isinstance(v, tf.distribute.DistributedValues)
    assert repr(v) == "<tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>"
    assert c.extended.variable_created_in_scope(v)
    assert c.experimental_local_results(v) == (v,)
    found = [device_index(x) for x in c.run(lambda: v + number()).values]
    assert found == [1, 2]


@pytest.mark.feature("T04")
def test_one_compute_device_holds_its_variables_itself():
    c = tf.distribute.experimental.CentralStorageStrategy(["CPU:1"])
    v = variable(c, 1.0)
    assert (kind(v), v.device[-5:]) == ("ResourceVariable", "CPU:1")
    assert c.extended.parameter_devices[0][-5:] == "CPU:1"
    default = tf.distribute.experimental.CentralStorageStrategy()
    assert default.num_replicas_in_sync == 1
    assert default.extended.worker_devices[0][-5:] == "CPU:0"
    assert default.extended.parameter_devices[0][-5:] == "CPU:0"


@pytest.mark.feature("R06", "R18", "T04")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [2, 4])
def test_replicas_assign_the_aggregate_to_a_central_variable(how, n):
    c, parts = central(n), numbers(n)
    wanted = {
        "SUM": sum(parts),
        "MEAN": sum(parts) / n,
        "ONLY_FIRST_REPLICA": parts[0],
    }
    made = {
        (aggregation, op): variable(c, 10.0, aggregation)
        for aggregation in wanted
        for op in ("assign", "assign_add", "assign_sub")
    }

    def fn():
        return {key: getattr(v, key[1])(number()) for key, v in made.items()}

    given_back = execute(how, c, fn)
    for (aggregation, op), v in made.items():
        x = wanted[aggregation]
        want = {"assign": x, "assign_add": 10.0 + x, "assign_sub": 10.0 - x}[op]
        assert plain(v) == want, (aggregation, op)
        assert set(local(c, given_back[aggregation, op])) == {want}
        assert device_index(v.value()) == 0


@pytest.mark.feature("R07", "T04")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_a_central_variable_is_assigned_across_replicas(how):
    c = central(2)
    v = variable(c, 10.0)

    def fn():
        v.assign_add(1.0)
        v.assign_sub(3.0)
        return v + 1.0

    with c.scope():
        assert plain(fn() if how == EAGER else tf.function(fn)()) == 9.0
    assert plain(fn() if how == EAGER else tf.function(fn)()) == 7.0
    assert plain(v) == 6.0


@pytest.mark.feature("R02", "T04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_on_read_means_nothing_to_central_storage(how):
    c = central(2)
    v = on_read(c, 10.0)
    assert kind(v) == "AggregatingVariable"
    execute(how, c, lambda: v.assign_add(number()))
    assert plain(v) == 13.0
    assert plain(v.assign_add(1.0)) == 14.0


@pytest.mark.feature("D05", "D08", "T04")
def test_replicas_of_central_storage_return_like_others():
    c = central(2)
    v = variable(c, 3.0)
    own, five, back = c.run(lambda: (v * number(), 5, v))
    assert (local(c, own), five, back) == ([3.0, 6.0], 5, v)
    made = []

    def fn():
        made.append(tf.Variable(number()))
        return made[-1]

    w = c.run(fn)
    assert kind(w) == "AggregatingVariable"
    assert made[0] is made[1] is w
    assert plain(w) == 1.0


@pytest.mark.feature("O01", "T04")
def test_reduce_to_a_central_variable_gives_an_array():
    c = central(2)
    v = variable(c)
    result = c.extended.reduce_to("SUM", c.run(number), v)
    assert (kind(result), plain(result), plain(v)) == ("array", 3.0, 0.0)
    assert kind(c.extended.broadcast_to(jnp.asarray(1.0), v)) == "array"


# OneDeviceStrategy.


@pytest.mark.needs_devices(2)
@pytest.mark.feature("T05")
def test_one_device_has_plain_variables_and_values_on_its_device():
    s = one_device()
    for v in (variable(s, 1.0, name="v"), on_read(s, 1.0, name="v")):
        assert (kind(v), v.device[-5:], device_index(v.value())) == (
            "ResourceVariable",
            "CPU:1",
            1,
        )
        assert repr(v) == "<tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>"
        assert s.extended.variable_created_in_scope(v)
    seen = []

    def fn(x):
        seen.append(
            (index(), context().num_replicas_in_sync, context().strategy is s,
             tf.distribute.in_cross_replica_context())
        )  # fmt: skip
        return jnp.asarray(1.0) + x

    result = s.run(fn, args=(2.0,))
    assert seen == [(0, 1, True, False)]
    assert (kind(result), plain(result), device_index(result)) == ("array", 3.0, 1)


@pytest.mark.feature("T05")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_one_device_ignores_aggregation_and_its_collectives_are_identity(how):
    s = one_device()
    made = {
        (a, y): variable(s, 10.0, a, y)
        for a in ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
        for y in ("ON_WRITE", "ON_READ")
    }

    def fn():
        for v in made.values():
            v.assign_add(2.0)
        merged = context().merge_call(lambda st, x: x * 2.0, args=(number(),))
        c = context()
        return merged, c.all_reduce("SUM", number()), c.all_gather(number()[None], 0)

    assert plain(execute(how, s, fn)) == (2.0, 1.0, [1.0])
    assert [plain(v) for v in made.values()] == [12.0] * 8
    v = made["SUM", "ON_READ"]
    v.assign_add(1.0)
    assert plain(v) == 13.0


@pytest.mark.feature("O01", "O12", "P13", "T05")
def test_one_device_passes_values_through():
    e, x = one_device().extended, jnp.asarray(1.0)
    assert e.broadcast_to(x, "CPU:0") is x
    assert e.reduce_to("SUM", x, "CPU:0") is x
    assert e.batch_reduce_to("SUM", [(1.0, "CPU:0")]) == [1.0]
    assert e.value_container(3) == 3
    assert one_device().experimental_local_results([1, 2]) == ([1, 2],)
    assert one_device().experimental_local_results(None) == (None,)


# Own strategies.


class Extended(tf.distribute.StrategyExtended):
    """The least that an own strategy needs."""

    def _call_for_each_replica(self, fn, args, kwargs):
        with tf.distribute.ReplicaContext(self._container_strategy(), 0):
            return fn(*args, **kwargs)

    def _create_variable(self, next_creator, **kwargs):
        return next_creator(**kwargs)

    def _reduce_to(self, op, value, destinations, options):
        return value

    def _get_local_replica_id(self, i):
        return i

    def value_container(self, value):
        return value

    @property
    def _num_replicas_in_sync(self):
        return 1

    @property
    def worker_devices(self):
        return ("CPU:0",)


class Own(tf.distribute.Strategy):
    def __init__(self):
        super().__init__(Extended(self))  # type: ignore[abstract]


@pytest.mark.feature("A01", "A02", "A05", "N08")
def test_an_own_strategy_is_a_subclass_of_the_extended_class():
    s = Own()
    assert isinstance(s.extended, Extended)
    with s.scope():
        assert tf.distribute.get_strategy() is s
        v = tf.Variable(1.0)
    assert plain(s.run(lambda x: v + x, args=(1.0,))) == 2.0
    assert s.num_replicas_in_sync == 1
    assert plain(s.reduce("SUM", 3.0, axis=None)) == 3.0
    assert plain(s.reduce("SUM", jnp.asarray([1.0, 2.0]), axis=0)) == 3.0
    assert s.extended.variable_created_in_scope(v)
    assert not s.extended.variable_created_in_scope(tf.Variable(1.0))
    assert s.run(lambda: context().strategy) is s


@pytest.mark.feature("A01", "B06")
def test_an_own_strategy_may_change_the_variables_made_in_its_scope():
    class Renaming(Extended):
        def _create_variable(self, next_creator, **kwargs):
            return next_creator(**{**kwargs, "name": "renamed"})

    class Strategy(tf.distribute.Strategy):
        def __init__(self):
            super().__init__(Renaming(self))  # type: ignore[abstract]

    with Strategy().scope():
        assert tf.Variable(1.0, name="v").name == "renamed:0"


@pytest.mark.feature("A01", "N08")
def test_the_extended_class_leaves_everything_to_its_subclasses():
    e = tf.distribute.StrategyExtended(mirrored(2))  # type: ignore[abstract]
    for call in (
        lambda: e.worker_devices,
        lambda: e.parameter_devices,
        lambda: e.value_container(1),
        lambda: e.read_var(1),
        lambda: e.non_slot_devices([]),
        lambda: e.experimental_between_graph,
        lambda: e.experimental_should_init,
        lambda: e.should_checkpoint,
        lambda: e.should_save_summary,
        lambda: e.reduce_to("SUM", 1.0, "CPU:0"),
        lambda: e.broadcast_to(1.0, "CPU:0"),
    ):
        with pytest.raises(NotImplementedError):
            call()
    assert e.experimental_require_static_shapes is False


@pytest.mark.feature("A05", "N08")
def test_an_extended_object_outlives_its_strategy_only_to_say_so():
    e = Extended(Own())  # type: ignore[abstract]
    with pytest.raises(RuntimeError, match="gone"):
        e.call_for_each_replica(lambda: 1)


# Old names.


@pytest.mark.feature("A06")
def test_the_compat_names_are_the_same_classes():
    v1, v2 = tf.compat.v1.distribute, tf.compat.v2.distribute
    for name in ("Strategy", "StrategyExtended", "CrossDeviceOps", "ReduceOp"):
        assert getattr(v1, name) is getattr(v2, name) is getattr(tf.distribute, name)
    assert v2.MirroredStrategy is tf.distribute.MirroredStrategy
    assert tf.compat.v2.Variable is tf.Variable
    assert tf.compat.v2.function is tf.function


@pytest.mark.feature("A06")
def test_every_method_of_every_api_page_exists():
    extended = (
        "batch_reduce_to broadcast_to call_for_each_replica colocate_vars_with "
        "experimental_run_steps_on_iterator non_slot_devices read_var reduce_to update "
        "update_non_slot value_container variable_created_in_scope "
        "experimental_between_graph experimental_require_static_shapes "
        "experimental_should_init parameter_devices should_checkpoint "
        "should_save_summary worker_devices"
    )
    for name in extended.split():
        assert hasattr(tf.compat.v1.distribute.StrategyExtended, name), name
    strategy = (
        "cluster_resolver extended num_replicas_in_sync scope run experimental_run_v2 "
        "reduce gather experimental_local_results unwrap group "
        "experimental_distribute_values_from_function"
    )
    for name in strategy.split():
        assert hasattr(tf.distribute.Strategy, name), name


@pytest.mark.feature("A03", "T01", "T04")
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_the_number_of_replicas_is_that_of_the_devices(n):
    assert mirrored(n).num_replicas_in_sync == n
    assert central(n).num_replicas_in_sync == n
