"""A server by itself: what it does with changes."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from unisono._src.coordinator.messages import Operation, Request
from unisono._src.coordinator.server import Server

pytestmark = pytest.mark.feature("T06")

ROWS, POSITIONS = np.array([[2.0], [4.0], [8.0]], np.float32), np.array([1, 3, 1])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "min", "max", "update"])
def test_rows_change_as_those_of_a_variable_do(kind, dtype):
    first = np.arange(3, 7).reshape(4, 1).astype(dtype)
    rows, where = ROWS.astype(dtype), POSITIONS
    if kind == "update":
        rows, where = rows[:2], where[:2]
    server, variable = Server(0), unisono.Variable(first)
    server.create("v", first)
    server.push([Operation(f"scatter_{kind}", ("v",), (where, rows))])
    getattr(variable, f"scatter_{kind}")(
        unisono.IndexedSlices(jnp.asarray(rows), jnp.asarray(where))
    )
    (found,) = server.pull([Request("v")])
    np.testing.assert_array_equal(found, variable.numpy())


def test_rows_outside_are_left_out_and_read_as_zeros():
    server = Server(0)
    server.create("v", ((3, 2), "float32"))
    server.push([Operation("scatter_add", ("v",), (np.array([1, 9]), np.ones((2, 2))))])
    found, rows = server.pull([Request("v"), Request("v", np.array([1, 9, 0]))])
    assert found.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert rows.tolist() == [[1, 1], [0, 0], [0, 0]]
    # What was read does not change any more.
    server.push([Operation("assign_add", ("v",), (np.ones((3, 2)),))])
    assert found.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_changes_of_a_closure_are_made_once_until_it_is_confirmed():
    server = Server(0)
    server.create("v", np.zeros(1))
    add = [Operation("assign_add", ("v",), (np.ones(1),))]
    for closure in (7, 7, None, None, 8):
        server.push(add, closure)
    assert server.pull([Request("v")])[0] == 4
    values, closures = server.snapshot()
    assert closures == [7, 8]
    other = Server(1)
    other.restore(values, closures)
    other.push(add, 7)
    other.confirm([7, 8])
    other.push(add, 7)
    assert other.pull([Request("v")])[0] == 5
    assert other.describe() == {"v": ((1,), "float64", 8)}
    other.drop(["v"])
    with pytest.raises(unisono.errors.FailedPreconditionError, match="no variable 'v'"):
        other.pull([Request("v")])
