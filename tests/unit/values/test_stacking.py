"""Values of replicas as rows of arrays, and back."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests.parity.programs import mirrored


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
