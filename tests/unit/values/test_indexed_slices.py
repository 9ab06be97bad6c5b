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
    assert rows.shape.rank is None
    with pytest.raises(ValueError, match="dense_shape"):
        rows.to_dense()


def test_an_array_may_be_the_dense_shape(rows):
    same = unisono.IndexedSlices(rows.values, rows.indices, jnp.asarray([4, 1]))
    assert same.shape == (4, 1)
    assert same.to_dense().tolist() == rows.to_dense().tolist()


@pytest.mark.feature("O07")
def test_an_array_may_be_the_dense_shape_inside_a_function():
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    outside = jnp.asarray([4, 1])
    with s.scope():
        v = unisono.Variable(jnp.zeros((4, 1)))

    def replica(make):
        rows = unisono.IndexedSlices(jnp.ones([1, 1]), jnp.asarray([2]), make())
        return unisono.distribute.get_replica_context().all_reduce("SUM", rows)

    def step(make):
        found = s.run(replica, args=(make,))
        with pytest.raises(ValueError, match="Give dense_shape as integers"):
            unisono.IndexedSlices(jnp.ones(1), jnp.zeros(1), outside + 0).to_dense()
        v.scatter_add(s.experimental_local_results(found)[0])
        return found

    for make in (lambda: outside, lambda: jnp.asarray([4, 1])):
        found = unisono.function(step)(make)
        for rows in s.experimental_local_results(found):
            assert rows.shape == (4, 1)
            assert rows.to_dense().tolist() == [[0.0], [0.0], [2.0], [0.0]]
    assert v.numpy().tolist() == [[0.0], [0.0], [4.0], [0.0]]


@pytest.mark.feature("O07")
@pytest.mark.parametrize("is_compiled", [False, True])
def test_rows_cannot_be_gathered(rows, is_compiled):
    default = unisono.distribute.get_strategy()
    mirrored = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for s in (default, mirrored):
        each = s.run(lambda: unisono.IndexedSlices(jnp.ones([1, 1]), jnp.array([0])))
        for value in (rows, each, {"a": [each]}):
            gather = lambda s=s, value=value: s.gather(value, axis=0)  # noqa: E731
            with pytest.raises(NotImplementedError, match="not support IndexedSlices"):
                unisono.function(gather)() if is_compiled else gather()


@pytest.mark.feature("O07")
@pytest.mark.parametrize("is_compiled", [False, True])
def test_rows_are_reduced_along_an_axis_of_the_larger_array(is_compiled):
    s = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def make(shape):
        rank = unisono.distribute.get_replica_context().replica_id_in_sync_group
        values = jnp.array([[1.0, 2.0], [3.0, 4.0]]) + rank
        return unisono.IndexedSlices(values, jnp.array([1, 1]), shape)

    def reduce(op, axis, shape=(4, 2)):
        give = lambda: s.reduce(op, s.run(make, (shape,)), axis=axis)  # noqa: E731
        return (unisono.function(give) if is_compiled else give)().tolist()

    assert reduce("SUM", 0) == [10.0, 14.0]
    assert reduce("MEAN", 1) == [0.0, 6.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="no dense_shape"):
        reduce("SUM", 0, None)


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
