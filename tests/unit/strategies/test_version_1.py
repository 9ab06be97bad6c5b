"""The strategies of `compat.v1` take TensorFlow 1's arguments."""

import pytest

import unisono
from tests import machine

v1 = unisono.compat.v1.distribute


def _strategies():
    pair = machine.names(2)
    yield v1.MirroredStrategy(pair)
    yield v1.experimental.CentralStorageStrategy(pair)
    yield v1.OneDeviceStrategy(pair[0])
    yield v1.experimental.MultiWorkerMirroredStrategy()
    yield v1.experimental.TPUStrategy()


def test_values_are_reduced_without_an_axis():
    for strategy in _strategies():
        ones = strategy.run(lambda: unisono.constant(1.0))
        count = strategy.num_replicas_in_sync
        assert float(strategy.reduce("SUM", ones)) == count
        assert float(strategy.reduce("MEAN", ones)) == 1.0
        rows = strategy.run(lambda: unisono.ones([3]))
        assert float(strategy.reduce("SUM", rows, axis=0)) == 3.0 * count


def test_they_are_strategies_of_tensorflow_2_as_well():
    for strategy in _strategies():
        assert isinstance(strategy, unisono.distribute.Strategy)
    mirrored = unisono.distribute.MirroredStrategy(machine.names(2))
    assert not isinstance(mirrored, v1.MirroredStrategy)
    with pytest.raises(TypeError, match="axis"):
        mirrored.reduce("SUM", unisono.constant(1.0))  # type: ignore[call-overload]


def test_the_number_of_steps_of_a_run_is_kept():
    assert v1.experimental.TPUStrategy(steps_per_run=7).steps_per_run == 7
    assert v1.experimental.TPUStrategy().steps_per_run == 1
    with pytest.raises(TypeError, match="steps_per_run"):
        v1.experimental.TPUStrategy(steps_per_run=1.5)


def test_losses_are_summed_over_replicas():
    assert v1.get_loss_reduction() is unisono.distribute.ReduceOp.SUM
    with v1.MirroredStrategy(machine.names(2)).scope():
        assert v1.get_loss_reduction() is unisono.distribute.ReduceOp.SUM
