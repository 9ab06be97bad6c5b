"""ReplicaContext.merge_call: arguments, results, agreement and errors."""

import jax
import jax.numpy as jnp
import pytest

import unisono as tf
from tests.parity.programs import (
    COMPILED,
    EAGER,
    ENCLOSED,
    EXECUTIONS,
    SUM,
    central,
    context,
    copies,
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


@pytest.mark.feature("C08", "L02")
def test_arguments_are_merged_like_results_of_run_and_the_strategy_comes_first(s):
    seen = []

    def merge(st, a, b, k=None):
        seen.append((st is s, kind(a), local(s, a), b, kind(k)))

    s.run(lambda: context().merge_call(merge, (number(), 5), {"k": number()}))
    assert seen == [(True, "PerReplica", [1.0, 2.0], 5, "PerReplica")]


@pytest.mark.feature("L06")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    ("n", "want"), [(1, [6]), (2, [10, 11]), (4, [21, 22, 23, 24])]
)
def test_the_example_of_the_documentation(how, n, want):
    s = mirrored(n)

    def merge_fn(distribution, three_plus_replica_id):
        return sum(distribution.experimental_local_results(three_plus_replica_id))

    def fn(three):
        replica = context()
        v = three + replica.replica_id_in_sync_group
        return replica.merge_call(merge_fn, args=(v,)) + v

    assert local(s, execute(how, s, fn, args=[3])) == want


@pytest.mark.feature("L02")
def test_results_are_unwrapped_to_the_own_part_and_other_objects_are_shared(s):
    thing, seen = object(), []

    def merge(st, x):
        mirror = st.extended.reduce_to("SUM", x, x)
        return {"p": x, "o": thing, "n": None, "m": mirror}

    def fn():
        r = context().merge_call(merge, args=(number(),))
        seen.append((plain(r["p"]), r["o"], r["n"], kind(r["m"]), plain(r["m"])))

    s.run(fn)
    assert seen == [(x, thing, None, "array", 3.0) for x in (1.0, 2.0)]


@pytest.mark.feature("C08", "L02")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_merge_call_means_the_same_in_compiled_code(how, n):
    s = mirrored(n)
    v = variable(s, 1.0)

    def merge(st, a, b, var, k):
        assert st is s
        assert var is v
        assert tf.distribute.in_cross_replica_context()
        total = st.reduce("SUM", a, axis=None)
        return {"own": k["q"], "sum": total + b, "none": None, "all": [total * var]}

    def fn():
        given = (number(), 5.0, v)
        return context().merge_call(merge, given, {"k": {"q": number() * 2.0}})

    result, total = execute(how, s, fn), sum(numbers(n))
    assert result["none"] is None
    assert local(s, result["own"]) == [2.0 * x for x in numbers(n)]
    assert set(local(s, result["sum"])) == {total + 5.0}
    assert set(local(s, result["all"][0])) == {total}


@pytest.mark.feature("L02")
def test_the_function_of_replica_0_is_called(s):
    log = []

    def fn():
        replica = index()
        context().merge_call(lambda st: log.append(replica))

    s.run(fn)
    assert log == [0]


@pytest.mark.feature("L02", "L03")
@pytest.mark.parametrize("n", [2, 4])
def test_any_number_of_merge_calls_may_follow_each_other(n):
    s = mirrored(n)
    for how in EXECUTIONS:

        def fn():
            x = number()
            for _ in range(3):
                x = context().merge_call(
                    lambda st, y: st.reduce("SUM", y, None), args=(x + 0.0,)
                )
            return x + 0.0 * number()

        assert local(s, execute(how, s, fn)) == [sum(numbers(n)) * n**2] * n


@pytest.mark.feature("C13", "L02")
@pytest.mark.parametrize("who", [0, 1])
def test_replicas_that_disagree_about_merge_call_are_told(s, who):
    def fn():
        if index() == who:
            context().merge_call(lambda st: 1)

    with pytest.raises(RuntimeError, match="different number of"):
        s.run(fn)
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("L02")
def test_arguments_of_different_structure_are_refused(s):
    def fn():
        return context().merge_call(lambda st, *a: 1, args=(1,) * (1 + index()))

    with pytest.raises(AssertionError):
        s.run(fn)


@pytest.mark.feature("L02")
def test_a_variable_or_its_components_arrive_as_the_variable(s):
    for v in (variable(s), on_read(s)):
        seen = []

        def merge(st, x, seen=seen):
            seen.append(x)

        s.run(lambda v=v, m=merge: context().merge_call(m, args=(v,)))
        s.run(lambda v=v, m=merge: context().merge_call(m, args=(v.values[index()],)))
        s.run(tf.function(lambda v=v, m=merge: context().merge_call(m, args=(v,))))
        assert all(x is v for x in seen)
        assert len(seen) == 3


@pytest.mark.feature("R14")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_merge_reduce_update_leaves_the_sum_on_all_copies(how, n):
    s = mirrored(n)
    v = variable(s)

    def merge(st, value, var):
        reduced = st.extended.reduce_to(SUM, value, destinations=var)
        st.extended.update(var, lambda x, y: x.assign(y), args=(reduced,))

    execute(how, s, lambda: context().merge_call(merge, args=(number(), v)))
    assert copies(v) == [sum(numbers(n))] * n


@pytest.mark.feature("L02")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_an_exception_in_the_merge_function_reaches_the_caller(s, how):
    log = []

    def fn():
        try:
            context().merge_call(lambda st: 1 / 0)
        except Exception:
            if how == EAGER:
                log.append("a waiting replica saw an exception of another")
            raise

    with pytest.raises(ZeroDivisionError):
        execute(how, s, fn)
    assert log == []
    assert not tf.distribute.has_strategy()


@pytest.mark.feature("C13", "L02")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_merge_call_behind_a_condition_of_jax_is_refused(s, how):
    def total():
        return context().merge_call(
            lambda st, x: st.reduce("SUM", x, None), args=(number(),)
        )

    def fn():
        return jax.lax.cond(number() > 1.0, total, lambda: jnp.asarray(0.0))

    with pytest.raises(RuntimeError, match="merge_call"):
        execute(how, s, fn)


@pytest.mark.feature("L02")
def test_one_replica_merges_without_wrapping():
    seen = []

    def merge(st, x):
        seen.append(kind(x))
        return x

    for strategy in (mirrored(1), one_device(), central(1)):
        result = strategy.run(
            lambda: context().merge_call(merge, args=(jnp.asarray(1.0),))
        )
        assert (kind(result), plain(result)) == ("array", 1.0)
    assert seen == ["array"] * 3


@pytest.mark.feature("L02", "T04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_replicas_of_central_storage_merge_too(how):
    s = central(4)
    result = execute(
        how,
        s,
        lambda: (
            context().merge_call(
                lambda st, x: st.reduce("SUM", x, None), args=(number(),)
            )
            * number()
        ),
    )
    assert local(s, result) == [10.0 * x for x in numbers(4)]


@pytest.mark.feature("L02")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_compiled_function_called_by_a_replica_is_part_of_it(s, how):
    @tf.function
    def total(x):
        return context().merge_call(lambda st, y: st.reduce("SUM", y, None), args=(x,))

    assert set(local(s, execute(how, s, lambda: total(number())))) == {3.0}


@pytest.mark.feature("L02")
@pytest.mark.parametrize("where", ["while_loop", "cond"])
def test_a_merge_in_a_branch_or_loop_of_a_compiled_function_is_refused(s, where):
    def merge(x):
        return context().merge_call(lambda st, y: st.reduce("SUM", y, None), args=(x,))

    def replica():
        if where == "cond":
            return tf.cond(number() < 5, lambda: merge(number()), number)
        # The sum of zeros would stay below 2 for ever.
        return tf.while_loop(lambda i: i < 2, merge, [0])

    with pytest.raises(RuntimeError, match="`merge_call` called while defining"):
        execute(COMPILED, s, replica)
