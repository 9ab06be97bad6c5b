"""Reading and changing a variable at positions, and assigning slices of it."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from tests.parity.programs import central, copies, mirrored, variable

InvalidArgumentError = unisono.errors.InvalidArgumentError
ND = {
    "add": [1.0, 11.0, 3.0, 7.5],
    "sub": [1.0, -7.0, 3.0, 0.5],
    "update": [1.0, 9.0, 3.0, 3.5],
    "max": [1.0, 9.0, 3.0, 4.0],
    "min": [1.0, 2.0, 3.0, 3.5],
}


def plain():
    return unisono.Variable([1.0, 2.0, 3.0, 4.0], name="v")


def in_scope(strategy, **options):
    with strategy.scope():
        return unisono.Variable([1.0, 2.0, 3.0, 4.0], name="v", **options)


MAKERS = {
    "plain": plain,
    "mirrored": lambda: in_scope(mirrored(2)),
    "central": lambda: in_scope(central(2)),
    "sharded": lambda: in_scope(
        unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"], state="sharded")
    ),
}


@pytest.fixture(params=MAKERS)
def v(request):
    return MAKERS[request.param]()


def both(fn):
    """Returns a function as it is and compiled."""
    return {"eager": fn, "compiled": unisono.function(fn)}


HOW = pytest.mark.parametrize("how", ["eager", "compiled"])


# Positions.


@HOW
@pytest.mark.parametrize("kind", ND)
def test_elements_at_positions_are_changed(v, kind, how):
    change = getattr(v, f"scatter_nd_{kind}")
    returned = both(lambda x: change([[1], [3]], x))[how](jnp.array([9.0, 3.5]))
    assert v.numpy().tolist() == ND[kind]
    assert np.asarray(returned).tolist() == ND[kind]


def test_positions_of_several_axes_name_elements_or_rows():
    v = unisono.Variable(jnp.zeros((2, 3)))
    v.scatter_nd_add([[0, 1], [1, 2], [0, 1]], [1.0, 2.0, 4.0])
    assert v.numpy().tolist() == [[0, 5, 0], [0, 0, 2]]
    v.scatter_nd_update([[1]], [[7.0, 8.0, 9.0]])
    assert v.numpy().tolist() == [[0, 5, 0], [7, 8, 9]]
    v.scatter_nd_sub([[[0, 0]], [[0, 2]]], [[1.0], [2.0]])
    assert v.numpy().tolist() == [[-1, 5, -2], [7, 8, 9]]


@HOW
def test_replicas_change_elements_by_the_aggregation(how):
    strategy = mirrored(2)
    v = in_scope(strategy, aggregation=unisono.VariableAggregation.SUM)
    x = unisono.distribute.PerReplica([np.float32([1.0]), np.float32([10.0])])
    strategy.run(both(lambda x: v.scatter_nd_add([[2]], x))[how], args=(x,))
    assert copies(v) == [[1.0, 2.0, 14.0, 4.0]] * 2


def test_updates_must_fit_the_positions_and_the_type():
    v = unisono.Variable(jnp.zeros((2, 3)), name="v")
    with pytest.raises(InvalidArgumentError, match=r"needs updates of shape \(2, 3\)"):
        v.scatter_nd_add([[0], [1]], jnp.ones((2, 2)))
    for wrong in ([[2]], [[-1]]):
        with pytest.raises(InvalidArgumentError, match="does not index into shape"):
            v.scatter_nd_add(wrong, [[1.0, 1.0, 1.0]])
    with pytest.raises(InvalidArgumentError, match="last axis of indices"):
        v.scatter_nd_add([[0, 0, 0]], [1.0])
    with pytest.raises(TypeError, match="Indices must be integers"):
        v.gather_nd([[0.5, 1.0]])
    with pytest.raises(TypeError, match="of type int32"):
        unisono.Variable([1, 2]).scatter_nd_add([[1]], [1.5])


def test_sync_on_read_variables_have_no_scatter_nd():
    v = in_scope(mirrored(2), synchronization=unisono.VariableSynchronization.ON_READ)
    with pytest.raises(NotImplementedError, match="scatter_nd_add"):
        v.scatter_nd_add([[0]], [1.0])


@HOW
def test_rows_and_elements_are_read_at_positions(v, how):
    assert both(lambda: v.sparse_read([0, 3, 0]))[how]().tolist() == [1.0, 4.0, 1.0]
    assert both(lambda: v.sparse_read([[0], [3]]))[how]().tolist() == [[1.0], [4.0]]
    assert both(lambda: v.gather_nd([[0], [3]]))[how]().tolist() == [1.0, 4.0]
    for read, wrong in ((v.sparse_read, [4]), (v.gather_nd, [[-1]])):
        with pytest.raises(InvalidArgumentError, match="does not index into shape"):
            both(lambda read=read, wrong=wrong: read(wrong))[how]()


def test_a_compiled_step_reads_zeros_and_writes_nothing_out_of_range():
    v = plain()
    outside = jnp.array([[9], [-1], [0]])
    assert unisono.function(v.gather_nd)(outside).tolist() == [0.0, 0.0, 1.0]
    unisono.function(v.scatter_nd_add)(outside, jnp.ones(3))
    assert v.numpy().tolist() == [2.0, 2.0, 3.0, 4.0]


# Slices.


@HOW
@pytest.mark.parametrize(
    ("key", "value", "want"),
    [
        (slice(1, 3), [9.0, 8.0], [1, 9, 8, 4]),
        (slice(1, 3), 9.0, [1, 9, 9, 4]),
        (1, 9.0, [1, 9, 3, 4]),
        (-1, 9.0, [1, 2, 3, 9]),
        (slice(None, None, 2), [9.0, 8.0], [9, 2, 8, 4]),
        (slice(None, None, -1), [9.0, 8.0, 7.0, 6.0], [6, 7, 8, 9]),
        (slice(None), [9.0, 8.0, 7.0, 6.0], [9, 8, 7, 6]),
        ((..., 2), 9.0, [1, 2, 9, 4]),
        ((None, slice(0, 2)), [[9.0, 8.0]], [9, 8, 3, 4]),
    ],
)
def test_a_slice_is_assigned(v, key, value, want, how):
    returned = both(lambda: v[key].assign(value))[how]()
    assert v.numpy().tolist() == want
    assert np.asarray(returned).tolist() == want


def test_a_slice_at_a_traced_position_is_assigned(v):
    unisono.function(lambda i, x: v[i].assign(x))(jnp.int32(2), jnp.float32(9.0))
    assert v.numpy().tolist() == [1.0, 2.0, 9.0, 4.0]


@HOW
def test_a_slice_is_an_array_like_any_other(v, how):
    def compute():
        part = v[1:3]
        assert isinstance(part, jax.Array)
        looped = jax.lax.scan(lambda c, x: (c + x, x), jnp.float32(0), part)[0]
        chosen = jax.lax.cond(part[0] > 0, jnp.sum, jnp.max, part)
        slope = jax.grad(lambda x: jnp.vdot(x, x))(part)
        inner = jax.jit(lambda x: x @ x)(part)
        picked = jnp.arange(10.0)[v[3].astype(jnp.int32)]
        return jnp.stack([looped, chosen, slope[0], inner, picked, part.sum()])

    found = both(compute)[how]()
    assert found.tolist() == [5.0, 5.0, 4.0, 13.0, 4.0, 5.0]


def test_gradients_pass_through_a_slice(v):
    for loss in (lambda: jnp.sum(v[1:3] ** 2), unisono.function(lambda: v[1] ** 2)):
        slope = unisono.grad(loss, v)()
        assert np.asarray(slope)[1] == 4.0


def test_two_variables_with_one_array_keep_their_own_slices():
    v, w, x = plain(), plain(), jnp.array([5.0, 6.0, 7.0, 8.0])
    v.assign(x)
    w.assign(x)
    mine, theirs = v[:], w[:]
    mine.assign(0.0)
    assert (v.numpy().sum(), w.numpy().sum()) == (0.0, 26.0)
    theirs[0:1]
    assert not hasattr(x, "assign")
    assert not hasattr(theirs + 1, "assign")


@HOW
def test_replicas_that_assign_a_slice_alike_change_all_copies(how):
    strategy = mirrored(2)
    v = in_scope(strategy, aggregation=unisono.VariableAggregation.SUM)
    strategy.run(both(lambda: v[1:3].assign([9.0, 8.0]))[how])
    assert copies(v) == [[1.0, 9.0, 8.0, 4.0]] * 2


@HOW
def test_replicas_that_assign_a_slice_differently_are_refused(how):
    strategy = mirrored(2)
    v = in_scope(strategy)
    x = unisono.distribute.PerReplica([np.float32(1), np.float32(2)])
    with pytest.raises(ValueError, match="would get different values"):
        strategy.run(both(lambda x: v[1].assign(x))[how], args=(x,))
        v.numpy()


@HOW
def test_a_replica_assigns_a_slice_of_its_own_value(how):
    strategy = mirrored(2)
    v = in_scope(
        strategy,
        synchronization=unisono.VariableSynchronization.ON_READ,
        aggregation=unisono.VariableAggregation.SUM,
    )
    x = unisono.distribute.PerReplica([np.float32(10), np.float32(20)])
    strategy.run(both(lambda x: v[1].assign(x))[how], args=(x,))
    assert copies(v) == [[1.0, 10.0, 3.0, 4.0], [1.0, 20.0, 3.0, 4.0]]
    with pytest.raises(NotImplementedError, match="cross-replica context"):
        v[1].assign(1.0)


def test_a_slice_of_a_result_of_another_device_is_assigned():
    strategy = mirrored(2)
    v = in_scope(strategy)
    (_, second) = strategy.experimental_local_results(strategy.run(lambda: v[0:2] * 2))
    v[2:4].assign(second)
    assert copies(v) == [[1.0, 2.0, 2.0, 4.0]] * 2


OUTSIDE = [
    (5, "slice index 5 of dimension 0 out of bounds. The shape of the variable 'w:0'"),
    (-3, "slice index -3 of dimension 0 out of bounds."),
    ((0, 7), "slice index 7 of dimension 1 out of bounds."),
    ((None, slice(None), 7), "slice index 7 of dimension 1 out of bounds."),
    ((..., None, -4), "slice index -4 of dimension 1 out of bounds."),
    (np.int64(9), "slice index 9 of dimension 0 out of bounds."),
    (jnp.asarray(9), "slice index 9 of dimension 0 out of bounds."),
    ((np.asarray([True, False]), 3), "slice index 3 of dimension 1 out of bounds."),
]


@pytest.mark.parametrize("key, words", OUTSIDE, ids=str)
def test_a_known_index_out_of_range_is_an_error(key, words):
    w = unisono.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="w")
    both = unisono.distribute.Mirrored([w.value(), w.value()])
    traced = unisono.function(lambda: w[key])
    for read in (lambda: w[key], traced):
        with pytest.raises(InvalidArgumentError, match=re.escape(words)):
            read()
    with pytest.raises(InvalidArgumentError, match=words.partition(".")[0]):
        both[key]


def test_an_index_within_the_range_is_read_from_either_end():
    w = unisono.Variable([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert w[-2, 2] == 3.0
    assert w[..., None, -3].tolist() == [[1.0], [4.0]]
    assert w[1:9, 0].tolist() == [4.0]


def test_a_value_must_fit_the_slice():
    v = plain()
    with pytest.raises(InvalidArgumentError, match=r"Cannot broadcast .* \(3,\)"):
        v[1:3].assign([1.0, 2.0, 3.0])
    with pytest.raises(InvalidArgumentError, match="slice index 9 of dimension 0"):
        v[9].assign(1.0)
    with pytest.raises(TypeError, match="of type int32"):
        unisono.Variable([1, 2, 3])[1:].assign([9.5, 8.0])
    with pytest.raises(NotImplementedError, match="all replicas share"):
        shared = variable(central(2), [1.0, 2.0])
        shared.distribute_strategy.run(lambda: shared[0].assign(1.0))
    assert v.numpy().tolist() == [1.0, 2.0, 3.0, 4.0]


KINDS = ("add", "sub", "update", "min", "max", "mul", "div")


def rows(values, indices):
    return unisono.IndexedSlices(jnp.asarray(values), jnp.asarray(indices))


@pytest.mark.parametrize("in_scope", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_integers_are_divided_towards_zero(in_scope, compiled):
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    if in_scope:
        with strategy.scope():
            v = unisono.Variable([-7, 6, 9])
    else:
        v = unisono.Variable([-7, 6, 9])
    divide = unisono.function(v.scatter_div) if compiled else v.scatter_div
    divide(rows([2, 3, 2], [0, 2, 2]))
    assert v.numpy().tolist() == [-3, 6, 1]
    assert v.dtype == jnp.int32
    assert v.value().dtype == jnp.int32


def test_replicas_divide_integers_towards_zero():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        v = unisono.Variable([-7, 90], aggregation=unisono.VariableAggregation.SUM)
    strategy.run(unisono.function(lambda: v.scatter_div(rows([4], [1]))))
    assert v.numpy().tolist() == [-7, 5]


def test_integers_cannot_be_divided_by_zero():
    with pytest.raises(unisono.errors.InvalidArgumentError, match="by zero"):
        unisono.Variable([1, 2]).scatter_div(rows([0], [1]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_rows_of_floats_do_not_fit_an_integer_variable(kind, make):
    v = unisono.Variable([7, 6], name="v")
    given = unisono.IndexedSlices(make([2.5]), jnp.array([1]))
    with pytest.raises(ValueError, match="to the variable 'v' of type int32"):
        getattr(v, f"scatter_{kind}")(given)
    assert v.numpy().tolist() == [7, 6]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_integers_fit_a_variable_of_floats(kind):
    v = unisono.Variable([8.0, 6.0])
    getattr(v, f"scatter_{kind}")(rows([2], [0]))
    want = dict(zip(KINDS, (10.0, 6.0, 2.0, 2.0, 8.0, 16.0, 4.0), strict=True))
    assert v.numpy().tolist() == [want[kind], 6.0]
