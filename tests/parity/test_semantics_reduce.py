"""Strategy.reduce: across replicas, with and without axes, of every kind of value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
from tests.parity.programs import (
    AGGREGATION,
    COMPILED,
    EAGER,
    EXECUTIONS,
    MEAN,
    SUM,
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


def reduced(how, strategy, op, value, axis):
    """`strategy.reduce`, called eagerly or inside a compiled function."""
    if how == EAGER:
        return strategy.reduce(op, value, axis)
    return tf.function(lambda v: strategy.reduce(op, v, axis))(value)


@pytest.mark.feature("F01", "F02", "F03", "F08")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_axis_none_combines_across_replicas_only_and_axis_0_the_batch_too(s, how):
    p = per_replica(s, [0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0])
    assert plain(reduced(how, s, SUM, p, None)) == [4.0, 6.0, 8.0, 10.0]
    assert plain(reduced(how, s, MEAN, p, None)) == [2.0, 3.0, 4.0, 5.0]
    assert plain(reduced(how, s, SUM, p, 0)) == 28.0
    assert plain(reduced(how, s, MEAN, p, 0)) == 3.5


@pytest.mark.feature("F02", "F07", "T01")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_what_replicas_return_is_reduced_to_one_array(how, n):
    s = mirrored(n)
    result = execute(how, s, number)
    total, mean = s.reduce("SUM", result, None), s.reduce("MEAN", result, None)
    assert kind(total) == kind(mean) == "array"
    assert plain([total, mean]) == [sum(numbers(n)), sum(numbers(n)) / n]


@pytest.mark.feature("F10", "V08")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_compiled_function_may_run_and_reduce(n):
    s = mirrored(n)

    @tf.function
    def step(x):
        result = s.run(lambda: number() * x)
        return s.reduce(SUM, result, None), s.reduce("MEAN", result, None)

    total = sum(numbers(n))
    assert plain(step(jnp.asarray(1.0))) == (total, total / n)
    assert plain(step(jnp.asarray(2.0))) == (2 * total, 2 * total / n)


@pytest.mark.feature("F10", "V08")
def test_a_compiled_function_may_hold_a_whole_epoch(s):
    batches = [per_replica(s, [1.0 * i], [2.0 * i]) for i in range(4)]

    @tf.function
    def epoch(data):
        total = 0.0
        for x in data:
            total += s.reduce("SUM", s.run(jnp.sum, args=(x,)), axis=None)
        return total

    assert plain(epoch(batches)) == 18.0


@pytest.mark.feature("F04", "F05", "F06")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_uneven_parts_need_an_axis_and_then_count_element_by_element(s, how):
    p = per_replica(s, [0.0, 1.0, 2.0, 3.0], [4.0, 5.0])
    with pytest.raises(tf.InvalidArgumentError, match="same shape"):
        reduced(how, s, SUM, p, None)
    assert plain(reduced(how, s, SUM, p, 0)) == 15.0
    assert plain(reduced(how, s, MEAN, p, 0)) == 2.5
    means = execute(how, s, jnp.mean, args=(p,))
    assert plain(s.reduce(MEAN, means, None)) == 3.0


@pytest.mark.feature("F05")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_empty_parts_count_for_nothing(s, how):
    p = per_replica(s, [3.0, 3.0], jnp.zeros([0]))
    assert plain(reduced(how, s, SUM, p, 0)) == 6.0
    assert plain(reduced(how, s, MEAN, p, 0)) == 3.0


@pytest.mark.feature("F03", "F05")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_any_axis_and_several_can_be_reduced(s, how):
    p = per_replica(s, [[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]])
    assert plain(reduced(how, s, SUM, p, 1)) == [14.0, 22.0]
    assert plain(reduced(how, s, MEAN, p, 1)) == [3.5, 5.5]
    assert plain(reduced(how, s, SUM, p, -1)) == [14.0, 22.0]
    assert plain(reduced(how, s, SUM, p, (0, 1))) == 36.0
    assert plain(reduced(how, s, MEAN, p, (0, 1))) == 4.5


@pytest.mark.feature("F01")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_a_constant_that_each_replica_makes_is_summed_and_one_from_outside_is_not(
    how, s
):
    outside = tf.constant(2.0)

    def total(fn):
        def call():
            return s.reduce(SUM, s.run(fn), axis=None)

        return (tf.function(call) if how == COMPILED else call)()

    assert plain(total(lambda: tf.constant([0.5, 1.0]))) == [1.0, 2.0]
    with pytest.raises(ValueError, match="non-DistributedValues"):
        total(lambda: outside)


@pytest.mark.feature("F03")
def test_axes_that_do_not_exist_are_refused(s):
    for op in (SUM, MEAN):
        with pytest.raises(ValueError, match="Invalid reduction dimension 1"):
            s.reduce(op, per_replica(s, [1.0], [2.0]), axis=1)
        with pytest.raises(ValueError, match="Invalid reduction dimension 0"):
            s.reduce(op, per_replica(s, 1.0, 2.0), axis=0)
    with pytest.raises(TypeError):
        s.reduce(SUM, per_replica(s, [[1.0]], [[2.0]]), axis=[0, 1])


@pytest.mark.feature("F01")
def test_the_axis_must_be_given(s):
    with pytest.raises(TypeError, match="axis"):
        s.reduce(SUM, per_replica(s, 1.0, 2.0))


@pytest.mark.feature("F07")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_integers_stay_integers_when_summed_and_become_floats_when_averaged(s, how):
    p, q = per_replica(s, 1, 2), per_replica(s, [1, 2], [3, 3])
    total, mean = reduced(how, s, SUM, p, None), reduced(how, s, MEAN, p, None)
    assert (plain(total), total.dtype) == (3, jnp.int32)
    assert plain(mean) == 1.5
    assert jnp.issubdtype(mean.dtype, jnp.floating)
    total, mean = reduced(how, s, SUM, q, 0), reduced(how, s, MEAN, q, 0)
    assert (plain(total), total.dtype) == (9, jnp.int32)
    assert plain(mean) == 2.25
    assert jnp.issubdtype(mean.dtype, jnp.floating)


@pytest.mark.feature("F07")
def test_a_mean_of_bfloat16_stays_bfloat16(s):
    p = per_replica(
        s, jnp.asarray([1.5], jnp.bfloat16), jnp.asarray([2.5], jnp.bfloat16)
    )
    for axis, want in ((0, 2.0), (None, [2.0])):
        mean = s.reduce(MEAN, p, axis)
        assert (plain(mean), mean.dtype) == (want, jnp.bfloat16)


@pytest.mark.feature("F05")
def test_the_mean_of_many_elements_counts_all_of_them(s):
    p = per_replica(s, jnp.ones([70_000]), jnp.ones([70_001]))
    assert plain(s.reduce(MEAN, p, axis=0)) == 1.0


@pytest.mark.feature("G07")
def test_numpy_parts_can_be_reduced(s):
    p = s.experimental_distribute_values_from_function(
        lambda c: np.array([1.0, 2.0], np.float32) * (c.replica_id_in_sync_group + 1)
    )
    assert plain(s.reduce(SUM, p, None)) == [3.0, 6.0]
    assert plain(s.reduce(SUM, p, 0)) == 9.0


@pytest.mark.feature("F01")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_what_is_not_distributed_has_a_mean_but_no_sum(s, how):
    for value in (3.0, jnp.asarray(3.0)):
        with pytest.raises(ValueError, match="non-DistributedValues"):
            reduced(how, s, SUM, value, None)
        assert plain(reduced(how, s, MEAN, value, None)) == 3.0
        alone = mirrored(1)
        assert plain(reduced(how, alone, SUM, value, None)) == 3.0
    with pytest.raises(ValueError, match="non-DistributedValues"):
        s.reduce(SUM, None, None)


@pytest.mark.feature("F03")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_with_an_axis_an_array_counts_once_per_replica(how, n):
    s, x = mirrored(n), jnp.asarray([1.0, 2.0])
    assert plain(reduced(how, s, SUM, x, 0)) == 3.0 * n
    assert plain(reduced(how, s, MEAN, x, 0)) == 1.5


@pytest.mark.feature("F07")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_structures_are_reduced_leaf_by_leaf(s, how):
    tree = {"a": per_replica(s, 1.0, 2.0), "b": (per_replica(s, 3.0, 4.0),)}
    assert plain(reduced(how, s, SUM, tree, None)) == {"a": 3.0, "b": (7.0,)}


@pytest.mark.feature("M02")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_mirrored_variable_has_a_mean_but_no_sum(n):
    s = mirrored(n)
    v = variable(s, [1.0, 3.0])
    assert plain(s.reduce(MEAN, v, None)) == [1.0, 3.0]
    with pytest.raises(AssertionError):
        s.reduce(SUM, v, None)
    assert plain(s.reduce(SUM, v, 0)) == 4.0 * n
    assert plain(s.reduce(MEAN, v, 0)) == 2.0


@pytest.mark.feature("M02")
def test_a_mirrored_value_has_a_mean_but_no_sum(s):
    p = per_replica(s, 1.0, 2.0)
    m = s.extended.reduce_to("SUM", p, p)
    assert plain(s.reduce(MEAN, m, None)) == 3.0
    with pytest.raises(AssertionError):
        s.reduce(SUM, m, None)


@pytest.mark.feature("R02", "R11")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_sync_on_read_variable_is_reduced_with_the_op_given(n):
    s = mirrored(n)
    v = on_read(s, aggregation="MEAN")
    s.run(lambda: v.assign(number()))
    assert plain(s.reduce(SUM, v, None)) == sum(numbers(n))
    assert plain(s.reduce(MEAN, v, None)) == sum(numbers(n)) / n
    both = tf.function(lambda: (s.reduce(SUM, v, None), s.reduce(MEAN, v, None)))()
    assert plain(both) == (sum(numbers(n)), sum(numbers(n)) / n)


@pytest.mark.feature("F08", "F09")
def test_ops_are_members_their_names_in_any_case_or_aggregations(s):
    p = per_replica(s, 1.0, 2.0)
    for op in (SUM, "SUM", "sum", "Sum", AGGREGATION.SUM):
        assert plain(s.reduce(op, p, None)) == 3.0
    for op in (MEAN, "MEAN", "mean", AGGREGATION.MEAN):
        assert plain(s.reduce(op, p, None)) == 1.5
    for op in ("MAX", "", AGGREGATION.NONE, AGGREGATION.ONLY_FIRST_REPLICA):
        with pytest.raises(ValueError):
            s.reduce(op, p, None)
    for other in (None, 1):
        with pytest.raises(AssertionError):
            s.reduce(other, p, None)


@pytest.mark.feature("O07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_indexed_slices_are_concatenated_and_equal_indices_stay_apart(s, how):
    def fn():
        replica = jnp.asarray(context().replica_id_in_sync_group)
        rows = jnp.asarray([[1.0], [2.0]]) * number()
        return tf.IndexedSlices(rows, jnp.stack([0 * replica, 1 + replica]), (3, 1))

    p = execute(how, s, fn)
    total, mean = s.reduce(SUM, p, None), s.reduce(MEAN, p, None)
    assert kind(total) == "IndexedSlices"
    assert plain(total) == {
        "values": [[1.0], [2.0], [2.0], [4.0]],
        "indices": [0, 1, 0, 2],
    }
    assert plain(mean) == {
        "values": [[0.5], [1.0], [1.0], [2.0]],
        "indices": [0, 1, 0, 2],
    }
    assert total.shape == (3, 1)


@pytest.mark.feature("O07")
def test_dense_and_sparse_parts_together_give_a_dense_sum(s):
    p = s.run(
        lambda: (
            jnp.ones([3, 1])
            if index() == 0
            else tf.IndexedSlices(jnp.asarray([[5.0]]), jnp.asarray([1]), (3, 1))
        )
    )
    assert plain(s.reduce(SUM, p, None)) == [[1.0], [6.0], [1.0]]


@pytest.mark.feature("F01")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_truth_values_are_not_added_up(s, how):
    with pytest.raises(tf.InvalidArgumentError):
        reduced(how, s, SUM, per_replica(s, True, False), None)


@pytest.mark.feature("F01")
@pytest.mark.parametrize("words", [("left", "right"), ("a", "b")], ids="-".join)
def test_text_is_not_added_up(s, words):
    p = s.experimental_distribute_values_from_function(
        lambda c: words[c.replica_id_in_sync_group]
    )
    with pytest.raises(tf.InvalidArgumentError):
        s.reduce(SUM, p, None)


@pytest.mark.feature("F07")
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_result_is_on_the_first_device(n):
    s = mirrored(n)
    assert device_index(s.reduce(SUM, s.run(number), None)) == 0


@pytest.mark.feature("F02", "F05", "T04")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_central_storage_reduces_like_a_mirrored_strategy(how):
    s = central(2)
    p = execute(how, s, number)
    assert plain([s.reduce("SUM", p, None), s.reduce("MEAN", p, None)]) == [3.0, 1.5]
    uneven = per_replica(s, [0.0, 1.0, 2.0, 3.0], [4.0, 5.0])
    assert plain(s.reduce("MEAN", uneven, 0)) == 2.5
    with pytest.raises(ValueError, match="non-DistributedValues"):
        s.reduce("SUM", 3.0, None)
    assert plain(s.reduce("MEAN", 3.0, None)) == 3.0


@pytest.mark.feature("F02", "T04")
@pytest.mark.parametrize("strategy", [mirrored, central])
def test_the_sum_of_a_number_over_one_replica_is_an_array(strategy):
    s = strategy(1)
    assert s.reduce("SUM", 1.5, axis=None).numpy() == 1.5
    nested = s.reduce("SUM", {"a": 1, "b": [2, np.asarray([3.0])]}, axis=None)
    assert all(isinstance(x, jax.Array) for x in jax.tree.leaves(nested))
    assert plain(nested) == {"a": 1, "b": [2, [3.0]]}
    with pytest.raises(tf.errors.InvalidArgumentError, match="received None of type"):
        s.reduce("SUM", None, axis=None)


@pytest.mark.feature("F03", "T05")
def test_one_device_returns_the_value_or_reduces_its_axis():
    s = one_device()
    x = jnp.asarray([1.0, 2.0])
    assert plain([s.reduce("SUM", x, 0), s.reduce("MEAN", x, 0)]) == [3.0, 1.5]
    assert s.reduce("SUM", "x", None) == "x"
    assert s.reduce("MEAN", 3.0, None) == 3.0


@pytest.mark.feature("F05", "F06", "V08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_mean_of_a_batch_is_the_same_however_it_is_cut(how, n):
    s = mirrored(n)
    data = np.arange(n + 3, dtype=np.float32)
    size = -(-len(data) // n)
    parts = [data[i * size : (i + 1) * size] for i in range(n)]
    p = per_replica(s, *parts)
    doubled = execute(how, s, lambda x: 2.0 * x, args=(p,))
    assert plain(s.reduce(MEAN, doubled, 0)) == pytest.approx(2.0 * data.mean())
    assert sum(map(len, local(s, doubled))) == len(data)
