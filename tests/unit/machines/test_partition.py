"""Large variables are cut into equal parts over devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests import machine
from unisono._src.machines import partition
from unisono._src.machines.topology import AXIS, Topology


def pair():
    return Topology.of([machine.name(0), machine.name(1)])


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_parts_make_up_the_array_again(kind):
    topology = pair()
    split = partition.Split(1, 2, (AXIS,))
    given = kind(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    cut = partition.put(given, partition.sharding(topology, split))
    assert [s.data.shape for s in cut.addressable_shards] == [(3, 2)] * 2
    target = topology.devices[1]
    whole = partition.gather_parts(cut, split, topology.devices, target)
    np.testing.assert_array_equal(whole, given)
    assert whole.devices() == {target}


def test_replicas_gather_cut_and_scatter_their_parts():
    topology = pair()
    split, own = partition.Split(0, 2, (AXIS,)), PartitionSpec(AXIS)

    def body(part):
        whole = split.gather(part)
        return whole[None], split.cut(whole), split.scatter(whole)

    whole, part, summed = jax.jit(
        jax.shard_map(
            body, mesh=topology.mesh, in_specs=own, out_specs=own, check_vma=False
        )
    )(jnp.arange(4.0))
    assert whole.tolist() == [[0, 1, 2, 3]] * 2
    assert part.tolist() == [0, 1, 2, 3]
    assert summed.tolist() == [0, 2, 4, 6]
