"""Per-replica and mirrored values keep one value per replica, whatever their form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unisono as tf
import unisono as uni
from tests.parity.programs import mirrored, variable
from unisono._src.values import distributed
from unisono._src.values.distributed import Mirrored, PerReplica


def topology():
    return mirrored(2).extended._placement.topology


def test_a_per_replica_value_has_the_same_parts_in_both_forms():
    parts = PerReplica([jnp.array([1.0]), jnp.array([2.0])], topology())
    stacked = PerReplica.from_stacked(parts.stacked(topology()), 2)
    assert parts.is_stacked  # The arrays are kept for the next program.
    assert stacked.count == parts.count == 2
    assert [x.tolist() for x in stacked.values] == [[1.0], [2.0]]
    assert stacked.kinds() == parts.kinds() == [((1,), jnp.float32)] * 2
    assert not stacked.is_traced
    assert stacked.first == 0


def test_parts_of_different_shapes_are_not_stacked():
    uneven = PerReplica([jnp.ones(1), jnp.ones(2)], topology())
    assert uneven.stacked(topology()) is None
    assert [shape for shape, _ in uneven.kinds()] == [(1,), (2,)]


def test_a_per_replica_value_is_no_array_outside_replicas():
    with pytest.raises(ValueError, match="while not inside a replica context"):
        PerReplica([1.0, 2.0]).own()


@pytest.mark.parametrize("wrap", [lambda run: run, tf.function])
def test_a_replica_gets_its_own_part_of_a_captured_value(wrap):
    run = wrap(mirrored(2).run)
    given = PerReplica([jnp.array(1.0), jnp.array(5.0)], topology())
    found = run(lambda: jnp.add(given, 1.0))
    assert [float(x) for x in found.values] == [2.0, 6.0]


def test_a_value_of_another_number_of_replicas_is_refused():
    with pytest.raises(IndexError, match="has 3 values but the strategy has 2"):
        distributed.select(PerReplica([1, 2, 3]), 0, 2)
    assert distributed.unwrap({"x": PerReplica([1, 2]), "y": 3}, 1, 2) == {
        "x": 2,
        "y": 3,
    }


def test_a_per_replica_value_keeps_its_form_through_a_tree():
    given = PerReplica([jnp.array(1.0), jnp.array(2.0)], topology())
    same = jax.tree.map(lambda x: x + 1.0, given)
    assert isinstance(same, PerReplica)
    assert [float(x) for x in same.values] == [2.0, 3.0]
    given.stacked(topology())
    stacked = jax.tree.map(lambda x: x + 1.0, given)
    assert stacked.is_stacked
    assert [float(x) for x in stacked.values] == [2.0, 3.0]


def test_a_mirrored_value_computes_as_the_array_it_stands_for():
    whole = topology().spread(jnp.array([1.0, 2.0]))
    found = Mirrored.of(whole, 2)
    assert (found + 1.0).tolist() == [2.0, 3.0]
    assert found[1] == 2.0
    assert found.shape == (2,)
    assert found.dtype == jnp.float32
    assert [x.devices() for x in found.values] == [{d} for d in topology().devices]
    np.testing.assert_array_equal(found.numpy(), [1.0, 2.0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="the mirrored value"):
        found[2]


# Merging.


def test_results_are_merged_leaf_by_leaf_by_identity():
    same = object()
    merged = distributed.regroup([(1.5, {"a": same}), (2.5, {"a": same})])
    assert merged[0].values == (1.5, 2.5)
    assert merged[1]["a"] is same
    wrapped = distributed.regroup([same, same], always_wrap=True)
    assert wrapped.values == (same, same)


def test_components_become_their_variable_again():
    v, w = variable(mirrored(2)), variable(mirrored(2))
    assert distributed.regroup(list(v.values)) is v
    with pytest.raises(AssertionError, match="components of different variables"):
        distributed.regroup([v.values[0], w.values[1]])


def test_results_of_different_structures_are_refused():
    with pytest.raises(AssertionError, match=r"replica 1.*list and tuple"):
        distributed.regroup([[1], (1,)])
    with pytest.raises(AssertionError, match="keys"):
        distributed.regroup([{"a": 1}, {"b": 1}])


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_a_result_without_elements_loses_no_replica(n, shape):
    strategy = mirrored(n)
    context = uni.distribute.get_replica_context

    def replica():
        number = jnp.asarray(context().replica_id_in_sync_group)
        return number, jnp.zeros(shape)

    for run in (strategy.run, uni.function(strategy.run)):
        numbers, empty = run(replica)
        results = strategy.experimental_local_results
        assert [int(x) for x in results(numbers)] == list(range(n))
        assert [np.shape(x) for x in results(empty)] == [shape] * n
    given = strategy.experimental_distribute_values_from_function(
        lambda c: (jnp.asarray(c.replica_id_in_sync_group), jnp.zeros(shape))
    )
    same = uni.function(lambda x: x)(given)
    assert len(results(same[1])) == n


def test_a_value_with_a_part_without_elements_keeps_all_its_replicas():
    strategy = mirrored(2)
    slices = strategy.experimental_distribute_values_from_function(
        lambda c: uni.IndexedSlices(jnp.zeros((0, 2)), jnp.zeros(0, jnp.int32))
    )
    found = uni.function(lambda x: x)(slices)
    assert len(strategy.experimental_local_results(found)) == 2


def test_arrays_are_shown_as_tensors():
    array = jnp.array([1.0, 2.0])
    assert distributed.describe(array) == (
        "<tf.Tensor: shape=(2,), dtype=float32, numpy=array([1., 2.], dtype=float32)>"
    )
    assert distributed.describe(jnp.float32(3)) == (
        "<tf.Tensor: shape=(), dtype=float32, numpy=3.0>"
    )
    assert distributed.describe_short(array) == (
        "tf.Tensor([1. 2.], shape=(2,), dtype=float32)"
    )


def test_values_of_a_program_and_random_keys_are_shown_without_numbers():
    shown = []

    @jax.jit
    def step(x):
        shown.extend([distributed.describe(x), distributed.describe_short(x)])
        return x

    step(jnp.ones(2))
    assert shown == ["<tf.Tensor: shape=(2,), dtype=float32, traced>"] * 2
    key = jax.random.key(0)
    assert distributed.describe(key).startswith("<tf.Tensor: shape=(), dtype=key<")
    assert "tf.Tensor(" not in distributed.describe_short(key)


def test_other_values_are_shown_as_they_are_and_text_without_control_characters():
    assert distributed.describe("a\n") == "'a\\n'"
    assert distributed.describe_short("a\n") == "a\\n"
    assert distributed.describe_short(3) == "3"
