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


def test_the_first_axis_that_fits_is_cut_if_the_array_is_large():
    assert partition.choose(pair(), 6, (3, 4)) == partition.Split(1, 2, (AXIS,))
    assert partition.choose(pair(), 12, (4, 3)).axis == 0
    for above, shape in ((13, (4, 3)), (1, (3, 3)), (None, (4, 4)), (1, ())):
        assert partition.choose(pair(), above, shape) is None
    assert partition.choose(Topology.of([machine.name(0)]), 1, (4,)) is None


@pytest.mark.parametrize(
    ("state", "size", "words"),
    [
        ("spread", None, "received 'spread'"),
        ("mirrored", 4, "none is"),
        ("sharded", 0, "received 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(state, size, words):
    with pytest.raises(ValueError, match=words):
        partition.split_threshold(state, size)
    assert partition.split_threshold("sharded", 7) == 7


@pytest.mark.parametrize("kind", [np.asarray, jnp.asarray])
def test_parts_make_up_the_array_again(kind):
    topology = pair()
    split = partition.choose(topology, 1, (3, 4))
    given = kind(np.arange(12.0, dtype=np.float32).reshape(3, 4))
    cut = partition.put(given, partition.sharding(topology, split))
    assert [s.data.shape for s in cut.addressable_shards] == [(3, 2)] * 2
    target = topology.devices[1]
    whole = partition.gather_parts(cut, split, topology.devices, target)
    np.testing.assert_array_equal(whole, given)
    assert whole.devices() == {target}


def test_replicas_gather_cut_and_scatter_their_parts():
    topology = pair()
    split, own = partition.choose(topology, 1, (4,)), PartitionSpec(AXIS)

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
