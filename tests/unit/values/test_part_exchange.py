import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import machine
from unisono._src.machines import partition
from unisono._src.machines.partition import Split
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import part_exchange

pytestmark = pytest.mark.needs_devices(6)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of a worker."""

    process_index: int


def spread(*counts):
    """Returns the replicas of workers that have so many devices each."""
    owners = [w for w, count in enumerate(counts) for _ in range(count)]
    devices = tuple(map(Device, owners))
    names = tuple(f"CPU:{i}" for i in range(len(owners)))
    return Topology(names, devices, len(counts), 0, 0, counts[0])


@pytest.mark.parametrize(
    ("counts", "parts", "wanted"),
    [
        ((1, 1), 2, ((0,), (1,))),
        ((2, 2), 4, ((0, 1), (2, 3))),
        ((2, 2), 2, ((0, 1), (0, 1))),
        ((2, 2, 2), 3, ((0, 1), (0, 2), (1, 2))),
        ((3, 1, 2), 3, ((0, 1, 2), (0,), (1, 2))),
    ],
)
def test_holders_are_the_workers_whose_replicas_have_a_part(counts, parts, wanted):
    topology = spread(*counts)
    split = Split(0, parts, (AXIS,), topology.replicas // parts)
    assert part_exchange.find_holders(topology, split) == wanted
    is_whole = all(len(own) == parts for own in wanted)
    assert part_exchange.is_apart(topology, split) is not is_whole


def test_parts_on_logical_devices_are_all_here():
    assert not part_exchange.is_apart(spread(1, 1), Split(0, 2, ("logical_0",)))


def test_nothing_is_apart_in_one_process_or_without_a_cut():
    topology = Topology.of(machine.names(2))
    assert not part_exchange.is_apart(topology, Split(0, 2, (AXIS,)))
    assert not part_exchange.is_apart(spread(1, 1), None)
    assert not part_exchange.is_apart(None, None)


@pytest.mark.parametrize("split", [Split(1, 6, (AXIS,)), Split(0, 3, (AXIS,), 2)])
def test_a_cut_array_has_its_parts_by_number(split):
    topology = Topology.of(machine.names(6))
    value = np.arange(6 * 12).reshape(6, 12)
    target = partition.sharding(topology, split)
    made = part_exchange.cut(value, target)
    assert made.sharding == target
    wanted = dict(enumerate(np.split(value, split.parts, split.axis)))
    found = part_exchange.own_parts(made, split)
    assert {k: x.tolist() for k, x in found.items()} == {
        k: x.tolist() for k, x in wanted.items()
    }
    again = part_exchange.assemble(value.shape, target, split, wanted.__getitem__)
    assert np.array_equal(np.asarray(again), value)


def test_a_cut_array_has_memory_of_its_own():
    topology = Topology.of(machine.names(2))
    target = partition.sharding(topology, Split(0, 2, (AXIS,)))
    given = np.zeros((1 << 12, 4), np.float32)
    whole = jax.device_put(jnp.ones((4, 2)), topology.home)
    made = part_exchange.cut(given, target)
    given[:] = 1.0
    assert np.asarray(made).max() == 0.0
    part_exchange.cut(whole, target).delete()
    assert float(whole.sum()) == 8.0
