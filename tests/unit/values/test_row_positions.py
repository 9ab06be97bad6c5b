"""Known positions out of range are errors; computed ones change no other row."""

import contextlib

import hypothesis
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import strategies as st

import unisono as tf
from tests import random_programs
from tests.parity.programs import central, mirrored
from tests.unit.servers import clusters

InvalidArgumentError = tf.errors.InvalidArgumentError
ROWS = [[1.0], [2.0], [3.0]]
WRONG = (-1, 3, 9, 2**32 + 1)


@pytest.fixture(scope="module", params=["none", "mirrored", "central", "ps", "parts"])
def make(request):
    """Gives a function that makes a table of three rows, and an optimizer for it."""
    with contextlib.ExitStack() as stack:
        if request.param in ("ps", "parts"):
            cut = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
            cluster = clusters.cluster(
                partitioner=cut if request.param[1] == "a" else None
            )
            scope = stack.enter_context(cluster)[0].scope
        else:
            kinds = {"mirrored": mirrored, "central": central}
            is_plain = request.param == "none"
            scope = (
                contextlib.nullcontext if is_plain else kinds[request.param](2).scope
            )

        def build():
            with scope():
                table = tf.Variable(ROWS, aggregation=tf.VariableAggregation.SUM)
                return table, tf.optimizers.Optimizer(optax.adagrad(0.1), [table])

        yield build


def slices(indices, size=1):
    return tf.IndexedSlices(jnp.full((size, 1), 10.0), indices, (3, 1))


def values(table):
    return np.asarray(tf.convert_to_tensor(table)).ravel().tolist()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_known_position_out_of_range_is_an_error(make, wrong):
    table, rule = make()
    given = np.array([wrong])
    for change in (
        lambda: table.scatter_add(slices(given)),
        lambda: rule.apply_gradients([(slices(given), table)]),
        lambda: table.sparse_read(given),
        lambda: slices(given).to_dense(),
    ):
        with pytest.raises(InvalidArgumentError, match=rf"\[{wrong}\] does not index"):
            change()
        with pytest.raises(InvalidArgumentError, match=rf"\[{wrong}\] does not index"):
            tf.function(lambda change=change: [change(), 0][1])()
    with pytest.raises((InvalidArgumentError, OverflowError)):
        tf.nn.embedding_lookup(table, given)
    assert values(table) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("wrong", [-1, -3, 3, 9])
def test_a_computed_position_out_of_range_changes_no_row(make, wrong):
    table, rule = make()

    @tf.function
    def step(where):
        table.scatter_add(slices(where, 2))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, where))
        gradient = tape.gradient(loss, table)
        return slices(where, 2).to_dense(), tf.convert_to_tensor(gradient)

    dense, gradient = step(jnp.array([wrong, 0]))
    assert values(table) == [11.0, 2.0, 3.0]
    assert dense.ravel().tolist() == [10.0, 0.0, 0.0]
    assert gradient.ravel().tolist() == [1.0, 0.0, 0.0]
    apply = tf.function(
        lambda where: [rule.apply_gradients([(slices(where), table)]), 0][1]
    )
    apply(jnp.array([wrong]))
    assert values(table) == [11.0, 2.0, 3.0]
    apply(jnp.array([1]))
    assert values(table) == pytest.approx([11.0, 1.9, 3.0], abs=2e-3)


def test_equal_positions_add_up_and_none_change_nothing(make):
    table, _ = make()
    table.scatter_add(slices([1, 1], 2))
    table.scatter_add(slices(np.array([]), 0))
    tf.function(lambda where: [table.scatter_sub(slices(where)), 0][1])(jnp.array([1]))
    assert values(table) == [1.0, 12.0, 3.0]


@pytest.mark.parametrize("kind", ["add", "sub", "update", "min", "max", "mul", "div"])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_no_kind_of_change_takes_minus_one_for_the_last_row(kind, dtype):
    v = tf.Variable(np.array([4, 6, 8], dtype))
    rows = jnp.full(2, 5 if kind == "max" else 2, dtype)
    change = tf.function(
        lambda where: getattr(v, f"scatter_{kind}")(tf.IndexedSlices(rows, where))
    )
    found = change(jnp.array([-1, 0])).tolist()
    assert found[1:] == [6, 8]
    assert found[0] != 4


POSITIONS = st.lists(st.integers(-4, 6), min_size=1, max_size=4)


@hypothesis.given(where=POSITIONS, is_known=st.booleans())
@random_programs.tries(40)
def test_random_positions_change_what_numpy_changes_or_are_refused(where, is_known):
    v = tf.Variable([1.0, 2.0, 3.0])
    rows = np.arange(1.0, len(where) + 1, dtype=np.float32)
    wanted = np.array([1.0, 2.0, 3.0])
    inside = [0 <= i < 3 for i in where]
    np.add.at(wanted, np.array(where)[inside], rows[inside])
    if is_known and not all(inside):
        with pytest.raises(InvalidArgumentError):
            v.scatter_add(tf.IndexedSlices(rows, np.array(where)))
        return
    if is_known:
        v.scatter_add(tf.IndexedSlices(rows, np.array(where)))
    else:
        tf.function(lambda i: v.scatter_add(tf.IndexedSlices(rows, i)))(
            jnp.array(where)
        )
    np.testing.assert_allclose(v, wanted)
