"""`device` places eager values, and leaves replicas and programs alone."""

import jax.numpy as jnp
import pytest

import unisono


@pytest.mark.needs_devices(2)
def test_values_of_the_block_are_made_on_the_device():
    for name in ("/CPU:1", "cpu:1", "/job:localhost/replica:0/task:0/device:CPU:1"):
        with unisono.device(name):
            (found,) = jnp.zeros(2).devices()
            with unisono.device(None):
                (default,) = jnp.zeros(2).devices()
        assert (found.id, default.id) == (1, 0)
    with unisono.device("/job:worker/task:1"):
        assert jnp.zeros(2).devices() == {default}


@pytest.mark.needs_devices(2)
def test_replicas_stay_on_their_devices():
    strategy = unisono.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

    def replica():
        with unisono.device("CPU:0"):
            return jnp.zeros(2)

    placed = strategy.run(replica).values
    assert [x.devices().pop().id for x in placed] == [0, 1]


def test_a_device_that_is_missing_is_told(caplog):
    with unisono.device("CPU:77"):
        assert int(jnp.asarray(1) + 1) == 2
    assert "There is no device" in caplog.text
    unisono.config.set_soft_device_placement(False)
    try:
        with pytest.raises(unisono.errors.InvalidArgumentError, match="/device:CPU:0"):
            unisono.device("CPU:77")
    finally:
        unisono.config.set_soft_device_placement(True)
    with pytest.raises(ValueError, match="XYZ"):
        unisono.device("XYZ:0")
    with pytest.raises(ValueError, match="Expecting a string"):
        unisono.device(3)
