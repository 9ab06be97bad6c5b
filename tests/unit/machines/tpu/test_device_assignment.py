"""Blocks of cores in a grid of devices: arithmetic, without a TPU."""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tests.unit.machines.tpu.test_core_grid import V3_8, grid
from unisono.tpu.experimental import DeviceAssignment


@pytest.mark.feature("K08")
def test_the_replicas_of_a_whole_grid_follow_a_ring():
    built = DeviceAssignment.build(
        grid(V3_8), computation_shape=[1, 1, 1, 2], num_replicas=4
    )
    assert (built.num_replicas, built.num_cores_per_replica) == (4, 2)
    assert built.core_assignment.tolist() == [
        [[0, 0, 0, 0], [0, 0, 0, 1]],
        [[1, 0, 0, 0], [1, 0, 0, 1]],
        [[1, 1, 0, 0], [1, 1, 0, 1]],
        [[0, 1, 0, 0], [0, 1, 0, 1]],
    ]
    assert built.coordinates(2, 1) == (1, 1, 0, 1)
    assert built.tpu_ordinal(3, 1) == 3
    assert built.tpu_device(1, 1, job="worker") == "/job:worker/task:0/device:TPU:5"
    assert built.host_device(1) == "/task:0/device:CPU:0"


@pytest.mark.feature("K08")
def test_by_default_there_is_one_replica_of_one_core():
    topology = grid(V3_8)
    built = DeviceAssignment.build(topology)
    assert built.core_assignment.tolist() == [[[0, 0, 0, 0]]]
    assert built.topology is topology
    again = DeviceAssignment.build(topology.serialized(), num_replicas=8)
    assert again.core_assignment[:3, 0].tolist() == [
        [0, 0, 0, 0],
        [0, 0, 0, 1],
        [1, 0, 0, 0],
    ]


@pytest.mark.feature("K08")
def test_a_stride_leaves_room_between_the_cores_of_a_replica():
    built = DeviceAssignment.build(
        grid([4, 1, 1, 1]), [2, 1, 1, 1], [2, 1, 1, 1], num_replicas=2
    )
    assert built.core_assignment[:, :, 0].tolist() == [[0, 2], [1, 3]]


def test_the_replicas_of_a_task_are_found_by_their_logical_core():
    built = DeviceAssignment.build(
        grid([2, 1, 1, 2], tasks=2), [1, 1, 1, 2], num_replicas=2
    )
    assert built.lookup_replicas(0, 1) == [0]
    assert built.lookup_replicas(1, 0) == [1]
    with pytest.raises(ValueError, match="Can not find any replica in task: 2"):
        built.lookup_replicas(2, 0)


@pytest.mark.feature("K08")
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"computation_shape": [1, 1, 2]}, r"computation_shape must have shape \[4\]"),
        ({"computation_stride": [1]}, r"computation_stride must have shape \[4\]; got"),
        ({"computation_shape": [1, 1, 0, 1]}, "computation_shape must be positive"),
        ({"computation_stride": [1, -1, 1, 1]}, "computation_stride must be positive"),
        ({"computation_shape": [4, 1, 1, 1]}, "does not fit in TPU topology shape"),
        ({"computation_shape": V3_8, "num_replicas": 2}, "requested 2 replicas but on"),
        ({"num_replicas": 0}, "num_replicas must be positive; got 0"),
    ],
)
def test_what_does_not_fit_is_refused(given, match):
    with pytest.raises(ValueError, match=match):
        DeviceAssignment.build(grid(V3_8), **given)


def test_an_assignment_needs_a_topology_and_an_array_of_rank_three():
    with pytest.raises(ValueError, match="`topology` is not a Topology object; got"):
        DeviceAssignment.build("grid")
    with pytest.raises(ValueError, match="topology must be a Topology object, got"):
        DeviceAssignment(None, [[[0, 0, 0, 0]]])
    with pytest.raises(ValueError, match="must be a rank 3 numpy array, got shape"):
        DeviceAssignment(grid(V3_8), [0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"equal to topology rank \(4\), got shape"):
        DeviceAssignment(grid(V3_8), [[[0, 0, 0]]])


def test_replicas_are_placed_around_missing_devices():
    holed = grid(V3_8, missing=[(1, 0, 0, 1)])
    built = DeviceAssignment.build(holed, [1, 1, 1, 2], num_replicas=3)
    assert built.core_assignment[:, 0, :2].tolist() == [[0, 0], [0, 1], [1, 1]]
    with pytest.raises(ValueError, match="only 3 replicas with shape"):
        DeviceAssignment.build(holed, [1, 1, 1, 2], num_replicas=4)


SIDE = st.sampled_from([1, 2, 4])


@pytest.mark.feature("K08")
@hypothesis.given(
    shape=st.tuples(SIDE, SIDE, SIDE, st.sampled_from([1, 2])),
    block=st.tuples(SIDE, SIDE, SIDE, st.sampled_from([1, 2])),
    stride=st.tuples(*[st.sampled_from([1, 2])] * 4),
    data=st.data(),
)
@hypothesis.settings(deadline=None, max_examples=60)
def test_no_core_belongs_to_two_replicas(shape, block, stride, data):
    block = np.minimum(block, shape).tolist()
    stride = np.minimum(stride, np.array(shape) // block).tolist()
    most = math.prod(m // b for m, b in zip(shape, block, strict=True))
    count = data.draw(st.integers(1, most))
    built = DeviceAssignment.build(grid(shape), block, stride, count)
    cores = built.core_assignment
    assert cores.shape == (count, math.prod(block), 4)
    places = {tuple(p) for p in cores.reshape(-1, 4).tolist()}
    assert len(places) == count * math.prod(block)
    assert all((p < np.array(shape)).all() for p in cores.reshape(-1, 4))


@pytest.mark.parametrize("shape", [V3_8, [4, 4, 1, 2], [4, 2, 2, 2], [1, 4, 2, 2]])
def test_neighbours_in_the_ring_are_neighbours_in_the_grid(shape):
    count = math.prod(shape) // 2
    built = DeviceAssignment.build(grid(shape), [1, 1, 1, 2], num_replicas=count)
    chips = built.core_assignment[:, 0, :3]
    steps = np.abs(chips - np.roll(chips, 1, axis=0)).sum(axis=1)
    assert steps.tolist() == [1] * count
