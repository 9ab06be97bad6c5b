"""What a program's own strategy must give, and where methods may be called."""

import copy

import pytest

import unisono as uni
from tests import machine


def test_what_a_strategy_of_a_program_leaves_out_is_said():
    class Extended(uni.distribute.StrategyExtended):
        pass

    class Own(uni.distribute.Strategy):
        def __init__(self):
            super().__init__(Extended(self))  # type: ignore[abstract]

    strategy = Own()
    for call in (
        lambda: strategy.num_replicas_in_sync,
        lambda: strategy.run(lambda: None),
        lambda: strategy.gather(1, axis=0),
        lambda: strategy.extended.worker_devices,
    ):
        with pytest.raises(NotImplementedError, match="implemented in descendants"):
            call()


def test_a_copy_of_a_strategy_owns_its_own_variables():
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    twin = copy.deepcopy(strategy)
    with twin.scope():
        weight = uni.Variable(1.0)
    assert twin.extended.variable_created_in_scope(weight)
    assert not strategy.extended.variable_created_in_scope(weight)
    with pytest.raises(RuntimeError, match="Must only deepcopy"):
        copy.copy(strategy)


def test_variables_are_placed_beside_those_of_the_scope_only():
    strategy = uni.distribute.MirroredStrategy(machine.names(2))
    outside = uni.Variable(1.0)
    with pytest.raises(RuntimeError, match="Need to be inside"):
        strategy.extended.colocate_vars_with(outside)
    with strategy.scope(), pytest.raises(ValueError, match="created in this"):
        strategy.extended.colocate_vars_with(outside)
