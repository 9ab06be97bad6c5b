"""StrategyExtended.update, update_non_slot, and experimental_run_steps_on_iterator."""

import jax.numpy as jnp
import pytest

import unisono as tf
from tests import machine
from tests.parity.programs import (
    COMPILED,
    EAGER,
    EXECUTIONS,
    MEAN,
    SUM,
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
    per_replica,
    plain,
    variable,
)


@pytest.mark.feature("C07", "Q01")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_function_is_called_once_per_copy_on_its_device(n):
    s, seen = mirrored(n), []
    v = variable(s, 5.0)

    def fn(component):
        made = jnp.asarray(1.0) + 0.0
        seen.append((kind(component), component.device[-5:], device_index(made)))

    s.extended.update(v, fn)
    assert seen == [
        ("ResourceVariable", name, i) for i, name in enumerate(machine.names(n))
    ]


@pytest.mark.feature("Q01")
@pytest.mark.parametrize("n", [2, 4])
def test_results_are_grouped_to_a_mirrored_value(n):
    s = mirrored(n)
    v = variable(s, 5.0, "SUM")
    result = s.extended.update(v, lambda x: x.assign(1.0))
    assert (kind(result), local(s, result), copies(v)) == (
        "Mirrored",
        [1.0] * n,
        [1.0] * n,
    )
    assert repr(result).startswith("Mirrored:{\n  0: <tf.Tensor: shape=(), ")


@pytest.mark.feature("Q01", "Q05")
def test_one_copy_gives_its_result_unwrapped():
    for s in (mirrored(1), one_device(), central(1), central(2)):
        v = variable(s, 5.0)
        assert plain(s.extended.update(v, lambda x: x.assign(1.0))) == 1.0
        apart = s.extended.update(v, lambda x: x.assign(2.0), group=False)
        assert plain(apart) == (2.0,)
        assert plain(v) == 2.0


@pytest.mark.feature("Q05")
def test_ungrouped_results_are_tuples_leaf_by_leaf(s):
    v = variable(s, 5.0)
    result = s.extended.update(v, lambda x: x.assign(1.0), group=False)
    assert (type(result), plain(result)) == (tuple, (1.0, 1.0))
    result = s.extended.update(
        v, lambda x: {"a": x.assign(1.0), "b": (x + 0.0, 7)}, group=False
    )
    assert plain(result) == {"a": (1.0, 1.0), "b": ((1.0, 1.0), (7,))}


@pytest.mark.feature("Q02")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_mirrored_arguments_are_passed_copy_by_copy(how, n):
    s = mirrored(n)
    v, w = variable(s, 5.0), variable(s, 2.0)
    m = s.extended.reduce_to("SUM", s.run(number), v)

    def fn():
        s.extended.update(
            v,
            lambda x, y, z, k: x.assign_add(y * k * z),
            args=(m, w),
            kwargs={"k": 10.0},
        )

    fn() if how == EAGER else tf.function(fn)()
    assert copies(v) == [5.0 + 20.0 * sum(numbers(n))] * n


@pytest.mark.feature("Q01", "Q02")
def test_other_arguments_are_passed_as_they_are(s):
    v, seen = variable(s), []
    s.extended.update(
        v, lambda x, *a, **k: seen.append((a, k)), args=(1, [2]), kwargs={"z": 3}
    )
    assert seen == [((1, [2]), {"z": 3})] * 2


@pytest.mark.feature("Q02")
def test_a_variable_argument_is_passed_whole_and_reads_its_copy(s):
    v, w, seen = variable(s), on_read(s), []
    s.run(lambda: w.assign(number()))
    s.extended.update(v, lambda x, y: seen.append((y is w, plain(y))), args=(w,))
    assert seen == [(True, 1.0), (True, 2.0)]


@pytest.mark.feature("Q03", "R01")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_a_per_replica_value_is_not_assigned_copy_by_copy(s, how):
    v, p = variable(s, 5.0), per_replica(s, 1.0, 2.0)

    def fn():
        s.extended.update(v, lambda x, y: x.assign(y), args=(p,))

    with pytest.raises(ValueError, match=r"[Rr]educe"):
        fn() if how == EAGER else tf.function(fn)()
    assert copies(v) == [5.0, 5.0]


@pytest.mark.feature("Q03", "R01")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_copies_that_would_differ_are_refused_and_stay_as_they_were(s, how):
    v, w = variable(s, 5.0), on_read(s)
    s.run(lambda: w.assign(number()))

    def fn():
        s.extended.update(v, lambda x: x.assign(w.read_value()))

    with pytest.raises(ValueError, match=r"[Rr]educe|differ"):
        fn() if how == EAGER else tf.function(fn)()
    assert copies(v) == [5.0, 5.0]


@pytest.mark.feature("Q03")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_a_copy_may_be_assigned_more_than_once(s, how):
    v = variable(s, 5.0)

    def change(copy, value):
        copy.assign_add(value)
        copy.assign(copy * 2.0)

    def fn():
        s.extended.update(v, change, args=(1.0,))
        s.extended.update(v, change, args=(1.0,))
        return v.read_value()

    assert float(fn() if how == EAGER else tf.function(fn)()) == 26.0
    assert copies(v) == [26.0, 26.0]


@pytest.mark.feature("Q03", "R01")
@pytest.mark.parametrize("options", [{}, {"state": "sharded", "shard_above": 2}])
@pytest.mark.parametrize("cure", ["assign", "update"])
def test_copies_that_differ_are_not_read_as_one_until_assigned(options, cure):
    s = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], **options)
    v = variable(s, [5.0, 5.0])
    calls = []

    def fails(copy, value):
        calls.append(copy)
        if len(calls) % 2 == 0:
            raise KeyError("midway")
        copy.assign(value)

    def differs(copy):
        calls.append(copy)
        copy.assign([1.0 + len(calls)] * 2)

    with pytest.raises(KeyError):
        s.extended.update(v, fails, args=([7.0, 7.0],))
    for _ in range(2):
        for read in v.numpy, v.value, tf.function(v.value):
            with pytest.raises(ValueError, match="different values"):
                read()
        if not options:
            with pytest.raises(ValueError, match="different values"):
                s.extended.update(v, differs)
    if cure == "update":
        s.extended.update(v, lambda copy: copy.assign([9.0, 9.0]))
    else:
        v.assign([9.0, 9.0])
    assert v.numpy().tolist() == [9.0, 9.0]
    assert copies(v) == [[9.0, 9.0]] * 2


@pytest.mark.feature("Q03", "R01")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_copies_never_diverge_through_update_in_a_replica(s, how):
    v = variable(s, 5.0)
    with pytest.raises(ValueError, match="different values"):
        execute(
            how,
            s,
            lambda: s.extended.update(
                v, lambda x, y: x.assign_add(y), args=(number(),)
            ),
        )
    assert copies(v) == [5.0, 5.0]


@pytest.mark.feature("Q01")
def test_equal_results_merge_and_different_objects_that_are_no_arrays_do_not(s):
    v = variable(s)
    assert s.extended.update(v, lambda x: None) is None
    assert s.extended.update(v, lambda x: None, group=False) == (None,)
    assert s.extended.update(v, lambda x: 3) == 3
    assert s.extended.update(v, lambda x: 3, group=False) == (3,)
    assert s.extended.update(v, lambda x: float("1.5")) is None
    assert s.extended.update(v, lambda x: x) is v


@pytest.mark.feature("Q01")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_update_in_a_replica_merges_its_arguments_first(how, n):
    s = mirrored(n)
    v, w = variable(s, 5.0), variable(s, 5.0)

    def fn():
        total = context().all_reduce("SUM", number())
        s.extended.update(v, lambda x, y: x.assign_sub(0.5 * y), args=(total,))
        s.extended.update(w, lambda x, y: x.assign_add(y), args=(1.0,))

    execute(how, s, fn)
    assert (copies(v), copies(w)) == ([5.0 - 0.5 * sum(numbers(n))] * n, [6.0] * n)


@pytest.mark.feature("Q01")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_a_sync_on_read_variable_is_updated_copy_by_copy(s, how):
    v = on_read(s, 5.0)
    s.run(lambda: v.assign_add(number()))

    def fn():
        s.extended.update(v, lambda x: x.assign_add(x * 10.0))

    fn() if how == EAGER else tf.function(fn)()
    assert (copies(v), plain(v)) == ([66.0, 77.0], 143.0)


@pytest.mark.feature("C07")
def test_the_variable_itself_stands_for_its_copy_inside_update(s):
    v, seen = variable(s), []

    def fn(component):
        v.assign_add(1.0)
        seen.append((plain(v), plain(component)))

    s.extended.update(v, fn)
    assert copies(v) == [1.0, 1.0]
    assert seen == [(1.0, 1.0), (1.0, 1.0)]


@pytest.mark.feature("C07", "R02")
def test_a_sync_on_read_variable_is_not_aggregated_inside_update(s):
    v, w, seen = variable(s), on_read(s), []
    s.run(lambda: w.assign(number()))
    s.extended.update(v, lambda x: seen.append(plain(w.read_value())))
    assert seen == [1.0, 2.0]


@pytest.mark.feature("Q01", "Q05")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_mirrored_result_leaves_compiled_code_as_one_array(n):
    s = mirrored(n)
    v = variable(s, 5.0)
    grouped = tf.function(lambda: s.extended.update(v, lambda x: x.assign_add(1.0)))()
    assert (kind(grouped), plain(grouped), copies(v)) == ("array", 6.0, [6.0] * n)
    apart = tf.function(
        lambda: s.extended.update(v, lambda x: x.assign_add(1.0), group=False)
    )()
    assert (plain(apart), copies(v)) == ((7.0,) * n, [7.0] * n)


@pytest.mark.feature("C13", "Q01")
def test_a_plain_or_foreign_variable_is_refused(s):
    with pytest.raises(AssertionError):
        s.extended.update(tf.Variable(1.0), lambda x: x.assign(2.0))
    foreign = variable(mirrored(4), 5.0)
    with pytest.raises(RuntimeError, match="Mixing different"):
        s.extended.update(foreign, lambda x: x.assign(1.0))
    assert copies(foreign) == [5.0] * 4
    v = variable(s, 5.0)
    with mirrored(4).scope(), pytest.raises(RuntimeError, match="Mixing different"):
        s.extended.update(v, lambda x: x.assign(1.0))


@pytest.mark.feature("Q07", "T04")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_central_storage_calls_once_with_the_first_part_of_arguments(how):
    s, seen = central(2), []
    v = variable(s)
    p = per_replica(s, 1.0, 2.0)

    def fn():
        def change(x, y):
            seen.append(kind(x))
            return x.assign(y)

        result = s.extended.update(v, change, args=(p,))
        return result, s.extended.update(v, lambda x: x.assign_add(1.0), group=False)

    result, apart = fn() if how == EAGER else tf.function(fn)()
    assert seen == ["ResourceVariable"] * len(seen)
    assert (plain(result), plain(apart), plain(v)) == (1.0, (2.0,), 2.0)


# update_non_slot.


@pytest.mark.feature("M09", "P10")
def test_non_slot_devices_are_all_devices_or_the_variable_with_the_smallest_name(s):
    v = variable(s)
    assert s.extended.non_slot_devices([v]) == s.extended.worker_devices
    assert type(s.extended.non_slot_devices(None)) is tuple
    assert one_device().extended.non_slot_devices([])[0][-5:] == machine.another()
    c = central(2)
    b, a = variable(c, name="b"), variable(c, name="a")
    assert c.extended.non_slot_devices([b, a]) is a
    default = tf.distribute.get_strategy()
    x, y = tf.Variable(0.0, name="y"), tf.Variable(0.0, name="x")
    assert default.extended.non_slot_devices([x, y]) is y


@pytest.mark.feature("M09", "P11")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_update_non_slot_calls_once_per_device(n):
    s, seen = mirrored(n), []
    where = s.extended.non_slot_devices(None)

    def fn(a, k=0.0):
        assert tf.distribute.in_cross_replica_context()
        seen.append(plain(a))
        return a + 1.0 + k

    p = per_replica(s, *numbers(n))
    result = s.extended.update_non_slot(where, fn, args=(p,))
    assert seen == numbers(n)
    assert kind(result) == ("Mirrored" if n > 1 else "array")
    assert local(s, result) == [x + 1.0 for x in numbers(n)]
    apart = s.extended.update_non_slot(
        where, fn, args=(1.0,), kwargs={"k": jnp.asarray(1.0)}, group=False
    )
    assert plain(apart) == (3.0,) * n


@pytest.mark.feature("P11")
def test_update_non_slot_takes_what_non_slot_devices_gave(s):
    with pytest.raises(AssertionError):
        s.extended.update_non_slot("CPU:0", lambda: 1)
    c = central(2)
    v = variable(c)
    assert c.extended.update_non_slot(c.extended.non_slot_devices([v]), lambda: 5) == 5
    one = one_device()
    where = one.extended.non_slot_devices([])
    assert one.extended.update_non_slot(where, lambda: 5, group=False) == (5,)


# Steps on an iterator.


@pytest.mark.feature("P05", "P06", "P07", "P08", "P09")
@pytest.mark.parametrize("n", [1, 2])
def test_several_steps_hand_out_what_the_last_one_set(n):
    s, seen = mirrored(n), []
    batches = [per_replica(s, *[[1.0 * i, j] for j in range(n)]) for i in range(4)]

    def fn(multi_step, inputs):
        seen.append(tf.distribute.in_cross_replica_context())
        out = s.extended.call_for_each_replica(jnp.sum, args=(inputs,))
        multi_step.set_last_step_output("sum", out, SUM)
        multi_step.set_last_step_output("parts", out)
        multi_step.set_non_tensor_output("note", f"step {len(seen)}")
        return out

    iterator = iter(batches)
    ended = s.extended.experimental_run_steps_on_iterator(
        fn, iterator, iterations=3, initial_loop_values={"sum": 0.0, "kept": 7.0}
    )
    assert isinstance(ended, tf.distribute.MultiStepContext)
    assert seen == [True] * 3
    total = sum(2.0 + j for j in range(n))
    assert plain(ended.last_step_outputs["sum"]) == total
    assert local(s, ended.last_step_outputs["parts"]) == [2.0 + j for j in range(n)]
    assert ended.last_step_outputs["kept"] == 7.0
    assert ended.non_tensor_outputs == {"note": "step 3"}
    assert local(s, ended.run_op) == [2.0 + j for j in range(n)]
    assert next(iterator) is batches[3]


@pytest.mark.feature("P05")
def test_too_many_steps_or_none_are_refused(s):
    with pytest.raises(IndexError, match="1 of 2 steps"):
        s.extended.experimental_run_steps_on_iterator(
            lambda c, x: x, iter([1]), iterations=2
        )
    with pytest.raises(ValueError, match="iterations"):
        s.extended.experimental_run_steps_on_iterator(
            lambda c, x: x, iter([1]), iterations=0
        )


@pytest.mark.feature("P06", "P07")
def test_outputs_set_by_replicas_are_reduced_and_collected(s):
    multi_step = tf.distribute.MultiStepContext()

    def fn():
        multi_step.set_last_step_output("a", number(), SUM)
        multi_step.set_non_tensor_output("n", f"x{index()}")

    s.run(fn)
    with s.scope():
        multi_step.set_last_step_output("b", per_replica(s, 1.0, 2.0))
        multi_step.set_last_step_output("m", per_replica(s, 1.0, 2.0), MEAN)
        multi_step.set_non_tensor_output("k", [1])
    outputs = multi_step.last_step_outputs
    assert plain([outputs["a"], outputs["m"]]) == [3.0, 1.5]
    assert kind(outputs["b"]) == "PerReplica"
    assert multi_step.non_tensor_outputs == {"n": ("x0", "x1"), "k": [1]}
    with pytest.raises(AssertionError, match="reduce_op"):
        s.run(lambda: multi_step.set_last_step_output("z", number()))
