"""StrategyExtended.reduce_to, batch_reduce_to, broadcast_to and read_var."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    AGGREGATION,
    EXECUTIONS,
    MEAN,
    SUM,
    central,
    context,
    copies,
    device_index,
    execute,
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


def places(strategy, x):
    """Which device holds each local result."""
    return [device_index(part) for part in strategy.experimental_local_results(x)]


def sparse(replica_number):
    """Rows that differ between replicas, of an array of shape (3, 1)."""
    return tf.IndexedSlices(
        jnp.asarray([[1.0]]) * replica_number,
        jnp.asarray(context().replica_id_in_sync_group, jnp.int32)[None],
        (3, 1),
    )


@pytest.mark.feature("M06", "O01", "O02")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_device_as_destination_gets_a_plain_array(n):
    s = mirrored(n)
    for name in ("CPU:5", "/cpu:5", "/job:localhost/replica:0/task:0/device:CPU:5"):
        result = s.extended.reduce_to(SUM, s.run(number), name)
        assert (kind(result), plain(result)) == ("array", sum(numbers(n)))
        assert places(s, result) == [5]


@pytest.mark.feature("M06", "O06")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_value_as_destination_makes_it_mirrored_on_its_devices(how, n):
    s = mirrored(n)
    p = execute(how, s, number)
    result = s.extended.reduce_to(SUM, p, p)
    assert kind(result) == "Mirrored"
    assert local(s, result) == [sum(numbers(n))] * n
    assert places(s, result) == list(range(n))


@pytest.mark.feature("M06", "O03")
def test_a_variable_as_destination_says_where_and_is_not_changed(s):
    for v in (variable(s, 9.0), on_read(s, 9.0)):
        result = s.extended.reduce_to(SUM, s.run(number), v)
        assert (kind(result), local(s, result)) == ("Mirrored", [3.0, 3.0])
        assert places(s, result) == [0, 1]
        assert copies(v) == [9.0, 9.0]


@pytest.mark.feature("O04", "O05")
def test_an_array_or_plain_variable_as_destination_gets_an_array_on_its_device(s):
    with jax.default_device(jax.devices("cpu")[3]):
        array, u = jnp.asarray(0.0), tf.Variable(9.0)
    result = s.extended.reduce_to(MEAN, s.run(number), array)
    assert (kind(result), plain(result), places(s, result)) == ("array", 1.5, [3])
    result = s.extended.reduce_to(SUM, s.run(number), u)
    assert (kind(result), plain(result), places(s, result)) == ("array", 3.0, [3])
    assert plain(u) == 9.0


@pytest.mark.feature("O01")
def test_other_destinations_are_refused(s):
    p = per_replica(s, 1.0, 2.0)
    for where, error in (
        (None, AttributeError),
        (3, AttributeError),
        (["CPU:0"], AssertionError),
        ("", ValueError),
        ("CPU:99", ValueError),
    ):
        with pytest.raises(error):
            s.extended.reduce_to(SUM, p, where)


@pytest.mark.feature("O01")
def test_what_is_not_distributed_has_a_mean_but_no_sum(s):
    x = jnp.asarray(1.0)
    with pytest.raises(ValueError, match="non-DistributedValues"):
        s.extended.reduce_to(SUM, x, "CPU:0")
    assert plain(s.extended.reduce_to(MEAN, x, "CPU:0")) == 1.0
    assert plain(mirrored(1).extended.reduce_to(SUM, x, "CPU:0")) == 1.0


@pytest.mark.feature("F09", "O01")
def test_ops_are_members_names_or_aggregations(s):
    p = per_replica(s, 1.0, 2.0)
    for op in (SUM, "sum", AGGREGATION.SUM):
        assert plain(s.extended.reduce_to(op, p, "CPU:0")) == 3.0
        assert local(s, s.extended.batch_reduce_to(op, [(p, p)])[0]) == [3.0, 3.0]
    for op in (MEAN, "mean", AGGREGATION.MEAN):
        assert plain(s.extended.reduce_to(op, p, "CPU:0")) == 1.5
        assert local(s, s.extended.batch_reduce_to(op, [(p, p)])[0]) == [1.5, 1.5]
    for op in ("x", AGGREGATION.NONE, AGGREGATION.ONLY_FIRST_REPLICA):
        with pytest.raises(ValueError):
            s.extended.reduce_to(op, p, "CPU:0")


@pytest.mark.feature("O09")
def test_communication_options_are_accepted(s):
    options = tf.distribute.experimental.CommunicationOptions(
        bytes_per_pack=1024, timeout_seconds=60.0, implementation="RING"
    )
    p = per_replica(s, 1.0, 2.0)
    assert plain(s.extended.reduce_to(SUM, p, "CPU:0", options=options)) == 3.0
    batch = s.extended.batch_reduce_to(SUM, [(p, "CPU:0")], options=options)
    assert plain(batch) == [3.0]


@pytest.mark.feature("D09", "O01")
def test_one_replica_gets_plain_arrays():
    s = mirrored(1)
    p = per_replica(s, 5.0)
    v = variable(s)
    for where in (p, v, "CPU:0", "CPU:1"):
        result = s.extended.reduce_to(SUM, p, where)
        assert (kind(result), plain(result)) == ("array", 5.0)


@pytest.mark.feature("O01")
def test_structures_are_reduced_leaf_by_leaf(s):
    result = s.extended.reduce_to(SUM, {"a": per_replica(s, 1.0, 2.0)}, "CPU:0")
    assert plain(result) == {"a": 3.0}


@pytest.mark.feature("O10")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_batch_gives_a_list_of_results_in_order(how, n):
    s = mirrored(n)
    v, w = variable(s), variable(s, [0.0, 0.0])
    p = execute(how, s, lambda: (number(), jnp.stack([number(), 10.0 * number()])))
    result = s.extended.batch_reduce_to(SUM, [(p[0], v), (p[1], w)])
    total = sum(numbers(n))
    assert type(result) is list
    assert [local(s, x) for x in result] == [[total] * n, [[total, 10.0 * total]] * n]
    assert (copies(v), copies(w)) == ([0.0] * n, [[0.0, 0.0]] * n)


@pytest.mark.feature("O10")
def test_destinations_may_differ_within_a_batch(s):
    p = s.run(lambda: (number(), number()))
    result = s.extended.batch_reduce_to("MEAN", [(p[0], "CPU:0"), (p[1], p[1])])
    assert [kind(x) for x in result] == ["array", "Mirrored"]
    assert [local(s, x) for x in result] == [[1.5], [1.5, 1.5]]


@pytest.mark.feature("O10")
def test_integers_are_averaged_as_floats(s):
    p = s.run(lambda: jnp.asarray(context().replica_id_in_sync_group)[None] + 1)
    mean = s.extended.batch_reduce_to(MEAN, [(p, p)])[0]
    assert local(s, mean) == [[1.5], [1.5]]


@pytest.mark.feature("O07", "O10")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_indexed_slices_are_concatenated_on_every_device(s, how):
    v, w = variable(s), variable(s, [[0.0], [0.0], [0.0]])
    p = execute(how, s, lambda: (number(), sparse(number())))
    rows = {"values": [[1.0], [2.0]], "indices": [0, 1]}
    result = s.extended.reduce_to(SUM, p[1], w)
    assert (kind(result), local(s, result)) == ("Mirrored", [rows, rows])
    batch = s.extended.batch_reduce_to(SUM, [(p[0], v), (p[1], w)])
    assert [local(s, x) for x in batch] == [[3.0, 3.0], [rows, rows]]
    mean = s.extended.reduce_to(MEAN, p[1], w)
    assert local(s, mean)[0] == {"values": [[0.5], [1.0]], "indices": [0, 1]}


@pytest.mark.feature("O11", "R14")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda: mirrored(1), [1.0]),
        (lambda: mirrored(2), [2.0, 2.0]),
        (lambda: mirrored(8), [8.0] * 8),
        (lambda: central(2), [2.0]),
        (lambda: central(4), [4.0]),
        (one_device, [1.0]),
    ],
    ids=["mirrored-1", "mirrored-2", "mirrored-8", "central-2", "central-4", "one"],
)
def test_the_standard_update_of_the_documentation_works_on_every_strategy(
    make, want, how
):
    strategy = make()
    v = variable(strategy)

    def step(var):
        def merge(st, value, var):
            reduced = st.extended.reduce_to(SUM, value, destinations=var)
            st.extended.update(var, lambda var, x: var.assign(x), args=(reduced,))

        context().merge_call(merge, args=(number() * 0.0 + 1.0, var))

    execute(how, strategy, step, args=(v,))
    assert local(strategy, v) == want


# broadcast_to.


@pytest.mark.feature("O12")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_broadcast_copies_one_value_to_the_devices_of_a_variable(n):
    s = mirrored(n)
    v = variable(s)
    result = s.extended.broadcast_to(jnp.asarray([1.0, 2.0]), v)
    assert kind(result) == ("Mirrored" if n > 1 else "array")
    assert local(s, result) == [[1.0, 2.0]] * n
    assert places(s, result) == list(range(n))
    assert copies(v) == [0.0] * n


@pytest.mark.feature("O12")
def test_broadcast_to_a_device_gives_an_array_there(s):
    result = s.extended.broadcast_to(jnp.asarray(1.0), "CPU:3")
    assert (kind(result), plain(result), places(s, result)) == ("array", 1.0, [3])
    assert plain(s.extended.broadcast_to(np.ones(2), "CPU:0")) == [1.0, 1.0]


@pytest.mark.feature("O12")
def test_broadcast_leaves_numbers_and_per_replica_values_alone(s):
    p = per_replica(s, 1.0, 2.0)
    assert s.extended.broadcast_to(3.0, "CPU:0") == 3.0
    assert type(s.extended.broadcast_to(3, variable(s))) is int
    assert s.extended.broadcast_to(p, "CPU:0") is p


@pytest.mark.feature("O12")
def test_broadcast_refuses_no_destination_and_several(s):
    for where in (None, ["CPU:0"]):
        with pytest.raises(AssertionError):
            s.extended.broadcast_to(jnp.asarray(1.0), where)


# cross_device_ops and read_var.


@pytest.mark.feature("T01")
@pytest.mark.parametrize(
    "ops",
    [
        tf.distribute.ReductionToOneDevice(),
        tf.distribute.ReductionToOneDevice("CPU:0"),
        tf.distribute.HierarchicalCopyAllReduce(num_packs=2),
        tf.distribute.NcclAllReduce(),
    ],
    ids=repr,
)
def test_every_cross_device_op_gives_the_same_sum(ops):
    s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=ops)
    assert plain(s.reduce("SUM", s.run(number), None)) == 3.0


@pytest.mark.feature("T01")
def test_cross_device_ops_are_checked():
    with pytest.raises(ValueError, match="num_packs >= 0"):
        tf.distribute.NcclAllReduce(num_packs=-1)
    with pytest.raises(ValueError, match="num_packs >= 0"):
        tf.distribute.HierarchicalCopyAllReduce(num_packs=-1)
    with pytest.raises(ValueError, match="cross_device_ops"):
        tf.distribute.MirroredStrategy(["CPU:0"], cross_device_ops="nccl")


@pytest.mark.feature("P12")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_read_var_gives_the_value_or_the_aggregate(n):
    s = mirrored(n)
    v, w, x = variable(s, 2.0), on_read(s, 2.0), on_read(s, 2.0, "MEAN")
    read = s.extended.read_var
    assert plain([read(v), read(w), read(x)]) == [2.0, 2.0 * n, 2.0]
    with pytest.raises(AttributeError):
        read(tf.Variable(1.0))


@pytest.mark.feature("P12", "T04", "T05")
def test_read_var_gives_the_value_of_central_and_one_device_variables():
    for strategy in (central(2), one_device()):
        assert plain(strategy.extended.read_var(variable(strategy, 2.0))) == 2.0
