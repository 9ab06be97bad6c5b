"""Rows of arrays are read by position; a position outside reads zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from unisono._src.state import rows

TABLE = jnp.arange(6.0).reshape(3, 2)


def test_rows_outside_an_array_are_zeros():
    found = rows.take(TABLE, np.array([2, 3, -1, rows.ABSENT], np.int32))
    assert found.tolist() == [[4.0, 5.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


def test_known_positions_stay_known_and_others_are_traced():
    known = rows.as_positions(jnp.array([1, 2]))
    assert isinstance(known, np.ndarray)
    assert known.dtype == np.int32
    with pytest.raises(OverflowError, match="positions"):
        rows.as_positions(np.array([2**40]))

    @jax.jit
    def step(where):
        found = rows.as_positions(where)
        assert isinstance(found, jax.core.Tracer)
        assert found.dtype == jnp.int32
        return rows.take(TABLE, found)

    assert step(jnp.array([1])).tolist() == [[2.0, 3.0]]
