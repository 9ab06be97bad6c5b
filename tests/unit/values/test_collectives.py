"""Values of replicas are reduced, gathered and handed out by TensorFlow's rules."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

import unisono as tf
from tests import machine
from tests.parity.programs import mirrored
from unisono._src.machines.topology import AXIS, Topology
from unisono._src.values import collectives

SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN


def pair():
    return Topology.of([machine.name(0), machine.name(1)])


def in_program(fn, *given):
    """Returns what `fn` gives on each of two replicas, one row of `given` each."""
    topology, own = pair(), PartitionSpec(AXIS)

    def body(*rows):
        return jax.tree.map(lambda x: x[None], fn(*(row[0] for row in rows)))

    return jax.jit(
        jax.shard_map(
            body, mesh=topology.mesh, in_specs=own, out_specs=own, check_vma=False
        )
    )(*map(jnp.asarray, given))


# Parts.


@pytest.mark.parametrize("device", [None, 0])
def test_parts_are_added_and_their_mean_is_a_float(device):
    device = None if device is None else jax.local_devices()[device]
    parts = [jnp.array([1, 2]), jnp.array([4, 6])]
    total = collectives.reduce_parts(SUM, parts, device)
    assert total.tolist() == [5, 8]
    assert total.dtype == jnp.int32
    assert collectives.reduce_parts(MEAN, parts, device).tolist() == [2.5, 4.0]
    assert collectives.reduce_parts(SUM, [{"a": 1.0}, {"a": 2.0}])["a"] == 3.0


def test_one_part_is_itself():
    part = jnp.ones(2)
    assert collectives.reduce_parts(MEAN, [part]) is part


def test_slices_are_joined_and_become_dense_beside_an_array():
    rows = tf.IndexedSlices(jnp.array([4.0]), jnp.array([1]), (3,))
    joined = collectives.reduce_parts(MEAN, [rows, rows])
    assert joined.values.tolist() == [2.0, 2.0]
    assert joined.indices.tolist() == [1, 1]
    assert collectives.reduce_parts(SUM, [rows, jnp.ones(3)]).tolist() == [1, 5, 1]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([jnp.ones(2), jnp.ones(3)], "same shape"),
        ([jnp.ones(2), jnp.ones(2, jnp.int32)], "same element type"),
        ([jnp.ones(2, bool)] * 2, "not defined"),
        (["a", "b"], "Expected numbers"),
    ],
)
def test_parts_that_cannot_be_combined_are_refused(parts, words):
    with pytest.raises(tf.errors.InvalidArgumentError, match=words):
        collectives.reduce_parts(SUM, parts)


def test_parts_are_gathered_in_the_order_of_replicas():
    parts = [jnp.ones((1, 2)), jnp.zeros((2, 2))]
    assert collectives.gather_parts(parts, 0).tolist() == [[1, 1], [0, 0], [0, 0]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Dimension 0 in both"):
        collectives.gather_parts(parts, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Ranks"):
        collectives.gather_parts([jnp.ones(1), jnp.ones((1, 1))], 0)
    for axis in (-1, 2):
        with pytest.raises(ValueError, match=f"axis {axis}"):
            collectives.gather_parts(parts, axis)
    with pytest.raises(TypeError, match="bool"):
        collectives.gather_parts([jnp.ones(1, bool)], 0)


def test_a_sum_along_an_axis_knows_how_many_elements_it_has():
    total, count = collectives.sum_and_count(MEAN, (0, -1), jnp.ones((2, 3, 4)))
    assert total.tolist() == [8.0] * 3
    assert float(count) == 8.0
    with pytest.raises(ValueError, match="Invalid reduction dimension 3"):
        collectives.sum_and_count(SUM, 3, jnp.ones(2))
    with pytest.raises(TypeError, match="unhashable"):
        collectives.sum_and_count(SUM, [0], jnp.ones(2))
    with pytest.raises(TypeError, match=r"dict of \['a'\]"):
        collectives.sum_and_count(SUM, 0, {"a": 1.0})


# In one program.


def update(sign, op, old, *parts):
    found = collectives.update_at_once(sign, op, old, parts, jax.local_devices()[0])
    return None if found is None else found.tolist()


def test_an_update_adds_subtracts_or_replaces():
    old, parts = jnp.array([1.0]), (jnp.array([2.0]), jnp.array([4.0]))
    assert update(1, SUM, old, *parts) == [7.0]
    assert update(-1, MEAN, old, *parts) == [-2.0]
    assert update(0, MEAN, old, *parts) == [3.0]


@pytest.mark.parametrize(
    ("old", "part"),
    [
        (jnp.ones(1), jnp.ones(2)),  # Another shape.
        (jnp.ones(1), jnp.ones(1, jnp.int32)),  # Another type.
        (jnp.ones(1), np.ones(1, np.float32)),  # No array of JAX.
        (jnp.ones(1, jnp.bfloat16), jnp.ones(1, jnp.bfloat16)),  # It rounds otherwise.
        (jnp.ones(1, jnp.int32), jnp.ones(1, jnp.int32)),  # Its mean is a float.
        (jnp.ones(1), 1.0),  # A number for an array.
        (jnp.float32(1), 2.0**31),  # A number that other types do not hold.
        (jnp.float32(1), float("nan")),
        (jnp.int32(1), 1.0),
    ],
)
def test_an_update_leaves_what_needs_the_general_rules(old, part):
    assert update(1, MEAN, old, part) is None


def test_an_update_takes_one_number_and_not_several():
    assert update(1, MEAN, jnp.float32(1), 2) == 3.0
    assert update(-1, SUM, jnp.int32(1), 2) == -1
    assert update(1, MEAN, jnp.float32(1), 2.0, 2.0) is None
    assert update(1, SUM, jnp.uint32(1), 2) is None


# Places.


def test_a_released_array_may_be_combined_with_one_of_another_device():
    first, second = (jax.device_put(jnp.ones(1), d) for d in jax.local_devices()[:2])
    with pytest.raises(ValueError, match="incompatible devices"):
        first + second
    free = collectives.release(first)
    assert (free + second).tolist() == [2.0]
    assert free.unsafe_buffer_pointer() == first.unsafe_buffer_pointer()
    assert collectives.release("text") == "text"


def test_each_replica_gets_an_object_of_its_own():
    x, devices = jnp.ones(1), jax.local_devices()[:2]
    handed = collectives.hand_out(x, devices)
    assert [a.devices() for a in handed] == [{d} for d in devices]
    traced = collectives.hand_out(x, [None, None])
    assert traced[0] is x
    assert traced[1] is not x


def test_the_pieces_of_an_array_are_in_the_order_of_replicas():
    strategy = mirrored(2)
    topology = strategy.extended._placement.topology
    stacked = topology.stack([jnp.full((1, 2), float(i)) for i in range(2)])
    assert [p.tolist() for p in collectives.shards(stacked, topology)] == [
        [[0.0, 0.0]],
        [[1.0, 1.0]],
    ]
    assert collectives.first_row(stacked) == 0


# In a program of all replicas.


def test_replicas_reduce_gather_and_pick_in_a_program():
    rows = [[1.0, 2.0], [3.0, 6.0]]

    def body(x):
        return (
            collectives.reduce_local(SUM, x, 2),
            collectives.reduce_local(MEAN, {"x": x}, 2)["x"],
            collectives.gather_local(x, 0),
            collectives.pick_local(x, 1),
            collectives.pick_local(x > 2, 1),
            collectives.split_local(x, 2)[0],
        )

    total, mean, whole, second, flags, first = in_program(body, rows)
    assert total.tolist() == [[4, 8]] * 2
    assert mean.tolist() == [[2, 4]] * 2
    assert whole.tolist() == [[1, 2, 3, 6]] * 2
    assert second.tolist() == [[3, 6]] * 2
    assert flags.tolist() == [[True, True]] * 2
    assert first.tolist() == [[1, 2]] * 2


def test_slices_of_replicas_are_joined_in_a_program():
    def body(x):
        rows = tf.IndexedSlices(x, x.astype(jnp.int32), (4,))
        found = collectives.reduce_local(MEAN, rows, 2)
        return found.values, found.indices

    values, indices = in_program(body, [[1.0], [3.0]])
    assert values.tolist() == [[0.5, 1.5]] * 2
    assert indices.tolist() == [[1, 3]] * 2


def test_stacked_values_are_reduced_by_rows():
    topology = pair()
    stacked = topology.stack([jnp.full((1, 2), 1.0), jnp.full((1, 2), 4.0)])
    assert collectives.reduce_stacked(MEAN, stacked, topology).tolist() == [2.5, 2.5]


def test_a_replica_of_several_devices_has_one_piece():
    first, *others = jax.local_devices()[:4]
    names = Topology.of([machine.name(0), machine.name(2)])
    topology = dataclasses.replace(
        names, spans=((first, others[0]), (others[1], others[2]))
    )
    assert topology.num_logical_devices == 2
    stacked = topology.stack([jnp.full((1,), float(i)) for i in range(2)])
    assert len(stacked.addressable_shards) == 4
    found = collectives.shards(stacked, topology)
    assert [piece.tolist() for piece in found] == [[0.0], [1.0]]
