"""Tables of where variables live."""

import jax.numpy as jnp
import pytest

import unisono
from tests.parity.programs import central, mirrored, on_read, one_device, variable


@pytest.mark.feature("M10")
def test_a_description_says_where_each_variable_is_and_how_large():
    s = mirrored(4)
    tree = {
        "w": variable(s, jnp.ones([3, 2]), name="w"),
        "m": [on_read(s, 1.0, name="m"), "no variable"],
        "u": unisono.Variable(jnp.ones([5], jnp.int8), name="u"),
    }
    described = s.describe(tree)
    found = [
        (r.name, r.shape, r.dtype, r.placement, r.devices, r.bytes_per_device)
        for r in described.rows
    ]
    assert found == [
        ("w:0", (3, 2), "float32", "mirrored", 4, 24),
        ("m:0", (), "float32", "per replica", 4, 4),
        ("u:0", (5,), "int8", "one copy", 1, 5),
    ]
    assert described.bytes_per_device == 33


def test_a_description_prints_as_a_table():
    c = central(2)
    text = str(c.describe([variable(c, jnp.ones(1000), name="weights")]))
    for word in ("weights:0", "(1000,)", "float32", "central", "4,000", "total"):
        assert word in text


def test_one_variable_can_be_described_alone():
    v = variable(one_device(), 1.0)
    (row,) = one_device().describe(v).rows
    assert (row.placement, row.devices) == ("one copy", 1)
    assert one_device().describe([]).bytes_per_device == 0
