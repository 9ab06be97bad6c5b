"""`run`, `reduce` and `update` of several replicas."""

import jax.numpy as jnp
import pytest

import unisono as uni
from tests import machine


@pytest.fixture
def strategy():
    return uni.distribute.MirroredStrategy(machine.names(2))


def test_replicas_get_their_own_parts_on_their_own_devices(strategy):
    parts = uni.distribute.PerReplica((jnp.ones(1), jnp.ones(3)))
    found = strategy.run(lambda x, shared: x.size + shared, args=(parts, 10))
    assert found.values == (11, 13)
    devices = strategy.run(lambda: jnp.ones(1)).values
    assert len({x.device for x in devices}) == 2
    assert strategy.run(lambda: None) is None


def test_pairs_to_reduce_may_come_from_an_iterator(strategy):
    values = [uni.distribute.PerReplica((1.0 * i, 2.0 * i)) for i in range(3)]
    pairs = zip(values, [*machine.names(2), machine.name(0)], strict=True)
    found = strategy.extended.batch_reduce_to("SUM", pairs)
    assert [float(x) for x in found] == [0.0, 3.0, 6.0]


def test_only_variables_of_the_strategy_are_updated(strategy):
    for given in (uni.Variable(1.0), uni.distribute.Mirrored((1.0, 1.0))):
        with pytest.raises(AssertionError, match="made in the scope"):
            strategy.extended.update(given, lambda v: None)
    with pytest.raises(AttributeError, match="_get_cross_replica"):
        strategy.extended.read_var(uni.Variable(1.0))


def test_a_replica_is_told_in_values_from_a_function(strategy):
    made = strategy.experimental_distribute_values_from_function(
        lambda context: (context.replica_id_in_sync_group, "same")
    )
    assert [x.values for x in made] == [(0, 1), ("same", "same")]
