import jax.numpy as jnp
import numpy as np
import pytest

import unisono as uni
from tests import machine
from unisono._src.execution import program_cache
from unisono._src.strategies import resizing


@pytest.mark.needs_devices(4)
def test_a_strategy_and_its_variables_have_another_number_of_replicas_for_a_while():
    s = uni.distribute.MirroredStrategy(machine.names(2))
    with s.scope():
        weight = uni.Variable([1.0, 2.0])
        mean = uni.metrics.Mean()
    step = uni.function(lambda: s.reduce("SUM", s.run(lambda: weight * 1.0), axis=None))
    s.run(lambda: mean.update_state([2.0, 4.0]))
    np.testing.assert_array_equal(step(), [2.0, 4.0])
    components = weight.values
    for count in (1, 3, 4):
        with resizing.resized(s, count), program_cache.separate_programs(count):
            assert s.num_replicas_in_sync == count
            np.testing.assert_array_equal(step(), [count, 2.0 * count])
            assert len(s.experimental_local_results(weight)) == count
            assert float(mean.result()) == 3.0
            weight.assign([7.0, 7.0])
            mean.reset_state()
        program_cache.forget_programs(count)
        assert s.num_replicas_in_sync == 2 and len(weight.values) == len(components)
        np.testing.assert_array_equal(step(), [2.0, 4.0])
        assert float(mean.result()) == 3.0


@pytest.mark.needs_devices(3)
def test_sharded_variables_are_split_over_the_other_devices():
    s = uni.distribute.MirroredStrategy(
        machine.names(2), state="sharded", shard_above=1
    )
    with s.scope():
        weight = uni.Variable(jnp.arange(6.0))
    with resizing.resized(s, 3), program_cache.separate_programs("three"):
        np.testing.assert_array_equal(weight.numpy(), np.arange(6.0))
        assert len(weight.state_cell.array.sharding.device_set) == 3
    np.testing.assert_array_equal(weight.numpy(), np.arange(6.0))
    assert len(weight.state_cell.array.sharding.device_set) == 2


def test_a_variable_made_in_the_block_stays_with_its_value():
    s = uni.distribute.MirroredStrategy(machine.names(2))
    with resizing.resized(s, 1), s.scope():
        made = uni.Variable(3.0)
    assert float(made.numpy()) == 3.0 and len(made.values) == 2
