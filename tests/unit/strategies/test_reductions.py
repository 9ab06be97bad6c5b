"""Where the result of a reduction goes, and which sums are refused."""

import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests import machine
from unisono._src.strategies import reductions


@pytest.fixture
def strategy():
    return uni.distribute.MirroredStrategy(machine.names(2))


def test_a_destination_is_a_device_a_value_or_a_variable():
    name = machine.name(1)
    there = uni.distribute.OneDeviceStrategy(name)
    array = there.run(lambda: jnp.ones(1))
    (device,) = array.devices()
    with there.scope():
        weight = uni.Variable(1.0)
    for where in (name, array, weight):
        assert reductions.parse_destination(where).device == device
    with pytest.raises(AssertionError, match="must be one device name"):
        reductions.parse_destination([name])
    with pytest.raises(ValueError, match="can not be empty"):
        reductions.parse_destination("")
    with pytest.raises(AttributeError, match="'int' object has no attribute 'device'"):
        reductions.parse_destination(3)


def test_a_result_is_one_array_or_a_copy_on_each_device(strategy):
    value = uni.distribute.PerReplica((jnp.ones(2), jnp.full(2, 3.0)))
    reduce_to = strategy.extended.reduce_to
    one = reduce_to("SUM", value, machine.name(1))
    assert one.tolist() == [4, 4]
    copies = reduce_to("MEAN", value, value)
    assert [c.tolist() for c in copies.values] == [[2, 2], [2, 2]]
    assert len({c.device for c in copies.values}) == 2


def test_the_sum_of_what_all_replicas_share_is_refused(strategy):
    mirrored = uni.distribute.Mirrored((jnp.ones(2), jnp.ones(2)))
    with pytest.raises(AssertionError, match="the same value on every replica"):
        strategy.reduce("SUM", mirrored, axis=None)
    with pytest.raises(ValueError, match="A non-DistributedValues value"):
        strategy.reduce("SUM", np.ones(2), axis=None)
    # Zero is zero, however often it is added.
    assert strategy.reduce("SUM", np.zeros(2), axis=None).tolist() == [0, 0]
    assert strategy.reduce("MEAN", np.ones(2), axis=None).tolist() == [1, 1]


def test_a_sum_along_an_axis_keeps_the_type_of_small_integers(strategy):
    def make(_):
        return jnp.array([100, 100], jnp.int8)

    given = strategy.experimental_distribute_values_from_function(make)
    found = strategy.reduce("SUM", given, axis=0)
    assert (found.dtype, int(found)) == (jnp.int8, -112)
    assert float(strategy.reduce("MEAN", given, axis=0)) == 100.0
