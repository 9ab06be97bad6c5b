"""The default strategy, and the one that is set for a thread."""

import jax.numpy as jnp
import pytest

import unisono as uni
from tests import machine
from unisono._src.strategies import current


def test_the_default_strategy_names_no_devices_and_changes_nothing():
    strategy = uni.distribute.get_strategy()
    assert strategy is current.default_strategy()
    with pytest.raises(RuntimeError, match="unsupported by default"):
        strategy.extended.worker_devices  # noqa: B018
    with pytest.raises(RuntimeError, match="unsupported by default"):
        strategy.extended.parameter_devices  # noqa: B018
    x = jnp.ones(2)
    assert strategy.run(lambda v: v, args=(x,)) is x
    assert next(iter(strategy.experimental_distribute_dataset([x]))) is x


def test_its_replica_context_is_the_only_replica():
    context = uni.distribute.get_replica_context()
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (0, 1)


def test_state_goes_beside_the_first_variable_by_name():
    second, first = uni.Variable(1.0, name="b"), uni.Variable(1.0, name="a")
    extended = uni.distribute.get_strategy().extended
    assert extended.non_slot_devices([second, first]) is first


def test_a_strategy_is_set_outside_scopes_only():
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    with strategy.scope(), pytest.raises(RuntimeError, match="inside a"):
        uni.distribute.experimental_set_strategy(strategy)
    uni.distribute.experimental_set_strategy(strategy)
    try:
        assert uni.distribute.get_strategy() is strategy
    finally:
        uni.distribute.experimental_set_strategy(None)
    assert not uni.distribute.has_strategy()
