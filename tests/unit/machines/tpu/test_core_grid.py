"""Grids of devices and the blocks of cores in them: arithmetic, without a TPU."""

import math

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import unisono
from unisono._src.workers import tpu_system
from unisono.tpu.experimental import Topology

V3_8 = [2, 2, 1, 2]


def grid(shape, tasks=1, missing=()):
    places = [p for p in np.ndindex(*shape) if p not in missing]
    return Topology(
        mesh_shape=shape, device_coordinates=np.reshape(places, (tasks, -1, 4))
    )


# ------------------------------------------------------------------------- Topology


def test_a_topology_knows_the_task_and_the_number_of_every_device():
    topology = grid(V3_8, tasks=2)
    assert topology.mesh_shape.tolist() == V3_8
    assert (topology.mesh_rank, topology.num_tasks) == (4, 2)
    assert topology.num_tpus_per_task == 4
    assert topology.device_coordinates.shape == (2, 4, 4)
    assert topology.task_ordinal_at_coordinates([1, 0, 0, 1]) == 1
    assert topology.tpu_device_ordinal_at_coordinates([1, 0, 0, 1]) == 1
    name = topology.tpu_device_name_at_coordinates
    assert name([1, 1, 0, 0]) == "/task:1/device:TPU:2"
    assert name([1, 1, 0, 0], job="worker") == "/job:worker/task:1/device:TPU:2"
    host = topology.cpu_device_name_at_coordinates
    assert host([1, 1, 0, 0]) == "/task:1/device:CPU:0"
    assert host([0, 1, 0, 0], job="w") == "/job:w/task:0/device:CPU:0"
    assert topology.missing_devices.size == 0


def test_a_topology_knows_where_devices_are_missing():
    topology = grid([2, 1, 1, 2], missing=[(1, 0, 0, 0)])
    assert topology.missing_devices.tolist() == [[1, 0, 0, 0]]
    assert topology.task_ordinal_at_coordinates([1, 0, 0, 0]) == -1


@pytest.mark.parametrize(
    ("shape", "places", "match"),
    [
        (None, None, "`mesh_shape` must be a sequence of 4 positive entries"),
        ([1, 1, 2], [[[0, 0, 0]]], "sequence of 4 positive entries"),
        ([1, 1, 1, 0], [[[0, 0, 0, 0]]], "sequence of 4 positive entries"),
        ([1 << 20] * 4, [[[0, 0, 0, 0]]], "a grid of at most 1,048,576 devices"),
        ([1, 1, 1, 1], [[0, 0, 0, 0]], "must be a rank 3 int32 array"),
        ([1, 1, 1, 1], [[[0, 0, 0]]], "equal to the `mesh_shape` rank"),
        ([1, 1, 1, 1], [[[0, 0, 0, 1]]], "must lie in the grid"),
        ([1, 1, 1, 2], [[[0] * 4, [0] * 4]], "the same place"),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(shape, places, match):
    with pytest.raises(ValueError, match=match):
        Topology(mesh_shape=shape, device_coordinates=places)


@hypothesis.given(shape=st.lists(st.integers(1, 4), min_size=4, max_size=4))
@hypothesis.settings(deadline=None, max_examples=30)
def test_a_topology_comes_back_from_its_bytes(shape):
    topology = grid(shape)
    again = Topology(serialized=topology.serialized())
    assert again.mesh_shape.tolist() == shape
    assert np.array_equal(again.device_coordinates, topology.device_coordinates)


def test_the_bytes_are_those_of_the_protocol_buffer():
    # Field 1 packed 1 1 1 2; field 2 = 1; field 3 = 2; field 4 packed coordinates.
    topology = grid([1, 1, 1, 2])
    assert topology.serialized() == bytes(
        [0x0A, 4, 1, 1, 1, 2, 0x10, 1, 0x18, 2, 0x22, 8, 0, 0, 0, 0, 0, 0, 0, 1]
    )


# A number's field that holds bytes, and a number that 32 bits would cut to 1.
@hypothesis.example(text=bytes([0x12, 0]))
@hypothesis.example(
    text=bytes([0x0A, 8, 1, 1, 1, 0x81, 0x80, 0x80, 0x80, 0x10])
    + bytes([0x10, 1, 0x18, 1, 0x22, 4, 0, 0, 0, 0])
)
@hypothesis.given(text=st.binary(min_size=1, max_size=40))
@hypothesis.settings(deadline=None, max_examples=100)
def test_other_bytes_are_refused(text):
    with pytest.raises(ValueError, match=r"topology|mesh_shape|device_coordinates"):
        Topology(serialized=text)


# --------------------------------------------------------------------------- system


@pytest.mark.feature("K08")
def test_without_a_tpu_the_grid_is_made_of_the_devices_there_are():
    resolver = unisono.distribute.cluster_resolver.TPUClusterResolver(tpu="")
    unisono.config.experimental_connect_to_cluster(resolver)
    topology = unisono.tpu.experimental.initialize_tpu_system(resolver)
    assert topology.mesh_shape.tolist() == V3_8
    assert topology.num_tpus_per_task == 8
    place = topology.device_coordinates[0, 5]
    assert topology.tpu_device_name_at_coordinates(place) == "/task:0/device:CPU:5"
    assert place.tolist() == [0, 1, 0, 1]
    unisono.tpu.experimental.shutdown_tpu_system(resolver)


@hypothesis.given(count=st.integers(1, 256))
@hypothesis.settings(deadline=None)
def test_a_grid_has_room_for_exactly_its_devices(count):
    shape = tpu_system.grid_shape(count)
    assert math.prod(shape) == count
    assert (
        len({tuple(p) for p in tpu_system._places_in_order(np.array(shape))}) == count
    )


class Chip:
    """A device of a TPU, as JAX shows it."""

    platform = "tpu"

    def __init__(self, coords, core_on_chip, process_index):
        self.coords, self.core_on_chip = coords, core_on_chip
        self.process_index = process_index


def test_on_a_tpu_devices_stand_where_the_hardware_says():
    chips = [Chip((x, y, 0), c, x) for x in range(2) for y in (4, 5) for c in range(2)]
    topology = tpu_system.topology_of(chips)
    assert topology.mesh_shape.tolist() == V3_8
    assert topology.num_tasks == 2
    assert topology.tpu_device_name_at_coordinates([1, 1, 0, 1]).endswith("TPU:3")
    with pytest.raises(ValueError, match="different numbers of devices"):
        tpu_system.topology_of(chips[:-1])


def test_the_system_is_not_started_inside_a_function():
    @unisono.function
    def step():
        unisono.tpu.experimental.initialize_tpu_system()

    with pytest.raises(RuntimeError, match="initialize_tpu_system must not be called"):
        step()


def test_a_cluster_is_given_by_a_specification_or_a_resolver():
    with pytest.raises(ValueError, match="must be a `ClusterSpec` or a `ClusterResol"):
        unisono.config.experimental_connect_to_cluster("worker:1")
    with pytest.raises(ValueError, match="cannot run this strategy"):
        spec = unisono.train.ClusterSpec({"worker": ["a:1", "b:1"]})
        unisono.config.experimental_connect_to_cluster(spec, "ps", 0)
    assert jax.process_count() == 1
