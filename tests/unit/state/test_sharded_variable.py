"""Variables in parts, TensorFlow's facts 36 to 41."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from unisono.distribute import ShardedVariable

pytestmark = pytest.mark.feature("T06")

VALUE = np.arange(10.0, dtype=np.float32).reshape(5, 2)


@pytest.fixture
def table():
    parts = [unisono.Variable(VALUE[:2]), unisono.Variable(VALUE[2:4])]
    return ShardedVariable([*parts, unisono.Variable(VALUE[4:])], name="table")


def test_parts_must_be_variables_of_one_kind():
    for wrong in ([], unisono.Variable(1.0), [1.0]):
        with pytest.raises(TypeError, match="non-empty list"):
            ShardedVariable(wrong)
    first = unisono.Variable([1.0])
    with pytest.raises(ValueError, match="same dtype"):
        ShardedVariable([first, unisono.Variable([1])])
    with pytest.raises(ValueError, match="same shapes"):
        ShardedVariable([first, unisono.Variable([[1.0]])])


def test_it_stands_for_the_whole(table):
    assert table.shape == (5, 2) and table.dtype == np.float32 and len(table) == 3
    assert table.is_sharded_variable and table.name == "table"
    assert [v.shape for v in table] == [(2, 2), (2, 2), (1, 2)]
    assert list(table) == table.variables
    np.testing.assert_array_equal(table.numpy(), VALUE)
    np.testing.assert_array_equal(table + 1.0, VALUE + 1.0)
    np.testing.assert_array_equal(np.float32(2.0) * table, VALUE * 2.0)
    np.testing.assert_array_equal(jnp.sum(table, axis=0), VALUE.sum(0))


@pytest.mark.parametrize(
    "key",
    [
        4, -5, slice(1, 4), slice(None, None, -1), slice(4, 0, -2), slice(3, 3),
        (slice(1, 4), 0), (3, 1), (Ellipsis, 1), np.newaxis,
        np.array([True, False, True, False, True]),
    ],
)  # fmt: skip
def test_indices_give_what_they_give_of_the_whole(table, key):
    np.testing.assert_array_equal(table[key], VALUE[key])


def test_indices_outside_or_of_arrays_are_refused(table):
    for index in (5, -6):
        with pytest.raises(IndexError, match="out of bounds"):
            table[index]
    with pytest.raises(TypeError, match="sparse_read"):
        table[jnp.array([1])]
    for key in (
        slice(jnp.array(1), None),
        slice(jnp.array(1)),
        slice(0, 4, jnp.array(2)),
    ):
        for whole_key in (key, (key, 0)):
            with pytest.raises(TypeError, match="using Tensor in slice_spec"):
                table[whole_key]


def test_nest_takes_it_apart_and_puts_it_together(table):
    assert unisono.nest.flatten([table]) == [table]
    assert unisono.nest.flatten({"a": [table]}, expand_composites=True) == [*table]
    doubled = unisono.nest.map_structure(
        lambda v: unisono.Variable(2 * v), {"t": table}, expand_composites=True
    )["t"]
    assert isinstance(doubled, ShardedVariable) and doubled.name == "table"
    np.testing.assert_array_equal(doubled.numpy(), 2 * VALUE)


def test_assignments_go_to_the_parts_and_return_the_variable(table):
    assert table.assign(VALUE + 1.0) is table
    assert table.assign_add(VALUE) is table
    assert table.assign_sub(np.ones((5, 2))) is table
    np.testing.assert_array_equal(table.numpy(), 2 * VALUE)
    with pytest.raises(ValueError, match="incompatible"):
        table.assign(VALUE[:2])


@pytest.mark.parametrize(
    "kind", ["add", "sub", "mul", "div", "min", "max", "update", "batch"]
)
def test_scattered_rows_reach_their_parts(table, kind):
    name = "batch_scatter_update" if kind == "batch" else f"scatter_{kind}"
    whole = unisono.Variable(VALUE)
    rows = unisono.IndexedSlices(jnp.array([[2.0, 3.0], [4.0, 1.0]]), jnp.array([4, 0]))
    assert getattr(table, name)(rows) is table
    getattr(whole, "scatter_update" if kind == "batch" else name)(rows)
    np.testing.assert_array_equal(table.numpy(), whole.numpy())
    with pytest.raises(ValueError, match="1-D"):
        wrong = unisono.IndexedSlices(jnp.ones((1, 2)), jnp.array([[1]]))
        getattr(table, name)(wrong)
    with pytest.raises(TypeError, match="IndexedSlices"):
        getattr(table, name)(VALUE)


def test_rows_are_read_in_the_order_asked_for(table):
    np.testing.assert_array_equal(table.sparse_read([4, 0, 4]), VALUE[[4, 0, 4]])
    with pytest.raises(ValueError, match="1-D"):
        table.sparse_read([[1]])
    with pytest.raises(unisono.errors.InvalidArgumentError, match=r"= \[9\] does not"):
        unisono.nn.embedding_lookup(table, [[1, 4], [9, 0]])
    # What a program computes reads zeros, as on TensorFlow's accelerators.
    look_up = unisono.function(lambda x: unisono.nn.embedding_lookup(table, x))
    found = look_up(jnp.array([[1, 4], [9, 0]]))
    np.testing.assert_array_equal(found[0], VALUE[[1, 4]])
    np.testing.assert_array_equal(found[1], [[0.0, 0.0], VALUE[0]])
    np.testing.assert_array_equal(
        unisono.nn.embedding_lookup(table.variables, [3]), VALUE[[3]]
    )


def test_gradients_reach_the_whole_and_the_parts(table):
    where = np.array([4, 0, 4])

    def loss_fn():
        return jnp.sum(unisono.nn.embedding_lookup(table, where) ** 2)

    wanted = np.zeros_like(VALUE)
    np.add.at(wanted, where, 2 * VALUE[where])
    with unisono.GradientTape(persistent=True) as tape:
        loss = loss_fn()
        dense = jnp.sum(table * 3.0)
    np.testing.assert_allclose(tape.gradient(loss, table).to_dense(), wanted)
    parts = tape.gradient(loss, table.variables)
    for part, start in zip(parts, (0, 2, 4)):
        np.testing.assert_allclose(
            part.to_dense(), wanted[start : start + part.shape[0]]
        )
    np.testing.assert_allclose(tape.gradient(dense, table), np.full((5, 2), 3.0))
    both = tape.gradient([loss, dense], table)
    np.testing.assert_allclose(both, wanted + 3.0)
    found: Any = unisono.value_and_grad(loss_fn, [table])()
    value, gradient = found
    assert float(value) == float(loss)
    np.testing.assert_allclose(gradient[0].to_dense(), wanted)
    jitted: Any = unisono.function(lambda: unisono.grad(loss_fn, [table])())
    np.testing.assert_allclose(jitted()[0].to_dense(), wanted)


def test_a_function_returns_its_value_of_that_moment(table):
    @unisono.function
    def step():
        before = table
        out = {"whole": before}
        return out

    found = step()["whole"]
    table.assign(VALUE + 1.0)
    np.testing.assert_array_equal(found, VALUE)
