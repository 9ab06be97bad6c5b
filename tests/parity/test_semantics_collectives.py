"""ReplicaContext.all_reduce and all_gather, Strategy.gather, and their gradients."""

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


@pytest.mark.feature("D10", "L07", "L08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_every_replica_gets_the_sum_or_mean_of_all(how, n):
    s = mirrored(n)

    def fn():
        c = context()
        return {
            "sum": c.all_reduce("SUM", number()),
            "mean": c.all_reduce(MEAN, number()),
            "nest": c.all_reduce("sum", {"a": number(), "b": [jnp.ones(2) * number()]}),
        }

    result, total = execute(how, s, fn), sum(numbers(n))
    assert local(s, result["sum"]) == [total] * n
    assert local(s, result["mean"]) == [total / n] * n
    assert local(s, result["nest"]["a"]) == [total] * n
    assert local(s, result["nest"]["b"][0]) == [[total, total]] * n


@pytest.mark.feature("L07")
def test_the_replica_gets_plain_arrays_on_its_device(s):
    seen = []

    def fn():
        total = context().all_reduce("SUM", number())
        seen.append((kind(total), device_index(total)))

    s.run(fn)
    assert seen == [("array", 0), ("array", 1)]


@pytest.mark.feature("L07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_one_object_on_all_replicas_is_summed_too(s, how):
    array = jnp.asarray(2.0)
    for value, want in ((array, 4.0), (2.0, 4.0), (1, 2)):
        result = execute(how, s, lambda x=value: context().all_reduce("SUM", x))
        assert local(s, result) == [want] * 2
        mean = execute(how, s, lambda x=value: context().all_reduce("MEAN", x))
        assert local(s, mean) == [want / 2] * 2


@pytest.mark.feature("L07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_integers_are_summed_as_integers_and_averaged_as_floats(s, how):
    def fn():
        x = jnp.asarray(context().replica_id_in_sync_group) + 1
        return context().all_reduce("SUM", [x, x * 2]), context().all_reduce("MEAN", x)

    (a, b), mean = execute(how, s, fn)
    assert [local(s, x) for x in (a, b, mean)] == [[3, 3], [6, 6], [1.5, 1.5]]
    assert s.experimental_local_results(a)[0].dtype == jnp.int32


@pytest.mark.feature("L07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_variables_are_read_and_summed(s, how):
    v, w = variable(s, 3.0), on_read(s)
    s.run(lambda: w.assign(number()))
    result = execute(how, s, lambda: context().all_reduce("SUM", [v, w]))
    assert [local(s, x) for x in result] == [[6.0, 6.0], [3.0, 3.0]]


@pytest.mark.feature("L07", "O07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_indexed_slices_are_gathered(s, how):
    def fn():
        replica = jnp.asarray(context().replica_id_in_sync_group, jnp.int32)
        rows = tf.IndexedSlices(jnp.asarray([[1.0]]) * number(), replica[None], (3, 1))
        return context().all_reduce("SUM", rows), context().all_reduce("MEAN", rows)

    total, mean = execute(how, s, fn)
    assert local(s, total) == [{"values": [[1.0], [2.0]], "indices": [0, 1]}] * 2
    assert local(s, mean) == [{"values": [[0.5], [1.0]], "indices": [0, 1]}] * 2


@pytest.mark.feature("O09")
def test_communication_options_are_accepted(s):
    options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=8)

    def fn():
        total = context().all_reduce("SUM", number(), options=options)
        return total, context().all_gather(number()[None], 0, options=options)

    total, parts = s.run(fn)
    assert local(s, total) == [3.0, 3.0]
    assert local(s, parts) == [[1.0, 2.0]] * 2


@pytest.mark.feature("F09", "L07")
def test_ops_are_members_names_or_aggregations(s):
    for op, want in (("sum", 3.0), (AGGREGATION.SUM, 3.0), (AGGREGATION.MEAN, 1.5)):
        result = s.run(lambda op=op: context().all_reduce(op, number()))
        assert local(s, result) == [want, want]
    for op in ("MAX", AGGREGATION.NONE):
        with pytest.raises(ValueError):
            s.run(lambda op=op: context().all_reduce(op, number()))


@pytest.mark.feature("C13", "L07")
@pytest.mark.parametrize("n", [2, 4])
def test_shapes_that_differ_are_refused_and_later_collectives_still_work(n):
    s = mirrored(n)
    with pytest.raises(tf.InvalidArgumentError):
        s.run(lambda: context().all_reduce("SUM", jnp.ones([1 + index()])))
    with pytest.raises(tf.InvalidArgumentError):
        s.run(lambda: context().all_gather(jnp.ones([1, 1 + index()]), axis=0))
    result = s.run(lambda: context().all_reduce("SUM", number()))
    assert local(s, result) == [sum(numbers(n))] * n


@pytest.mark.feature("T01")
def test_strategies_over_different_devices_do_not_disturb_each_other():
    for n in (2, 4, 2):
        s = mirrored(n)
        result = s.run(lambda: context().all_reduce("SUM", number()))
        assert local(s, result) == [sum(numbers(n))] * n


# Gradients of all_reduce.


@pytest.mark.feature("L07", "L08")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_gradient_of_a_reduction_is_the_reduction_of_the_gradient(how, n):
    s = mirrored(n)

    def fn():
        scale, c = number(), context()
        total = jax.grad(lambda x: c.all_reduce("SUM", x) * scale)(number())
        mean = jax.grad(lambda x: c.all_reduce("MEAN", x) * scale)(number())
        return total, mean

    total, mean = execute(how, s, fn)
    assert local(s, total) == [sum(numbers(n))] * n
    assert local(s, mean) == [sum(numbers(n)) / n] * n


@pytest.mark.feature("L07", "L10")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_gradients_of_variables_flow_through_collectives(s, how):
    v = variable(s, 2.0)

    def fn():
        def loss(x):
            total = context().all_reduce("SUM", v * x)
            parts = context().all_gather((v * x)[None], axis=0)
            return total * number() + jnp.sum(parts)

        value, gradient = tf.value_and_grad(loss, v)(number())
        return value, gradient, tf.grad(loss, [v])(number())[0]

    value, gradient, again = execute(how, s, fn)
    # Losses 2·3·1 + 6 and 2·3·2 + 6; d(loss 0 + loss 1)/dx_i · x_i with weights 1 + 2.
    assert local(s, value) == [12.0, 18.0]
    assert local(s, gradient) == local(s, again) == [5.0, 10.0]


@pytest.mark.feature("V07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_the_gradient_of_a_synchronized_statistic_is_that_of_the_whole_batch(how):
    s = mirrored(2)
    data = np.asarray([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], np.float32)

    def loss_of(x, scale, total):
        centred = x * scale - total(jnp.sum(x * scale)) / 6.0
        return total(jnp.sum(centred**3)) / 6.0

    want = jax.grad(lambda w: loss_of(data, w, lambda x: x))(0.5)

    def fn(x):
        def total(y):
            return context().all_reduce("SUM", y)

        return jax.grad(lambda w: loss_of(x, w, total))(0.5)

    for cut in (3, 4):
        batch = per_replica(s, data[:cut], data[cut:])
        # Each replica differentiates the loss of both with respect to its own copy.
        result = s.reduce("SUM", execute(how, s, fn, args=(batch,)), axis=None) / 2.0
        assert plain(result) == pytest.approx(float(want), rel=1e-5)


@pytest.mark.feature("L07", "V07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_constant_may_be_reduced_inside_a_gradient(s, how):
    """As a synchronized batch normalization counts the examples of all replicas."""

    def fn(x):
        def loss(w):
            count = context().all_reduce("SUM", jnp.asarray(1.0 * x.size))
            parts = context().all_gather(jnp.ones([1]), axis=0)
            return jnp.sum(w * x) / count + 0.0 * jnp.sum(parts)

        return jax.grad(loss)(1.0)

    for cut in (2, 3):
        data = np.asarray([1.0, 2.0, 3.0, 4.0], np.float32)
        batch = per_replica(s, data[:cut], data[cut:])
        result = local(s, execute(how, s, fn, args=(batch,)))
        assert result == [data[:cut].sum() / 4.0, data[cut:].sum() / 4.0]


@pytest.mark.feature("L07")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_a_gradient_in_a_replica_is_its_own_and_not_reduced(s, how):
    v = variable(s, 2.0)

    def loss():
        return v * v * number()

    result = execute(how, s, tf.grad(loss, v))
    assert local(s, result) == [4.0, 8.0]


# all_gather.


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_every_replica_gets_the_parts_of_all_in_order(how, n):
    s = mirrored(n)

    def fn():
        c = context()
        return c.all_gather(
            {"a": number()[None], "b": jnp.ones([2, 1]) * number()}, axis=0
        ), c.all_gather(jnp.ones([2, 1]) * number(), axis=1)

    rows, columns = execute(how, s, fn)
    assert local(s, rows["a"]) == [numbers(n)] * n
    assert local(s, rows["b"]) == [[[x] for x in numbers(n) for _ in range(2)]] * n
    assert local(s, columns) == [[numbers(n)] * 2] * n


@pytest.mark.feature("L10")
def test_sizes_along_the_axis_may_differ(s):
    a = s.run(lambda: context().all_gather(jnp.ones([1 + index(), 2]) * number(), 0))
    b = s.run(lambda: context().all_gather(jnp.ones([2, 1 + index()]) * number(), 1))
    assert local(s, a) == [[[1.0, 1.0], [2.0, 2.0], [2.0, 2.0]]] * 2
    assert local(s, b) == [[[1.0, 2.0, 2.0], [1.0, 2.0, 2.0]]] * 2


@pytest.mark.feature("L07", "L10")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_uneven_arguments_are_combined_eagerly_and_compiled(s, how):
    p = per_replica(s, [1.0, 2.0, 3.0], [4.0])

    def fn(x):
        return context().all_gather(x, axis=0), context().all_reduce("SUM", x[0])

    parts, total = execute(how, s, fn, args=(p,))
    assert local(s, parts) == [[1.0, 2.0, 3.0, 4.0]] * 2
    assert local(s, total) == [5.0, 5.0]


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2])
def test_what_cannot_be_gathered_is_refused(how, n):
    s = mirrored(n)
    with pytest.raises(ValueError, match="axis"):
        execute(how, s, lambda: context().all_gather(number(), axis=0))
    with pytest.raises(ValueError, match="axis"):
        execute(how, s, lambda: context().all_gather(number()[None], axis=-1))
    with pytest.raises(NotImplementedError, match="IndexedSlices"):
        execute(
            how,
            s,
            lambda: context().all_gather(
                tf.IndexedSlices(number()[None], jnp.asarray([0])), axis=0
            ),
        )


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", EXECUTIONS)
def test_truth_values_are_not_gathered_by_replicas_either(s, how):
    with pytest.raises(TypeError, match="bool"):
        execute(how, s, lambda: context().all_gather(number()[None] > 1.0, axis=0))


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", EXECUTIONS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_gradient_of_a_gather_is_the_sum_of_the_own_part(how, n):
    s = mirrored(n)

    def fn():
        scale, c = number(), context()
        return jax.grad(lambda x: jnp.sum(c.all_gather(x, axis=0)) * scale)(
            jnp.stack([number(), number()])
        )

    total = sum(numbers(n))
    assert local(s, execute(how, s, fn)) == [[total, total]] * n


# Strategy.gather.


def gathered(how, strategy, value, axis):
    """`strategy.gather`, called eagerly or inside a compiled function."""
    if how == EAGER:
        return strategy.gather(value, axis)
    return tf.function(lambda v: strategy.gather(v, axis))(value)


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_gather_concatenates_in_replica_order(s, how):
    p, q = per_replica(s, [1.0, 2.0], [3.0, 4.0]), per_replica(s, [[1.0]], [[2.0]])
    assert plain(gathered(how, s, p, 0)) == [1.0, 2.0, 3.0, 4.0]
    assert plain(gathered(how, s, q, 1)) == [[1.0, 2.0]]
    assert plain(gathered(how, s, per_replica(s, [1.0, 2.0], [3.0]), 0)) == [
        1.0,
        2.0,
        3.0,
    ]
    assert plain(gathered(how, s, per_replica(s, [1], [2]), 0)) == [1, 2]
    empty = per_replica(s, jnp.ones([0, 2]), jnp.ones([1, 2]))
    assert plain(gathered(how, s, empty, 0)) == [[1.0, 1.0]]


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_gather_returns_what_is_not_distributed_and_repeats_what_is_mirrored(s, how):
    assert plain(gathered(how, s, jnp.asarray([1.0, 2.0]), 0)) == [1.0, 2.0]
    assert plain(gathered(how, s, 3, 0)) == 3
    v = variable(s, [1.0, 2.0])
    assert plain(gathered(how, s, v, 0)) == [1.0, 2.0, 1.0, 2.0]
    w = on_read(s, [1.0])
    s.run(lambda: w.assign_add(number()[None]))
    assert plain(gathered(how, s, w, 0)) == [2.0, 3.0]


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
def test_gather_refuses_scalars_bad_axes_and_other_kinds_of_values(s, how):
    for value, axis in (
        (per_replica(s, 1.0, 2.0), 0),
        (per_replica(s, [[1.0]], [[2.0]]), -1),
        (per_replica(s, [1.0], [2.0]), 1),
    ):
        with pytest.raises(ValueError, match="axis"):
            gathered(how, s, value, axis)
    with pytest.raises(TypeError, match="bool"):
        gathered(how, s, per_replica(s, [True], [False]), 0)
    rows = s.run(lambda: tf.IndexedSlices(number()[None], jnp.asarray([0])))
    with pytest.raises(NotImplementedError, match="IndexedSlices"):
        gathered(how, s, rows, 0)


@pytest.mark.feature("L10")
@pytest.mark.parametrize("how", [EAGER, COMPILED])
@pytest.mark.parametrize(
    "parts, axis, words",
    [
        (([[1.0]], [[1.0, 2.0]]), 0, "Dimension 1 in both shapes must be equal"),
        (([[1.0]], [[1.0], [2.0]]), 1, "Dimension 0 in both shapes must be equal"),
        (([1.0], [[1.0]]), 0, "Ranks of all input tensors should match"),
    ],
)
def test_gathered_parts_differ_in_the_axis_only(s, how, parts, axis, words):
    value = per_replica(s, *parts)
    words = rf"Shape mismatch: {words}.*received shapes \[\("
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        gathered(how, s, value, axis)
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        execute(how, s, lambda x: context().all_gather(x, axis), args=(value,))


@pytest.mark.feature("L10")
def test_the_gathered_array_is_on_the_first_device(s):
    result = s.gather(s.run(lambda: number()[None]), axis=0)
    assert (kind(result), device_index(result)) == ("array", 0)


@pytest.mark.feature("L10", "T04", "T05")
def test_one_replica_and_central_storage_gather_too():
    alone = mirrored(1)
    assert plain(alone.gather(per_replica(alone, [5.0]), 0)) == [5.0]
    assert plain(one_device().gather(jnp.asarray([5.0]), 0)) == [5.0]
    s = central(2)
    for how in EXECUTIONS:
        parts = execute(how, s, lambda: number()[None])
        assert plain(s.gather(parts, 0)) == [1.0, 2.0]
        both = execute(
            how,
            s,
            lambda: (
                context().all_reduce("SUM", number()),
                context().all_gather(number()[None], 0),
            ),
        )
        assert [local(s, x) for x in both] == [[3.0, 3.0], [[1.0, 2.0]] * 2]
