"""Making variables, reading them, and what they are."""

import copy
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    EXECUTIONS,
    central,
    context,
    copies,
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
    plain,
    variable,
)

# Making them.


@pytest.mark.feature("B05", "R01", "R02", "R15")
@pytest.mark.parametrize("n", [1, 2, 8])
def test_the_scope_and_the_synchronization_decide_the_kind_of_variable(n):
    s = mirrored(n)
    for synchronization in ("AUTO", "ON_WRITE"):
        v = variable(s, 1.0, synchronization=synchronization)
        assert kind(v) == "MirroredVariable"
        assert copies(v) == [1.0] * n
    assert kind(on_read(s)) == "SyncOnReadVariable"
    outside = tf.Variable(1.0)
    assert kind(outside) == "ResourceVariable"
    for v in (variable(s), on_read(s)):
        assert isinstance(v, tf.Variable)
        assert isinstance(v, tf.distribute.DistributedValues)
    assert not isinstance(outside, tf.distribute.DistributedValues)


@pytest.mark.feature("R03")
def test_variables_have_the_defaults_of_tensorflow(s):
    with s.scope():
        v = tf.Variable(1.0)
    w = on_read(s, 1.0)
    found = [
        (x.aggregation.name, x.synchronization.name, x.trainable, x.name, x.shape)
        for x in (v, w)
    ]
    assert found == [
        ("NONE", "ON_WRITE", True, "Variable:0", ()),
        ("SUM", "ON_READ", False, "Variable:0", ()),
    ]
    assert v.dtype == w.dtype == jnp.float32
    assert on_read(s, trainable=True).trainable
    assert not variable(s, trainable=False).trainable


@pytest.mark.feature("R03")
def test_what_no_strategy_can_keep_is_refused(s):
    words = (
        "`NONE` variable synchronization mode is not supported with tf.distribute "
        "strategy. Please change the `synchronization` for variable: None"
    )
    with pytest.raises(ValueError, match=words):
        variable(s, synchronization="NONE")
    for synchronization in ("ON_WRITE", "ON_READ"):
        words = (
            "creating distributed tf.Variable with aggregation=MEAN and a non-floating "
            "dtype is not supported, please use a different aggregation or dtype; "
            "received int32"
        )
        with pytest.raises(ValueError, match=words):
            variable(s, 1, "MEAN", synchronization)
        variable(s, 1, "SUM", synchronization)
    with s.scope():
        with pytest.raises(ValueError, match="aggregation mode: sum for"):
            tf.Variable(1.0, aggregation="sum")
        with pytest.raises(ValueError, match="synchronization mode: on_read for"):
            tf.Variable(1.0, synchronization="on_read")
        with pytest.raises(ValueError, match="initial_value"):
            tf.Variable()


@pytest.mark.feature("R01")
@pytest.mark.parametrize("n", [1, 4])
def test_an_initial_value_function_is_called_once_for_all_copies(n):
    s, calls = mirrored(n), []

    def initial():
        calls.append(1)
        return np.random.default_rng(len(calls)).normal(size=3).astype(np.float32)

    for make in (variable, on_read):
        calls.clear()
        v = make(s, initial)
        assert len(calls) == 1
        assert all(c == copies(v)[0] for c in copies(v))


@pytest.mark.feature("R01")
def test_dtype_and_shape_can_be_given(s):
    v = variable(s, [1, 2], dtype=jnp.float32, shape=(2,))
    assert (v.dtype, v.shape, v.ndim, v.size) == (jnp.float32, (2,), 1, 2)
    assert variable(s, [1.0], shape=(None,)).shape == (1,)
    with pytest.raises(ValueError, match="shape"):
        variable(s, [1.0, 2.0], shape=(3,))


@pytest.mark.feature("R01")
def test_copies_are_named_and_placed_after_their_replicas(s):
    v = variable(s, 1.0, name="q")
    assert [c.name for c in v.values] == ["q:0", "q/replica_1:0"]
    assert [c.device[-5:] for c in v.values] == ["CPU:0", "CPU:1"]
    assert [device_index(c.value()) for c in v.values] == [0, 1]
    assert (v.name, v.device[-5:]) == ("q:0", "CPU:0")


@pytest.mark.feature("B09", "P16")
def test_a_variable_belongs_to_the_strategy_in_whose_scope_it_was_made(s):
    v, u = variable(s), tf.Variable(1.0)
    owns = s.extended.variable_created_in_scope
    assert owns(v)
    assert owns(v.values[0])
    assert not owns(u)
    assert not mirrored(4).extended.variable_created_in_scope(v)
    assert v.distribute_strategy is s


@pytest.mark.feature("R01")
def test_a_deep_copy_is_another_variable(s):
    for v in (variable(s, 1.0, "SUM"), on_read(s, 1.0), tf.Variable(1.0)):
        twin = copy.deepcopy(v)
        assert twin is not v
        assert (kind(twin), plain(twin)) == (kind(v), plain(v))
        twin.assign(6.0)
        assert plain(v) != plain(twin)
        assert twin.aggregation is v.aggregation


@pytest.mark.feature("R01")
def test_a_handle_names_a_copy_and_there_is_none_across_replicas(s):
    v = variable(s)
    with s.scope(), pytest.raises(ValueError, match="handle"):
        _ = v.handle
    assert v.handle is v.values[0].handle
    own = s.run(lambda: v.handle is v.values[index()].handle)
    assert own is True


@pytest.mark.feature("B06")
def test_creators_outside_the_scope_see_components_and_inside_the_variable(s):
    log = []

    def creator(tag):
        def create(next_creator, **kwargs):
            made = next_creator(**kwargs)
            log.append((tag, kind(made)))
            return made

        return create

    with (
        tf.variable_creator_scope(creator("outer")),
        s.scope(),
        tf.variable_creator_scope(creator("middle")),
        tf.variable_creator_scope(creator("inner")),
    ):
        tf.Variable(1.0)
    assert log == [
        ("outer", "ResourceVariable"),
        ("outer", "ResourceVariable"),
        ("middle", "MirroredVariable"),
        ("inner", "MirroredVariable"),
    ]


@pytest.mark.feature("B06")
def test_a_creator_may_change_what_is_made(s):
    def rename(next_creator, **kwargs):
        return next_creator(**{**kwargs, "name": "renamed", "initial_value": 7.0})

    with tf.variable_creator_scope(rename):
        outside = tf.Variable(1.0)
        inside = variable(s)
    assert (outside.name, plain(outside)) == ("renamed:0", 7.0)
    assert (inside.name, copies(inside)) == ("renamed:0", [7.0, 7.0])
    with s.scope(), tf.variable_creator_scope(rename):
        inner = tf.Variable(1.0)
    assert (inner.name, copies(inner)) == ("renamed:0", [7.0, 7.0])
    assert tf.Variable(1.0).name == "Variable:0"


# Reading them.


@pytest.mark.feature("B10", "C12", "R01")
def test_a_mirrored_variable_is_read_like_a_value_in_and_out_of_scope(s):
    v = variable(s, 3.0)

    def look():
        return plain(
            [v.read_value(), v.value(), v + 1.0, 1.0 - v, -v, v * v, jnp.sum(v)]
        )

    want = [3.0, 3.0, 4.0, -2.0, -3.0, 9.0, 3.0]
    with s.scope():
        assert look() == want
    assert look() == want
    assert v.numpy() == 3.0


@pytest.mark.feature("C10", "R01")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 8])
def test_a_replica_reads_its_own_copy(how, n):
    s = mirrored(n)
    v, w = variable(s, 3.0), on_read(s)
    s.run(lambda: w.assign(number() * 10.0))
    a, b = execute(how, s, lambda: (v * number(), w + 1.0))
    assert local(s, a) == [3.0 * x for x in numbers(n)]
    assert local(s, b) == [10.0 * x + 1.0 for x in numbers(n)]


@pytest.mark.feature("B10", "C13")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_another_strategy_may_not_use_the_variable(s, how):
    other = mirrored(4)
    for v in (variable(s, 3.0), on_read(s, 3.0)):
        with other.scope():
            with pytest.raises(RuntimeError, match="Mixing different"):
                v.read_value()
            with pytest.raises(RuntimeError, match="Mixing different"):
                v.assign(1.0)
        with pytest.raises(RuntimeError, match="Mixing different"):
            execute(how, other, lambda v=v: v + 1.0)
        assert copies(v) == [3.0, 3.0]


@pytest.mark.feature("C13")
def test_the_error_about_a_foreign_variable_says_where_it_was_made(s):
    with s.scope():
        v = tf.Variable(1.0, name="mine")
    with mirrored(4).scope(), pytest.raises(RuntimeError) as error:
        v.read_value()
    assert "'mine'" in str(error.value)
    assert __file__ in str(error.value)


@pytest.mark.feature("R02", "R11", "R18")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_sync_on_read_variable_is_aggregated_when_read_across_replicas(n):
    s = mirrored(n)
    tens = [10.0 * x for x in numbers(n)]
    wanted = {"SUM": sum(tens), "MEAN": sum(tens) / n, "ONLY_FIRST_REPLICA": tens[0]}
    made = {a: on_read(s, aggregation=a) for a in wanted}

    @tf.function
    def fill():
        s.run(lambda: [v.assign(number() * 10.0) for v in made.values()] and None)
        return {a: v.read_value() for a, v in made.items()}

    assert plain(fill()) == pytest.approx(wanted)
    for a, v in made.items():
        assert copies(v) == tens
        assert plain([v.read_value(), v.value(), v + 0.0]) == pytest.approx(
            [wanted[a]] * 3
        )
        assert v.numpy() == pytest.approx(wanted[a])


@pytest.mark.feature("R02", "R03")
def test_a_sync_on_read_variable_without_aggregation_is_read_in_replicas_only(s):
    v = on_read(s, 1.0, "NONE")
    for read in (v.read_value, v.value, v.numpy, lambda: v + 1.0):
        with pytest.raises(ValueError, match="VariableAggregation"):
            read()
    for how in EXECUTIONS:
        assert local(s, execute(how, s, v.read_value)) == [1.0, 1.0]


@pytest.mark.feature("R02")
def test_the_sum_of_integers_is_an_integer(s):
    v = on_read(s, 0)
    s.run(lambda: v.assign(index() + 5))
    assert (plain(v), v.read_value().dtype) == (11, jnp.int32)


@pytest.mark.feature("R12")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_moving_average_is_local_to_the_replica(how, n):
    s = mirrored(n)
    v = on_read(s, 1.0, "MEAN")
    execute(how, s, lambda: v.assign(0.5 * v + 0.5 * number()))
    parts = [0.5 + 0.5 * x for x in numbers(n)]
    assert copies(v) == parts
    assert plain(v) == sum(parts) / n


@pytest.mark.feature("R11")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("aggregation", ["SUM", "MEAN", "ONLY_FIRST_REPLICA"])
def test_merge_call_reads_the_aggregate(s, how, aggregation):
    v = on_read(s, 0.0, aggregation)

    def fn():
        v.assign(number())
        return v.read_value(), context().merge_call(lambda st: v.read_value())

    own, merged = execute(how, s, fn)
    want = {"SUM": 3.0, "MEAN": 1.5, "ONLY_FIRST_REPLICA": 1.0}[aggregation]
    assert local(s, own) == [1.0, 2.0]
    assert set(local(s, merged)) == {want}


# As arrays.


@pytest.mark.feature("R01")
def test_variables_take_part_in_arithmetic_comparison_and_indexing(s):
    for v in (variable(s, [1.0, 2.0, 4.0]), tf.Variable([1.0, 2.0, 4.0])):
        assert plain(v + v) == [2.0, 4.0, 8.0]
        assert plain(2.0 / v) == [2.0, 1.0, 0.5]
        assert plain(v**2 - v) == [0.0, 2.0, 12.0]
        assert plain(v // 2.0) == [0.0, 1.0, 2.0]
        assert plain(v % 2.0) == [1.0, 0.0, 0.0]
        assert plain(abs(-v)) == [1.0, 2.0, 4.0]
        assert plain(v @ v) == 21.0
        assert plain(v == 2.0) == [False, True, False]
        assert plain(v != 2.0) == [True, False, True]
        assert plain(v >= 2.0) == [False, True, True]
        assert plain([v[1], v[-1], v[:2]]) == [2.0, 4.0, [1.0, 2.0]]
        assert plain(list(v)) == [1.0, 2.0, 4.0]
        assert plain(jnp.stack([v, v])[1]) == [1.0, 2.0, 4.0]
        assert np.asarray(v).tolist() == [1.0, 2.0, 4.0]
        assert plain(np.ones(3, np.float32) + v) == [2.0, 3.0, 5.0]
    integer = variable(s, 6)
    assert plain([integer & 3, integer | 1, integer ^ 2, integer << 1]) == [2, 7, 4, 12]


@pytest.mark.feature("R01")
def test_python_converts_a_variable_to_a_number_but_has_no_length_for_it(s):
    v, w = variable(s, 2.0), variable(s, [1.0, 2.0])
    assert bool(v)
    assert bool(v == 2.0)
    assert (float(v), int(v)) == (2.0, 2)
    with pytest.raises(TypeError, match="has no len"):
        len(w)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(w)
    assert len({v.ref(), w.ref(), v.ref()}) == 2


@pytest.mark.feature("R01")
def test_what_was_read_of_a_variable_survives_later_steps(s):
    v = variable(s, [1.0, 2.0], "SUM")
    kept = (v.value(), v.numpy(), np.asarray(v), v + 0.0, v.values[0].value())
    step = tf.function(lambda: s.run(lambda: v.assign_add(jnp.ones(2) * number())))
    for _ in range(3):
        step()
    assert plain(list(kept)) == [[1.0, 2.0]] * 5
    assert plain(v) == [10.0, 11.0]


# Containers and components.


@pytest.mark.feature("P13", "P15")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_container_of_a_component_is_its_variable(n):
    s = mirrored(n)
    find = s.extended.value_container
    for v in (variable(s), on_read(s)):
        assert find(v) is v
        for component in v.values:
            assert find(component) is v
            assert component in s.experimental_local_results(find(component))
    p, u = s.run(number), tf.Variable(1.0)
    assert find(p) is p
    assert find(u) is u
    assert find(3) == 3


@pytest.mark.feature("P14")
def test_a_component_whose_variable_is_gone_is_its_own_container(s):
    component = variable(s, 1.0).values[0]
    gc.collect()
    assert s.extended.value_container(component) is component
    assert plain(component) == 1.0


@pytest.mark.feature("P13", "T04", "T05")
def test_containers_of_central_and_one_device_variables():
    v = variable(central(2))
    assert central(2).extended.value_container(v.get()) is v
    assert central(2).extended.value_container(v) is v
    u = variable(one_device())
    assert one_device().extended.value_container(u) is u


@pytest.mark.feature("M08", "P02")
def test_variables_made_beside_another_share_its_devices(s):
    v = variable(s, 1.0)
    with s.scope(), s.extended.colocate_vars_with(v):
        slot = tf.Variable(2.0)
    assert kind(slot) == "MirroredVariable"
    assert [c.device for c in slot.values] == [c.device for c in v.values]
    with s.scope(), s.extended.colocate_vars_with(s.extended.non_slot_devices([v])):
        beta = tf.Variable(2.0)
    assert [c.device for c in beta.values] == list(s.extended.worker_devices)
    with central(2).scope():
        w = tf.Variable(1.0)
        with central(2).extended.colocate_vars_with(w):
            assert tf.Variable(1.0).device == w.device


@pytest.mark.feature("P03", "P04")
def test_colocation_needs_the_scope_and_a_variable_of_it(s):
    v, foreign, u = variable(s), variable(mirrored(4)), tf.Variable(1.0)
    for wrong in (u, foreign, "CPU:0"):
        with (
            s.scope(),
            pytest.raises(ValueError, match="must only be passed a variable"),
            s.extended.colocate_vars_with(wrong),
        ):
            pass
    with (
        pytest.raises(RuntimeError, match="Need to be inside"),
        s.extended.colocate_vars_with(v),
    ):
        pass


@pytest.mark.feature("A07")
def test_a_partitioner_is_ignored_with_a_warning(s):
    with s.scope(), pytest.warns(Warning, match="artition"):
        v = tf.compat.v1.get_variable("x", [4], partitioner=lambda **_: [2])
    assert kind(v) == "MirroredVariable"
    assert [c.shape for c in v.values] == [(4,), (4,)]


@pytest.mark.feature("R01")
def test_a_variable_is_a_value_to_jax_transformations(s):
    v = variable(s, 3.0)
    assert plain(jax.jit(lambda x: x * 2.0)(v)) == 6.0
    assert plain(jax.grad(lambda x: x * v * v)(1.0)) == 9.0
    assert plain(jax.vmap(lambda x: x * v)(jnp.ones(2))) == [3.0, 3.0]
