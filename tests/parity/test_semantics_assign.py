"""Assigning: synchronization × aggregation × context × operation, three ways to run."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    COMPILED,
    EAGER,
    ENCLOSED,
    EXECUTIONS,
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
    per_replica,
    plain,
    variable,
)

AGGREGATIONS = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
OPERATIONS = {
    "assign": lambda old, x: x,
    "assign_add": lambda old, x: old + x,
    "assign_sub": lambda old, x: old - x,
}


def combined(aggregation, parts):
    """What one value the parts of all replicas become."""
    if aggregation == "ONLY_FIRST_REPLICA":
        return parts[0]
    return sum(parts) if aggregation == "SUM" else sum(parts) / len(parts)


def table(strategy, synchronization, aggregations, value=10.0):
    """One variable for each aggregation and operation."""
    return {
        (aggregation, op): variable(strategy, value, aggregation, synchronization)
        for aggregation in aggregations
        for op in OPERATIONS
    }


# Replica context.


@pytest.mark.feature("C11", "R03", "R06", "R18")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_replicas_assign_the_aggregate_to_every_copy_of_a_mirrored_variable(how, n):
    s = mirrored(n)
    made = table(s, "ON_WRITE", AGGREGATIONS[1:])

    def fn():
        return {key: getattr(v, key[1])(number()) for key, v in made.items()}

    given_back = execute(how, s, fn)
    for (aggregation, op), v in made.items():
        want = OPERATIONS[op](10.0, combined(aggregation, numbers(n)))
        assert copies(v) == pytest.approx([want] * n), (aggregation, op)
        assert local(s, given_back[aggregation, op]) == pytest.approx([want] * n)


@pytest.mark.feature("R02", "R08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_replicas_assign_their_own_copy_of_a_sync_on_read_variable(how, n):
    s = mirrored(n)
    made = table(s, "ON_READ", AGGREGATIONS)

    def fn():
        return {key: getattr(v, key[1])(number()) for key, v in made.items()}

    given_back = execute(how, s, fn)
    for (aggregation, op), v in made.items():
        want = [OPERATIONS[op](10.0, x) for x in numbers(n)]
        assert copies(v) == want, (aggregation, op)
        assert local(s, given_back[aggregation, op]) == want


@pytest.mark.feature("C11", "R03")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("make", [mirrored, central])
def test_replicas_may_not_assign_a_variable_without_aggregation(make, op, how):
    s = make(2)
    v = variable(s, 10.0)
    with pytest.raises(ValueError, match="You must specify an aggregation method"):
        execute(how, s, lambda: getattr(v, op)(number()))
    assert plain(v) == 10.0


@pytest.mark.feature("C11", "R03")
def test_the_refusal_names_the_variable_and_the_line_that_made_it(s):
    v = variable(s, name="weight")
    with pytest.raises(ValueError, match="'weight' was created at") as error:
        s.run(lambda: v.assign(number()))
    assert "programs.py:" in str(error.value)


@pytest.mark.feature("R06")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("make", [mirrored, central])
def test_one_number_for_all_replicas_is_used_once_and_never_summed(make, how):
    s = make(2)
    shared = {"number": 2.0, "zero": 0.0, "array": jnp.asarray(2.0)}
    for value in shared.values():
        v = variable(s, 10.0, "SUM")
        with pytest.raises(ValueError, match="non-DistributedValues"):
            execute(how, s, lambda v=v, x=value: v.assign_add(x))
        assert plain(v) == 10.0
    made = table(s, "ON_WRITE", ("MEAN", "ONLY_FIRST_REPLICA"))

    def fn():
        for (_, op), v in made.items():
            getattr(v, op)(2.0)

    execute(how, s, fn)
    for (aggregation, op), v in made.items():
        assert plain(v) == OPERATIONS[op](10.0, 2.0), (aggregation, op)


@pytest.mark.feature("R06")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_one_replica_takes_any_value_with_any_aggregation(how):
    s = mirrored(1)
    made = table(s, "ON_WRITE", AGGREGATIONS[1:])

    def fn():
        for (_, op), v in made.items():
            getattr(v, op)(2.0)

    execute(how, s, fn)
    for (aggregation, op), v in made.items():
        assert copies(v) == [OPERATIONS[op](10.0, 2.0)], (aggregation, op)


@pytest.mark.feature("R08")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_one_number_for_all_replicas_is_local_to_a_sync_on_read_variable(s, how):
    made = table(s, "ON_READ", AGGREGATIONS)

    def fn():
        for (_, op), v in made.items():
            getattr(v, op)(2.0)

    execute(how, s, fn)
    for (aggregation, op), v in made.items():
        assert copies(v) == [OPERATIONS[op](10.0, 2.0)] * 2, (aggregation, op)


@pytest.mark.feature("R06")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_replicas_read_what_they_have_just_assigned(s, how):
    v, w = variable(s, 0.0, "SUM"), on_read(s)

    def fn():
        v.assign_add(number())
        w.assign_add(number())
        first = v.read_value(), w.read_value()
        v.assign_add(number())
        w.assign_add(v)
        return *first, v.read_value(), w.read_value()

    result = execute(how, s, fn)
    want = [[3.0, 3.0], [1.0, 2.0], [6.0, 6.0], [7.0, 8.0]]
    assert [local(s, x) for x in result] == want


@pytest.mark.feature("R06")
def test_the_result_of_an_assignment_is_a_value_for_the_replica(s):
    seen = []
    v, w = variable(s, 10.0, "SUM"), on_read(s, 10.0)

    def fn():
        a, b = v.assign_add(number()), w.assign_add(number())
        seen.append((kind(a), plain(a), kind(b), plain(b)))
        return a, b

    a, b = s.run(fn)
    assert seen == [("array", 13.0, "array", 11.0), ("array", 13.0, "array", 12.0)]
    assert (kind(a), local(s, a), kind(b), local(s, b)) == (
        "PerReplica",
        [13.0, 13.0],
        "PerReplica",
        [11.0, 12.0],
    )


@pytest.mark.feature("R06")
def test_a_variable_is_not_added_up_but_its_value_is(s):
    v, w = variable(s, 1.0, "SUM"), variable(s, 5.0)
    for how in EXECUTIONS:
        with pytest.raises(AssertionError):
            execute(how, s, lambda: v.assign(w))
        execute(how, s, lambda: v.assign(w.read_value() + 0.0))
        assert copies(v) == [10.0, 10.0]
        v.assign(1.0)


@pytest.mark.feature("L02", "R06")
def test_an_aggregating_assignment_must_be_reached_by_all_replicas(s):
    v, w = variable(s, 1.0, "SUM"), on_read(s, 1.0)

    def fn(x):
        if index() == 0:
            x.assign(number() + 4.0)

    with pytest.raises(RuntimeError, match="different number"):
        s.run(lambda: fn(v))
    assert copies(v) == [1.0, 1.0]
    s.run(lambda: fn(w))
    assert (copies(w), plain(w)) == ([5.0, 1.0], 6.0)


@pytest.mark.feature("R06")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_arguments_of_assign_that_concern_graphs_are_accepted(s, how):
    v, w = variable(s, 1.0, "SUM"), on_read(s, 1.0)
    options = {"use_locking": True, "name": "x", "read_value": False}
    seen = []

    def fn():
        seen.append(v.assign_add(number(), **options))
        seen.append(w.assign_add(number(), **options))

    execute(how, s, fn)
    assert set(seen) == {None}
    assert (copies(v), copies(w)) == ([4.0, 4.0], [2.0, 3.0])


@pytest.mark.feature("R06")
def test_numpy_values_of_replicas_are_aggregated(s):
    v = variable(s, 10.0, "SUM")
    s.run(lambda: v.assign_add(np.float32(1.5 + index())))
    assert copies(v) == [14.0, 14.0]


@pytest.mark.feature("R06")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    ("aggregation", "want"),
    [("SUM", [3.0, 30.0]), ("MEAN", [1.5, 15.0]), ("ONLY_FIRST_REPLICA", [1.0, 10.0])],
)
def test_a_list_of_values_is_aggregated_like_an_array(s, aggregation, want, how):
    v, w = variable(s, [0.0, 0.0], aggregation), on_read(s, [0.0, 0.0])

    def fn():
        v.assign([number(), 10.0 * number()])
        w.assign([number(), 10.0 * number()])

    execute(how, s, fn)
    assert copies(v) == [want, want]
    assert copies(w) == [[1.0, 10.0], [2.0, 20.0]]


@pytest.mark.feature("R06", "R18")
@pytest.mark.parametrize("how", [COMPILED, ENCLOSED])
def test_steps_go_on_from_what_earlier_steps_assigned(how):
    s = mirrored(4)
    step, w = variable(s, 0, "ONLY_FIRST_REPLICA"), variable(s, 0.0, "SUM")
    count = on_read(s, 0)

    def fn():
        step.assign_add(1)
        w.assign_sub(0.5 * number())
        count.assign_add(1)

    run = tf.function(fn)
    for _ in range(3):
        execute(EAGER, s, run)
    execute(how, s, fn)
    execute(EAGER, s, fn)
    assert (copies(step), copies(w)) == ([5] * 4, [-25.0] * 4)
    assert (copies(count), plain(count)) == ([5] * 4, 20)


# Cross-replica context.


def across(how, fn):
    """`fn`, eagerly or in a compiled function; in cross-replica or default context."""
    return fn() if how == EAGER else tf.function(fn)()


@pytest.mark.feature("B10", "C12", "R07")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("in_scope", [True, False], ids=["in-scope", "outside"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_across_replicas_a_value_goes_to_all_copies_of_a_mirrored_variable(
    n, in_scope, how
):
    s = mirrored(n)
    made = table(s, "ON_WRITE", AGGREGATIONS)

    def fn():
        for (_, op), v in made.items():
            getattr(v, op)(4.0)

    if in_scope:
        with s.scope():
            across(how, fn)
    else:
        across(how, fn)
    for (aggregation, op), v in made.items():
        assert copies(v) == [OPERATIONS[op](10.0, 4.0)] * n, (aggregation, op)


@pytest.mark.feature("R09")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_across_replicas_a_sync_on_read_variable_takes_one_value(how, n):
    s = mirrored(n)
    made = {a: on_read(s, 10.0, a) for a in AGGREGATIONS[1:]}

    def fn():
        return [v.assign(4.0) for v in made.values()]

    assert plain(across(how, fn)) == [4.0] * 3
    assert copies(made["SUM"]) == [4.0 / n] * n
    assert copies(made["MEAN"]) == copies(made["ONLY_FIRST_REPLICA"]) == [4.0] * n
    assert [plain(v) for v in made.values()] == [4.0] * 3


@pytest.mark.feature("R10")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("in_scope", [True, False], ids=["in-scope", "outside"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_across_replicas_a_sync_on_read_variable_is_not_added_to(
    s, aggregation, in_scope, how
):
    v = on_read(s, 10.0, aggregation)
    for op in ("assign_add", "assign_sub"):

        def fn(op=op):
            getattr(v, op)(4.0)

        with pytest.raises(ValueError, match=f"does not support `{op}`"):
            if in_scope:
                with s.scope():
                    across(how, fn)
            else:
                across(how, fn)
    assert copies(v) == [10.0, 10.0]


@pytest.mark.feature("R09")
def test_a_sync_on_read_variable_without_aggregation_is_written_but_not_read(s):
    v = on_read(s, 10.0, "NONE")
    with pytest.raises(ValueError, match="VariableAggregation"):
        v.assign(4.0)
    assert copies(v) == [4.0, 4.0]
    assert v.assign(5.0, read_value=False) is None
    assert copies(v) == [5.0, 5.0]


@pytest.mark.feature("R09")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_an_integer_is_divided_over_the_copies_with_the_remainder_on_the_first(s, how):
    # TensorFlow drops the remainder: it reads 4.
    v = on_read(s, 0)
    across(how, lambda: v.assign(5))
    assert (copies(v), plain(v)) == ([3, 2], 5)
    large = 2**24 + 1  # No float32 has this value.
    across(how, lambda: v.assign(large))
    assert plain(v) == large


@pytest.mark.feature("R09")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_replicas_that_merge_assign_an_integer_with_its_remainder(s, how):
    v = on_read(s, 0)

    def assign(_):
        v.assign(5, read_value=False)

    execute(how, s, lambda: context().merge_call(assign))
    assert (copies(v), plain(v)) == ([3, 2], 5)


@pytest.mark.feature("R07")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_across_replicas_other_variables_and_mirrored_values_can_be_assigned(how, n):
    s = mirrored(n)
    v, w, x = variable(s, 10.0), variable(s, 3.0), on_read(s, 1.0)
    y = variable(s, 10.0)
    m = s.extended.reduce_to("SUM", s.run(number), v)

    def fn():
        v.assign(w)
        x.assign(w)
        y.assign_add(m)

    across(how, fn)
    assert copies(v) == [3.0] * n
    assert copies(x) == pytest.approx([3.0 / n] * n)
    assert copies(y) == [10.0 + sum(numbers(n))] * n


@pytest.mark.feature("R07")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_across_replicas_a_per_replica_value_is_not_assigned(s, how):
    v, w = variable(s, 10.0), on_read(s, 10.0, "MEAN")
    p = per_replica(s, 1.0, 2.0)
    with pytest.raises(ValueError, match="PerReplica"):
        across(how, lambda: v.assign(p))
    with pytest.raises((ValueError, AttributeError), match="PerReplica"):
        across(how, lambda: w.assign(p))
    assert (copies(v), copies(w)) == ([10.0, 10.0], [10.0, 10.0])


@pytest.mark.feature("R07", "R09")
def test_across_replicas_assign_gives_back_the_new_value(s):
    v, w = variable(s, 10.0, "SUM"), on_read(s, 10.0)
    a, b = v.assign(1.0), w.assign(1.0)
    assert (kind(a), local(s, a)) == ("Mirrored", [1.0, 1.0])
    assert (kind(b), plain(b)) == ("array", 1.0)
    assert v.assign(2.0, read_value=False) is None
    assert w.assign(2.0, read_value=False) is None
    assert kind(variable(mirrored(1)).assign(1.0)) == "array"


@pytest.mark.feature("C13", "R07")
def test_a_value_that_does_not_fit_is_refused(s):
    v, w = variable(s, [1.0, 2.0]), on_read(s, [1.0, 2.0])
    for x in (v, w, tf.Variable([1.0, 2.0])):
        with pytest.raises(ValueError, match="Shape mismatch"):
            x.assign([1.0, 2.0, 3.0])
        x.assign(np.array([5.0, 6.0]))
        assert plain(x) == [5.0, 6.0]
    with pytest.raises(ValueError, match="cast"):
        variable(s, 1).assign(jnp.asarray(1.5))


@pytest.mark.feature("R07")
def test_a_variable_keeps_its_type_whatever_is_assigned(s):
    for how in (EAGER, COMPILED):
        v = variable(s, jnp.asarray(1.0, jnp.bfloat16), "SUM")
        w = variable(s, 1)
        across(how, lambda v=v, w=w: (v.assign_add(2), w.assign_add(3)))
        assert (v.dtype, plain(v)) == (jnp.bfloat16, 3.0)
        assert (w.dtype, plain(w)) == (jnp.int32, 4)
        execute(how, s, lambda v=v: v.assign_add(number()))
        assert (v.dtype, plain(v)) == (jnp.bfloat16, 6.0)


@pytest.mark.feature("R15")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_a_variable_without_strategy_is_simply_assigned(how):
    u = tf.Variable(10.0, aggregation=tf.VariableAggregation.SUM)

    def fn():
        return u.assign_add(4.0), u.assign_sub(1.0), u.assign(u * 2.0)

    assert plain(across(how, fn)) == (14.0, 13.0, 26.0)
    assert plain(u) == 26.0
    assert u.assign(1.0, read_value=False) is None


# Sparse.


def rows(values, indices):
    return tf.IndexedSlices(jnp.asarray(values), jnp.asarray(indices))


@pytest.mark.feature("O07", "R07")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("n", [1, 2])
def test_rows_of_a_mirrored_variable_are_changed_on_all_copies(how, n):
    s = mirrored(n)
    wanted = {
        "scatter_add": [2.0, 1.0, 3.0],
        "scatter_sub": [0.0, 1.0, -1.0],
        "scatter_update": [1.0, 1.0, 2.0],
        "scatter_max": [1.0, 1.0, 2.0],
        "scatter_min": [1.0, 1.0, 1.0],
        "scatter_mul": [1.0, 1.0, 2.0],
        "scatter_div": [1.0, 1.0, 0.5],
    }
    made = {name: variable(s, [1.0, 1.0, 1.0]) for name in wanted}

    def fn():
        for name, v in made.items():
            getattr(v, name)(rows([1.0, 2.0], [0, 2]))

    across(how, fn)
    assert {name: copies(v) for name, v in made.items()} == {
        name: [want] * n for name, want in wanted.items()
    }


@pytest.mark.feature("O07", "R06")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize(
    ("aggregation", "want"),
    [
        ("SUM", [3.0, 2.0, 4.0]),
        ("MEAN", [1.5, 1.0, 2.0]),
        ("ONLY_FIRST_REPLICA", [1.0, 2.0, 0.0]),
    ],
)
def test_rows_that_replicas_add_are_aggregated(s, aggregation, want, how):
    v = variable(s, [0.0, 0.0, 0.0], aggregation)

    def fn():
        replica = jnp.asarray(context().replica_id_in_sync_group)
        where = jnp.stack([0 * replica, 1 + replica])
        v.scatter_add(tf.IndexedSlices(jnp.asarray([1.0, 2.0]) * number(), where))

    execute(how, s, fn)
    assert copies(v) == [want, want]


@pytest.mark.feature("O07", "R15", "T04")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("is_central", [False, True], ids=["plain", "central"])
def test_replicas_add_rows_in_turn_to_what_is_one_copy(is_central, how):
    strategy, v = mirrored(2), tf.Variable([0.0, 0.0])
    if is_central:
        strategy, v = central(2), variable(central(2), [0.0, 0.0], "SUM")

    def fn():
        v.scatter_add(tf.IndexedSlices(number()[None], jnp.asarray([1])))

    execute(how, strategy, fn)
    assert plain(v) == [0.0, 3.0]


@pytest.mark.feature("O07")
def test_rows_are_replaced_only_where_one_replica_decides(s):
    v, w = variable(s, [0.0, 0.0], "SUM"), on_read(s, [0.0, 0.0])
    for name in ("scatter_update", "scatter_min", "scatter_max"):
        with pytest.raises(NotImplementedError, match=name):
            getattr(v, name)(rows([1.0], [0]))
    with pytest.raises(NotImplementedError, match="ON_READ"):
        w.scatter_add(rows([1.0], [0]))
    with pytest.raises(TypeError, match="IndexedSlices"):
        v.scatter_add(jnp.ones(2))
    with pytest.raises(ValueError, match="aggregation"):
        none = variable(s, [0.0, 0.0])
        s.run(lambda: none.scatter_add(rows([1.0], [0])))


# Bodies that JAX traces apart.


@pytest.mark.feature("C13")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_an_assignment_inside_scan_or_cond_is_refused_and_leaks_nothing(s, how):
    v, w = variable(s, 1.0, "SUM"), on_read(s, 1.0)
    bodies = {
        "scan": lambda x: jax.lax.scan(
            lambda c, _: (x.assign_add(c), None), number(), None, length=2
        ),
        "cond": lambda x: jax.lax.cond(
            number() > 0.0,
            lambda: jnp.asarray(x.assign_add(number() * 2.0)),
            lambda: jnp.asarray(0.0),
        ),
    }
    for (name, body), x in itertools.product(bodies.items(), (v, w)):
        with pytest.raises((RuntimeError, ValueError)):
            execute(how, s, lambda body=body, x=x: body(x))
        assert copies(x) == [1.0, 1.0], name
    execute(how, s, lambda: (v.assign_add(number()), w.assign_add(number())))
    assert (copies(v), copies(w)) == ([4.0, 4.0], [2.0, 3.0])


@pytest.mark.feature("C13")
def test_an_assignment_inside_jit_is_refused(s):
    for v in (variable(s, 1.0), on_read(s, 1.0), tf.Variable(1.0)):
        before = plain(v)
        with pytest.raises(RuntimeError, match=r"use unisono\.function"):
            jax.jit(lambda x, v=v: v.assign(x))(jnp.asarray(2.0))
        assert plain(v) == before
