"""The strategies with several replicas on one machine."""

import pytest

import unisono as uni
from tests import machine

central = uni.distribute.experimental.CentralStorageStrategy


def test_devices_and_options_are_checked():
    make = uni.distribute.MirroredStrategy
    with pytest.raises(AssertionError):
        make([machine.name(0)] * 2)
    with pytest.raises(ValueError, match="state"):
        make(machine.names(2), state="spread")
    with pytest.raises(ValueError, match="cross_device_ops"):
        make(machine.names(2), cross_device_ops="nccl")


def test_a_mirrored_variable_is_on_every_device_a_central_one_on_one():
    names = machine.names(2)
    for strategy, copies in (
        (uni.distribute.MirroredStrategy(names), 2),
        (central(names, names[1]), 1),
    ):
        with strategy.scope():
            weight = uni.Variable(1.0)
        assert len(strategy.extended.parameter_devices) == copies
        assert len(strategy.experimental_local_results(weight)) == copies
        assert len(strategy.extended.worker_devices) == 2


def test_one_compute_device_keeps_the_variables_of_central_storage():
    (name,) = central([machine.name(1)]).extended.parameter_devices
    assert name == central([machine.name(1)]).extended.worker_devices[0]
