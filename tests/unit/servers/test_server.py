"""A server by itself: what it does with changes."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono
from unisono._src.foundation import row_files
from unisono._src.servers.messages import Operation, Request
from unisono._src.servers.server import ParameterServer

pytestmark = pytest.mark.feature("T06")

ROWS, POSITIONS = np.array([[2.0], [4.0], [8.0]], np.float32), np.array([1, 3, 1])


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "min", "max", "update"])
def test_rows_change_as_those_of_a_variable_do(kind, dtype):
    first = np.arange(3, 7).reshape(4, 1).astype(dtype)
    rows, where = ROWS.astype(dtype), POSITIONS
    if kind == "update":
        rows, where = rows[:2], where[:2]
    server, variable = ParameterServer(0), unisono.Variable(first)
    server.create("v", first)
    server.push([Operation(f"scatter_{kind}", ("v",), (where, rows))])
    getattr(variable, f"scatter_{kind}")(
        unisono.IndexedSlices(jnp.asarray(rows), jnp.asarray(where))
    )
    (found,) = server.pull([Request("v")])
    np.testing.assert_array_equal(found, variable.numpy())


def test_rows_outside_are_left_out_and_read_as_zeros():
    server = ParameterServer(0)
    server.create("v", ((3, 2), "float32"))
    server.push([Operation("scatter_add", ("v",), (np.array([1, 9]), np.ones((2, 2))))])
    found, rows = server.pull([Request("v"), Request("v", np.array([1, 9, 0]))])
    assert found.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert rows.tolist() == [[1, 1], [0, 0], [0, 0]]
    # What was read does not change any more.
    server.push([Operation("assign_add", ("v",), (np.ones((3, 2)),))])
    assert found.tolist() == [[0, 0], [1, 1], [0, 0]]


def test_changes_of_a_closure_are_made_once_until_it_is_confirmed():
    server = ParameterServer(0)
    server.create("v", np.zeros(1))
    add = [Operation("assign_add", ("v",), (np.ones(1),))]
    for closure in (7, 7, None, None, 8):
        server.push(add, closure)
    assert server.pull([Request("v")])[0] == 4
    closures, (value,) = server.hold(0, ["v"], ["v"])
    assert closures == [7, 8]
    other = ParameterServer(1)
    other.create("v", value)
    other.remember(closures)
    other.push(add, 7)
    other.confirm([7, 8])
    other.push(add, 7)
    assert other.pull([Request("v")])[0] == 5
    assert other.describe() == {"v": ((1,), "float64", 8)}
    other.drop(["v"])
    with pytest.raises(unisono.errors.FailedPreconditionError, match="no variable 'v'"):
        other.pull([Request("v")])


def test_what_a_checkpoint_holds_stays_as_it_was_until_it_is_written(tmp_path):
    server, first = ParameterServer(0), np.arange(12.0).reshape(6, 2)
    server.create("v", first)
    server.hold(0, ["v"], [])
    server.hold(1, ["v"], [])
    add = Operation("assign_add", ("v",), (np.ones((6, 2)),))
    server.push([add])
    # Rows 3 to 8 of 20, of which 5 are a chunk: no chunk is all of them.
    place = row_files.Place("a", (20, 2), 3, 5)
    left = server.write(0, str(tmp_path / "part"), {"v": place})["v"]
    assert [(at, x.tolist()) for at, x in left] == [(3, first.tolist())]
    # Rows 4 to 9: those from 5 on are a chunk.
    moved = place._replace(start=4)
    left = server.write(1, str(tmp_path / "other"), {"v": moved})["v"]
    assert [(at, x.tolist()) for at, x in left] == [(4, first[:1].tolist())]
    read = np.zeros((5, 2))
    row_files.read(str(tmp_path / "other"), moved._replace(start=5), read)
    assert read.tolist() == first[1:].tolist()
    with pytest.raises(ValueError, match=r"shape \(20, 2\).*expected \(6, 2\)"):
        wrong = {"v": row_files.Place("a", (6, 2), 0)}
        server.load(str(tmp_path / "other"), wrong)
    server.release(0)
    server.release(1)
    server.push([add])
    np.testing.assert_array_equal(server.pull([Request("v")])[0], first + 2)
