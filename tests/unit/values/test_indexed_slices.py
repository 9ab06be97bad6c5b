"""IndexedSlices: rows of a larger array."""

import jax
import jax.numpy as jnp
import pytest

import unisono
from unisono._src.values import indexed_slices


@pytest.fixture
def rows():
    return unisono.IndexedSlices(
        jnp.asarray([[1.0], [2.0], [4.0]]), jnp.asarray([2, 0, 2]), (4, 1)
    )


@pytest.mark.feature("O07")
def test_rows_with_equal_indices_are_added_in_the_dense_array(rows):
    assert rows.to_dense().tolist() == [[2.0], [0.0], [5.0], [0.0]]
    assert rows.to_dense().dtype == rows.dtype == jnp.float32
    assert rows.shape == (4, 1)


def test_without_a_dense_shape_there_is_no_dense_array():
    rows = unisono.IndexedSlices(jnp.ones([1, 1]), jnp.asarray([0]))
    assert rows.shape is None
    with pytest.raises(ValueError, match="dense_shape"):
        rows.to_dense()


def test_an_array_may_be_the_dense_shape(rows):
    same = unisono.IndexedSlices(rows.values, rows.indices, jnp.asarray([4, 1]))
    assert same.shape == (4, 1)
    assert same.to_dense().tolist() == rows.to_dense().tolist()


@pytest.mark.feature("O07")
def test_rows_pass_through_jax_transformations(rows):
    doubled = jax.jit(lambda x: jax.tree.map(lambda a: a * 2, x))(rows)
    assert isinstance(doubled, unisono.IndexedSlices)
    assert doubled.values.tolist() == [[2.0], [4.0], [8.0]]
    assert doubled.shape == (4, 1)
    assert jax.jit(lambda x: x.to_dense())(rows).tolist() == rows.to_dense().tolist()


@pytest.mark.feature("O07")
def test_parts_are_concatenated_and_scaled(rows):
    both = indexed_slices.concatenate([rows, rows], None)
    assert both.indices.tolist() == [2, 0, 2, 2, 0, 2]
    assert both.to_dense().tolist() == [[4.0], [0.0], [10.0], [0.0]]
    mean = indexed_slices.concatenate([rows, rows], 2.0)
    assert mean.to_dense().tolist() == rows.to_dense().tolist()


def test_the_text_shows_what_is_in_it(rows):
    assert repr(rows).startswith("IndexedSlices(indices=[2 0 2], values=")
