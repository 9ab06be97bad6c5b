"""Strategy.run: how arguments are taken apart and results are put together."""

import collections
import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    AGGREGATION,
    COMPILED,
    ENCLOSED,
    EXECUTIONS,
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
    per_replica,
    plain,
    variable,
)

Pair = collections.namedtuple("Pair", "a b")


# Arguments.


@pytest.mark.feature("D01")
def test_positional_arguments_come_in_a_list_or_tuple(s):
    assert s.run(lambda x: x, args=[1]) == 1
    assert s.run(lambda x: x, args=(1,)) == 1
    for wrong in (jnp.asarray(1.0), {"a": 1}, "ab"):
        with pytest.raises(ValueError, match="list or tuple"):
            s.run(lambda x: x, args=wrong)


@pytest.mark.feature("D01")
def test_keyword_arguments_may_be_none(s):
    assert local(s, s.run(lambda: jnp.asarray(1.0), kwargs=None)) == [1.0, 1.0]


@pytest.mark.feature("D01", "D03", "D04")
def test_per_replica_values_are_unwrapped_at_any_depth_and_the_rest_is_passed(s):
    shared, array, seen = object(), jnp.asarray(7.0), []

    def fn(a, k):
        assert a["o"] is shared
        assert a["t"] is array
        seen.append((plain(a["x"][0]), a["x"][1], plain(k)))

    tree = {"x": [per_replica(s, 1.0, 2.0), 5], "o": shared, "t": array}
    s.run(fn, args=(tree,), kwargs={"k": per_replica(s, 3.0, 4.0)})
    assert seen == [(1.0, 5, 3.0), (2.0, 5, 4.0)]


@pytest.mark.feature("D03", "D12")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_arguments_mean_the_same_eagerly_and_compiled(how, n):
    s = mirrored(n)
    parts = per_replica(s, *[[1.0 + i, 2.0] for i in range(n)])
    mirror = s.extended.reduce_to("SUM", s.run(number), s.run(number))

    def fn(tree, shared, same, scale):
        return {"sum": jnp.sum(tree["x"][0]) * scale + shared, "same": same + 0.0}

    result = execute(
        how,
        s,
        fn,
        args=({"x": (parts,)}, jnp.asarray(10.0), mirror),
        kwargs={"scale": 2.0},
    )
    assert local(s, result["sum"]) == [16.0 + 2 * i for i in range(n)]
    assert local(s, result["same"]) == [sum(numbers(n))] * n


@pytest.mark.feature("D03")
def test_a_mirrored_value_is_unwrapped_and_a_variable_is_passed_whole(s):
    v, w = variable(s), on_read(s)
    m = s.extended.reduce_to("SUM", per_replica(s, 1.0, 2.0), v)
    assert kind(m) == "Mirrored"
    seen = []
    s.run(lambda *a: seen.append((kind(a[0]), plain(a[0]), a[1:])), args=(m, v, w))
    assert seen == [("array", 3.0, (v, w))] * 2


@pytest.mark.feature("D04")
def test_indexed_slices_are_passed_part_by_part(s):
    p = s.experimental_distribute_values_from_function(
        lambda c: tf.IndexedSlices(
            jnp.ones([2, 1]) * (c.replica_id_in_sync_group + 1), jnp.asarray([0, 2])
        )
    )
    for how in EXECUTIONS:
        total = execute(how, s, lambda x: jnp.sum(x.values), args=(p,))
        assert local(s, total) == [2.0, 4.0]


@pytest.mark.feature("C13", "D03")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_value_for_another_number_of_replicas_is_refused(how):
    few = per_replica(mirrored(2), 1.0, 2.0)
    many = per_replica(mirrored(4), 1.0, 2.0, 3.0, 4.0)
    with pytest.raises(IndexError, match=r"2 values .* 4 replicas"):
        execute(how, mirrored(4), lambda x: x + 0, args=(few,))
    with pytest.raises(IndexError, match=r"4 values .* 2 replicas"):
        execute(how, mirrored(2), lambda x: x + 0, args=(many,))


@pytest.mark.feature("D01")
def test_any_callable_can_be_run(s):
    class Scaled:
        def __init__(self):
            self.k = 3.0

        def method(self, x):
            return x * self.k

        def __call__(self, x):
            return x * self.k

    p = per_replica(s, 1.0, 2.0)
    assert local(s, s.run(Scaled().method, args=(p,))) == [3.0, 6.0]
    assert local(s, s.run(Scaled(), args=(p,))) == [3.0, 6.0]
    added = functools.partial(lambda a, b: a + b, 1.0)
    assert local(s, s.run(added, args=(p,))) == [2.0, 3.0]


@pytest.mark.feature("D15")
def test_run_options_are_accepted_and_change_nothing(s):
    options = tf.distribute.RunOptions(experimental_enable_dynamic_batch_size=False)
    assert local(s, s.run(number, options=options)) == [1.0, 2.0]
    assert tuple(tf.distribute.RunOptions()) == (True, False, None)


@pytest.mark.feature("D02")
def test_run_has_its_old_name_too(s):
    p = per_replica(s, 1.0, 2.0)
    result = s.experimental_run_v2(lambda x, k: x * k, (p,), {"k": 2.0})
    assert local(s, result) == [2.0, 4.0]


@pytest.mark.feature("D09", "D18")
def test_the_constant_example_of_the_documentation_gives_6():
    s = mirrored(1)
    tensor = s.run(lambda x: x * 2.0, args=(jnp.asarray(3.0),))
    assert kind(tensor) == "array"
    assert plain(tensor) == 6.0


@pytest.mark.feature("D19", "G01")
def test_the_distributed_values_example_of_the_documentation_gives_2():
    s = mirrored(1)

    @tf.function
    def run():
        def value_fn(value_context):
            return value_context.num_replicas_in_sync

        values = s.experimental_distribute_values_from_function(value_fn)
        return s.run(lambda x: x * 2, args=(values,))

    assert plain(run()) == 2


# Results.


@pytest.mark.feature("D05", "D06")
def test_one_object_from_all_replicas_comes_back_as_itself(s):
    array, thing = jnp.asarray(7.0), object()
    assert s.run(lambda: array) is array
    assert s.run(lambda: thing) is thing
    assert s.run(lambda: [5, "a", True, None]) == [5, "a", True, None]
    assert s.run(lambda: None) is None
    assert s.run(dict) == {}
    assert s.run(tuple) == ()


@pytest.mark.feature("D05", "D07", "M01")
def test_different_objects_come_back_per_replica_even_if_they_are_equal(s):
    same = s.run(lambda: jnp.asarray(1.0))
    assert kind(same) == "PerReplica"
    assert local(s, same) == [1.0, 1.0]
    floats = s.run(lambda: float("1.5"))
    assert kind(floats) == "PerReplica"
    assert s.experimental_local_results(floats) == (1.5, 1.5)
    arrays = s.run(lambda: np.array([1.0, 2.0]))
    assert all(type(a) is np.ndarray for a in s.experimental_local_results(arrays))


@pytest.mark.feature("D05", "D07")
def test_none_on_one_replica_is_kept_there(s):
    result = s.run(lambda: None if index() == 0 else jnp.asarray(2.0))
    assert local(s, result) == [None, 2.0]


@pytest.mark.feature("D05")
def test_structures_keep_their_types_and_merge_leaf_by_leaf(s):
    result = s.run(
        lambda: {"l": [number(), 5], "t": (number(), None), "n": Pair(number(), "x")}
    )
    assert [type(result), type(result["l"]), type(result["t"])] == [dict, list, tuple]
    assert type(result["n"]) is Pair
    leaves = [result["l"][0], result["t"][0], result["n"].a]
    assert [local(s, x) for x in leaves] == [[1.0, 2.0]] * 3
    assert (result["l"][1], result["t"][1], result["n"].b) == (5, None, "x")


@pytest.mark.feature("D05", "D12")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
@pytest.mark.parametrize("n", [1, 2, 8])
def test_structures_leave_compiled_code_as_they_leave_eager_code(how, n):
    s = mirrored(n)
    result = execute(
        how, s, lambda: {"l": [number()], "n": Pair((number() * 2.0, None), ())}
    )
    assert type(result["n"]) is Pair
    assert result["n"].a[1] is None
    assert result["n"].b == ()
    assert local(s, result["l"][0]) == numbers(n)
    assert local(s, result["n"].a[0]) == [2.0 * x for x in numbers(n)]


@pytest.mark.feature("D05")
def test_an_ordered_mapping_keeps_the_order_of_replica_0(s):
    def fn():
        keys = "ba" if index() == 0 else "ab"
        return collections.OrderedDict((key, number()) for key in keys)

    result = s.run(fn)
    assert type(result) is collections.OrderedDict
    assert list(result) == ["b", "a"]
    assert local(s, result["a"]) == [1.0, 2.0]


@pytest.mark.feature("D05")
@pytest.mark.parametrize(
    "fn",
    [
        lambda: [number()] * (index() + 1),
        lambda: [number()] if index() == 0 else (number(),),
        lambda: {"a": 1} if index() == 0 else {"b": 1},
        lambda: {"a": 1} if index() == 0 else [1],
        lambda: [1] if index() == 0 else 1,
    ],
    ids=["length", "list-tuple", "keys", "mapping-list", "list-leaf"],
)
def test_structures_that_differ_between_replicas_are_refused(s, fn):
    with pytest.raises(AssertionError):
        s.run(fn)


@pytest.mark.feature("D05")
def test_replica_0_decides_what_is_a_leaf(s):
    result = s.run(lambda: number() if index() == 0 else [number()])
    assert [type(x) is list for x in s.experimental_local_results(result)] == [
        False,
        True,
    ]


@pytest.mark.feature("D08")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_variable_or_its_components_come_back_as_the_variable(n):
    s = mirrored(n)
    for v in (variable(s, aggregation="SUM"), on_read(s)):
        assert s.run(lambda v=v: v) is v
        five, own, merged = s.run(lambda v=v: (5, number(), v.values[index()]))
        assert merged is v
        assert (five, local(s, own)) == (5, numbers(n))
        assert s.run(lambda v=v: s.extended.value_container(v.values[index()])) is v


@pytest.mark.feature("D08")
def test_components_of_different_variables_do_not_merge(s):
    v, w = variable(s), variable(s)
    with pytest.raises(AssertionError):
        s.run(lambda: (v if index() == 0 else w).values[index()])


@pytest.mark.feature("D07")
def test_what_is_read_of_a_variable_comes_back_per_replica(s):
    v = variable(s, 1.0)
    assert kind(s.run(v.read_value)) == "PerReplica"
    assert kind(s.run(lambda: v + 0.0)) == "PerReplica"


@pytest.mark.feature("D07", "O07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_indexed_slices_are_one_leaf(s, how):
    def fn():
        replica = jnp.asarray(context().replica_id_in_sync_group)
        return tf.IndexedSlices(jnp.asarray([1.0]), replica[None])

    result = execute(how, s, fn)
    assert kind(result) == "PerReplica"
    assert local(s, result) == [
        {"values": [1.0], "indices": [0]},
        {"values": [1.0], "indices": [1]},
    ]


@pytest.mark.feature("D09")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_one_replica_returns_plain_values(how):
    s = mirrored(1)
    result = execute(how, s, lambda: {"a": number(), "b": [number()]})
    assert kind(result["a"]) == kind(result["b"][0]) == "array"
    assert type(s.run(lambda: float("1.5"))) is float
    v = variable(s)
    assert kind(v) == "MirroredVariable"
    assert s.run(lambda: v) is v
    assert s.run(lambda: v.values[0]) is v


@pytest.mark.feature("D05", "D12")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
def test_numbers_leave_compiled_code_as_one_array_and_none_stays_none(s, how):
    result = execute(how, s, lambda: {"a": number(), "b": 5, "c": None})
    assert kind(result["a"]) == "PerReplica"
    assert (kind(result["b"]), plain(result["b"]), result["c"]) == ("array", 5, None)


@pytest.mark.feature("D08", "D12")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
def test_a_variable_leaves_compiled_code_as_one_array(s, how):
    v = variable(s, 1.0)
    result = execute(how, s, lambda: v)
    assert (kind(result), plain(result)) == ("array", 1.0)
    w = on_read(s, 3.0)
    assert plain(tf.function(lambda: w)()) == 6.0


@pytest.mark.feature("D12")
def test_a_shared_argument_still_gives_per_replica_results(s):
    result = s.run(tf.function(lambda x: x * 2.0), args=(jnp.asarray(3.0),))
    assert kind(result) == "PerReplica"
    assert local(s, result) == [6.0, 6.0]


# Calls, order and errors.


@pytest.mark.feature("D11", "D12")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_compiled_functions_are_not_called_again_for_new_inputs(n):
    s, calls = mirrored(n), []

    def body(x):
        calls.append(1)
        return x * number()

    for step in range(3):
        s.run(body, args=(jnp.asarray(float(step)),))
    assert len(calls) == 3 * n
    compiled = tf.function(body)
    s.run(compiled, args=(jnp.asarray(0.0),))
    calls.clear()
    for step in range(3):
        result = s.run(compiled, args=(jnp.asarray(float(step)),))
        assert local(s, result) == [step * x for x in numbers(n)]
    assert calls == []
    s.run(compiled, args=(jnp.zeros(3),))
    assert calls


@pytest.mark.feature("D01")
def test_an_exception_reaches_the_caller_and_later_replicas_do_not_start(s):
    log = []

    def fn():
        log.append(index())
        if index() == 0:
            raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        s.run(fn)
    assert log == [0]


@pytest.mark.feature("L02")
def test_a_replica_that_waits_is_not_resumed_after_another_failed(s):
    log = []

    def fn():
        if index() == 1:
            raise KeyError("boom")
        try:
            context().merge_call(lambda st: 1)
        finally:
            log.append("unwound")
        log.append("resumed")

    with pytest.raises(KeyError, match="boom"):
        s.run(fn)
    assert log == ["unwound"]
    assert not tf.distribute.has_strategy()


def test_a_replica_that_is_ended_leaves_the_default_device_alone():
    before = jnp.asarray(1.0).devices()

    def fn():
        if index() == 1:
            raise KeyError("boom")
        with jax.default_device(jax.devices()[2]):
            context().merge_call(lambda st: 1)

    with pytest.raises(KeyError, match="boom"):
        tf.distribute.MirroredStrategy(["CPU:1", "CPU:0"]).run(fn)
    assert jnp.asarray(1.0).devices() == before


@pytest.mark.parametrize("end", ["raises", "merges"])
def test_replicas_end_whatever_a_finally_block_does(end, caplog):
    log = []

    def fn():
        number_of_replica = index()
        if number_of_replica == 2:
            raise KeyError("boom")
        try:
            context().merge_call(lambda st: 1)
        finally:
            log.append(number_of_replica)
            if end == "merges":
                context().merge_call(lambda st: 1)
            raise ValueError("in a finally block")

    with pytest.raises(KeyError, match="boom"):
        mirrored(3).run(fn)
    # Left waiting, a replica would end in the frame of whoever frees its memory.
    gc.collect()
    assert log == [0, 1]
    assert not tf.distribute.has_strategy()
    told = [r.exc_info[0] for r in caplog.records]
    assert told == ([] if end == "merges" else [ValueError, ValueError])


@pytest.mark.feature("D01")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
def test_a_compiled_step_that_fails_leaves_variables_as_they_were(s, how):
    v, w = variable(s, 1.0, "SUM"), on_read(s, 1.0)

    def fn():
        v.assign_add(number())
        w.assign_add(number())
        raise KeyError("boom")

    with pytest.raises(KeyError, match="boom"):
        execute(how, s, fn)
    assert (copies(v), copies(w)) == ([1.0, 1.0], [1.0, 1.0])
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("D01", "N05")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_each_replica_computes_on_its_own_device(n):
    s = mirrored(n)
    for how in EXECUTIONS:
        result = execute(how, s, lambda: number() + 1.0)
        found = [device_index(x) for x in s.experimental_local_results(result)]
        assert found == list(range(n))
    named = s.run(lambda: tuple(context().devices))
    found = s.experimental_local_results(named[0])
    assert list(found) == list(s.extended.worker_devices)


# Variables.


@pytest.mark.feature("D16", "R01")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_variable_made_by_the_replicas_is_one_with_the_value_of_replica_0(n):
    s, made = mirrored(n), []

    def fn():
        made.append(tf.Variable(number()))
        return made[-1]

    v = s.run(fn)
    assert kind(v) == "MirroredVariable"
    assert all(m is v for m in made)
    assert copies(v) == [1.0] * n
    assert s.extended.variable_created_in_scope(v)


@pytest.mark.feature("D16")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_compiled_step_makes_its_variables_on_the_first_call(how, n):
    s, made = mirrored(n), {}

    def fn():
        if not made:
            made["v"] = tf.Variable(number() * 5.0, aggregation=AGGREGATION.SUM)
            made["w"] = tf.Variable(
                number(),
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=AGGREGATION.SUM,
            )
        made["v"].assign_add(number())
        made["w"].assign_add(number())

    execute(how, s, fn)
    total = sum(numbers(n))
    assert kind(made["v"]) == "MirroredVariable"
    assert kind(made["w"]) == "SyncOnReadVariable"
    assert copies(made["v"]) == [5.0 + total] * n
    assert copies(made["w"]) == [1.0 + x for x in numbers(n)]
    execute(how, s, fn)
    assert copies(made["v"]) == [5.0 + 2 * total] * n


@pytest.mark.feature("D16")
def test_a_variable_that_replica_0_does_not_make_is_refused(s):
    def fn():
        tf.Variable(1.0)
        if index() == 1:
            tf.Variable(2.0)

    with pytest.raises(RuntimeError, match="Tried to create variable"):
        s.run(fn)


@pytest.mark.feature("B09", "R15")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_variable_made_outside_scope_is_shared_and_written_in_turn(how, n):
    s, u = mirrored(n), tf.Variable(0.0)
    assert kind(u) == "ResourceVariable"
    execute(how, s, lambda: u.assign_add(number()))
    assert plain(u) == sum(numbers(n))
    assert s.run(lambda: u) is u
    assert local(s, execute(how, s, lambda: u + number())) == [
        plain(u) + x for x in numbers(n)
    ]


# Per-replica values outside their replica.


@pytest.mark.feature("F11", "M01")
def test_a_per_replica_value_is_no_operand_across_replicas(s):
    p = per_replica(s, 1.0, 2.0)
    with pytest.raises(TypeError):
        p + 1.0
    with pytest.raises(TypeError):
        float(p)
    with pytest.raises((TypeError, ValueError)):
        jnp.add(p, 1.0)
    with s.scope(), pytest.raises((TypeError, ValueError)):
        jnp.add(p, 1.0)


@pytest.mark.feature("M01")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_captured_per_replica_value_is_the_own_part_in_a_replica(s, how):
    p = per_replica(s, 1.0, 2.0)
    assert local(s, execute(how, s, lambda: jnp.add(p, 10.0))) == [11.0, 12.0]
    with pytest.raises(TypeError):
        execute(how, s, lambda: p + 1.0)


@pytest.mark.feature("D05", "M01")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2])
def test_a_captured_per_replica_value_may_be_returned(how, n):
    s = mirrored(n)
    even = per_replica(s, *[[x] for x in numbers(n)])
    uneven = per_replica(s, *[[1.0] * (i + 1) for i in range(n)])
    found = execute(how, s, lambda: {"even": even, "uneven": uneven})
    assert local(s, found["even"]) == [[x] for x in numbers(n)]
    assert local(s, found["uneven"]) == [[1.0] * (i + 1) for i in range(n)]


@pytest.mark.feature("M02")
def test_a_mirrored_value_is_an_operand_anywhere(s):
    m = s.extended.reduce_to("SUM", per_replica(s, 1.0, 2.0), variable(s))
    assert plain([m + 1.0, 1.0 - m, jnp.add(m, 1.0), -m]) == [4.0, -2.0, 4.0, -3.0]
    assert plain(m * m / m) == 3.0
    assert m.numpy() == 3.0
    assert bool(m == 3.0)
    for how in EXECUTIONS:
        assert local(s, execute(how, s, lambda: m * number())) == [3.0, 6.0]


@pytest.mark.feature("M03")
def test_wrapped_values_and_distributed_variables_share_a_base(s):
    p, v = per_replica(s, 1.0, 2.0), variable(s)
    m = s.extended.reduce_to("SUM", p, p)
    base = tf.distribute.DistributedValues
    assert [isinstance(x, base) for x in (p, m, v, on_read(s))] == [True] * 4
    assert not isinstance(jnp.asarray(1.0), base)
    assert not isinstance(tf.Variable(1.0), base)


@pytest.mark.feature("M01")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
def test_per_replica_values_survive_jax_transformations_of_trees(s, how):
    p = execute(how, s, number)
    doubled = jax.tree.map(lambda x: x * 2.0, p)
    assert local(s, doubled) == [2.0, 4.0]
    parts = jax.tree.map(lambda x: x + 1.0, per_replica(s, [1.0], [2.0]))
    assert local(s, parts) == [[2.0], [3.0]]


# Local results.


@pytest.mark.feature("E01", "E02", "E03")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_local_results_are_a_tuple_of_what_each_replica_has(n):
    s = mirrored(n)
    find = s.experimental_local_results
    v, p = variable(s, 1.0), s.run(number)
    assert type(find(p)) is tuple
    assert [plain(x) for x in find(p)] == numbers(n)
    assert [kind(x) for x in find(v)] == ["ResourceVariable"] * n
    assert (find(None), find(3), find("a")) == ((None,), (3,), ("a",))
    nested = [plain(x) for x in find({"a": p, "b": 5})]
    assert nested == [{"a": x, "b": 5} for x in numbers(n)]
    assert find([1, 2]) == ([1, 2],) * n
    assert plain(s.unwrap(p)) == tuple(numbers(n))
    assert plain(s.group(p)) == (1.0 if n == 1 else None)


@pytest.mark.feature("E01")
def test_local_results_work_on_what_a_compiled_step_returned(s):
    for how in (COMPILED, ENCLOSED):
        result = execute(how, s, lambda: (number(), {"x": number() * 2.0}))
        assert local(s, result) == [(1.0, {"x": 2.0}), (2.0, {"x": 4.0})]


# Text.


@pytest.mark.feature("M11")
def test_wrapped_values_print_as_in_tensorflow(s):
    p = per_replica(s, 1.0, 2.0)
    assert repr(p) == (
        "PerReplica:{\n"
        "  0: <tf.Tensor: shape=(), dtype=float32, numpy=1.0>,\n"
        "  1: <tf.Tensor: shape=(), dtype=float32, numpy=2.0>\n}"
    )
    assert str(p) == (
        "PerReplica:{\n"
        "  0: tf.Tensor(1.0, shape=(), dtype=float32),\n"
        "  1: tf.Tensor(2.0, shape=(), dtype=float32)\n}"
    )
    m = s.extended.reduce_to("SUM", p, p)
    assert repr(m) == repr(per_replica(s, 3.0, 3.0)).replace("PerReplica", "Mirrored")


@pytest.mark.feature("M11")
def test_variables_print_as_in_tensorflow(s):
    v, w = variable(s, 1.0, name="v"), on_read(s, 1.0, name="w")
    assert repr(v) == str(v) == (
        "MirroredVariable:{\n"
        "  0: <tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>,\n"
        "  1: <tf.Variable 'v/replica_1:0' shape=() dtype=float32, numpy=1.0>\n}"
    )  # fmt: skip
    assert repr(w).startswith("SyncOnReadVariable:{\n  0: <tf.Variable 'w:0'")
    alone = variable(mirrored(1), 1.0, name="v")
    assert repr(alone) == (
        "MirroredVariable:{\n"
        "  0: <tf.Variable 'v:0' shape=() dtype=float32, numpy=1.0>\n}"
    )
